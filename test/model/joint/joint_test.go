package joint

import (
	"slices"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

func TestNoWorldBreaksAPromise(t *testing.T) { modeltest.BreakNoPromise(t, Worlds(), 1_500) }

// A world that no longer breaks a promise belongs to the other worlds.
func TestBrokenWorldsBreakTheirPromise(t *testing.T) {
	for name, promise := range broken {
		t.Run(name, func(t *testing.T) {
			i := slices.IndexFunc(all(), func(w World) bool { return w.Name == name })
			if i < 0 {
				t.Fatal("there is no such world")
			}
			w := all()[i]
			found(t, &w, promise)
		})
	}
}

// The test removes each guard between two controllers where one reads the output of the other, and the model finds the
// purpose of the guard.
func TestEachGuardIsNeeded(t *testing.T) {
	for _, tc := range []struct {
		without Guard
		world   World
		want    string
	}{
		{TheHoldOfClaims, World{Unlocked: true, Budget: Budget{DeleteClaim: 1, DeleteNode: 1}}, "S2"},
		{TheWord, World{Budget: Budget{Taint: 1, Cut: 1, Heal: 1}}, "S3"},
		{TheRun, World{Agent: Volumes, Budget: Budget{Delete: 1, Fence: 1, Reboot: 1}}, "S1"},
		{TheList, World{Agent: Volumes, Budget: Budget{Delete: 1, Fence: 1, Reboot: 1}}, "S1"},
		{TheUnmount, World{Agent: Volumes, Uncovered: true, Unlocked: true,
			Budget: Budget{Delete: 1, Fence: 1, Reboot: 1, End: 1}}, "S3"},
		{TheWayOut, World{Agent: Reboot, Tried: true, Unlocked: true, Budget: Budget{Delete: 1, Fence: 1}}, "L1"},
		{TheStorage, World{Agent: Volumes, Budget: Budget{Fence: 1, Reboot: 1, End: 1}}, "S3"},
		{TheMachine, World{Agent: Volumes, FencedFirst: true, Unlocked: true,
			Budget: Budget{Delete: 1, Fence: 1, Cut: 1, Replace: 1}}, "S3"},
		{TheNode, World{Budget: Budget{Delete: 1, Taint: 1, Untaint: 1, Cut: 1, Heal: 1}}, "S3"},
		{TheReboot, World{Agent: Volumes, Budget: Budget{Delete: 1, Fence: 1, Unfence: 1}}, "S1"},
		{TheRelease, World{Ephemeral: true, Budget: Budget{Foreground: 1}}, "L1"},
		{TheShutDown, World{Ephemeral: true, Budget: Budget{Foreground: 1, Confirm: 1, Cut: 1}}, "L1"},
		{TheFinalizer, World{Ephemeral: true, BuiltIn: true, Unlocked: true,
			Budget: Budget{Foreground: 1, DeleteNode: 1}}, "S2"},
		{TheAttachLock, World{Attached: true, Budget: Budget{Delete: 1, Cut: 1, Restart: 1}}, "S1"},
		{TheRun, World{Attached: true, Agent: Volumes, FencedFirst: true,
			Budget: Budget{DeleteNode: 1, Fence: 1, Cut: 1, Replace: 1}}, "S1"},
	} {
		w := tc.world
		if r := search.Explore(t.Context(), &w, search.Options{MaxStates: 3_000}); len(r.Findings()) > 0 {
			t.Errorf("a promise is broken with all guards: %s\n%s", r.Findings()[0].Promise,
				strings.Join(r.Findings()[0].Trace, "\n"))
		}
		w.Without = tc.without
		t.Logf("without guard %d", tc.without)
		found(t, &w, tc.want)
	}
}

// found explores a world until it breaks a promise, and compares the promise.
func found(t *testing.T, w *World, want string) {
	t.Helper()
	r := search.Explore(t.Context(), w, search.Options{MaxStates: 100_000})
	if len(r.Findings()) == 0 {
		t.Errorf("nothing is found in %d states", r.States)
		return
	}
	f := r.Findings()[0]
	modeltest.Broken(t, f.Promise, want)
	t.Logf("%d moves, %d states: %s\n%s", len(f.Moves), r.States, f.Promise, strings.Join(f.Trace, "\n"))
}

// The contents of trackers and the output of node fencing survive their encoding.
func TestStateSurvivesEncoding(t *testing.T) {
	modeltest.HasNoPadding[state](t)
	modeltest.Each(t, all(), func(t *testing.T, w *World) {
		k := newWorker(w)
		modeltest.Walk[state, move](t, modeltest.Random(t), k, w.describe, 200, func(s *state) {
			c := k.transition(s)
			for slot, p := range s.pods {
				if p.exists {
					c.keep(slot, c.tracker(slot))
				}
			}
			if o := k.machine.fence(s.fence); o != nil {
				c.fence = s.fence.status(&o.Status, s.node)
			}
			if c.state != *s {
				t.Fatalf("a state is\n%+v, again\n%+v", *s, c.state)
			}
		})
	})
}
