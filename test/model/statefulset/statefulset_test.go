package statefulset

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
)

func TestNoWorldBreaksAPromise(t *testing.T) { modeltest.BreakNoPromise(t, Worlds(), 1_000) }

// The contents of a tracker and the objects in the API server survive their encoding.
func TestStateSurvivesEncoding(t *testing.T) {
	modeltest.HasNoPadding[state](t)
	modeltest.Each(t, Worlds(), func(t *testing.T, w *World) {
		k := newWorker(w)
		modeltest.Walk(t, modeltest.Random(t), &k.Plain, 100, func(s *state) {
			for n, c := range s.claims {
				read := k.machine.claim(n, c)
				if again := c.patched(read.Mark, read.Owners); again != c {
					t.Fatalf("claim %+v, again %+v", c, again)
				}
			}
			for i := range w.Replicas {
				for n, seen := range s.lines[i].sights {
					if again := k.machine.sightOf(k.machine.sight(seen)); again != seen {
						t.Fatalf("claim %d: seen %+v, again %+v", n, seen, again)
					}
				}
			}
		})
	})
}

// Objects with new numbers keep their identity and order, wherever they are kept.
func TestNumbersStartFromOne(t *testing.T) {
	s := state{}
	s.pods[0][0].uid, s.lines[1].seen.pods[0][0].uid = 9, 4
	s.claims[0] = claim{uid: 7, pods: [2]podRef{{kind: plain, uid: 2}}}
	s.lines[0].sessions[0].claim = claim{uid: 3, pods: [2]podRef{{kind: plain, uid: 4}}}
	s.late.session.pod.uid = 9
	s.number()
	got := [...]uint8{s.pods[0][0].uid, s.lines[1].seen.pods[0][0].uid, s.claims[0].pods[0].uid,
		s.lines[0].sessions[0].claim.pods[0].uid, s.late.session.pod.uid, s.podUIDs[0][0],
		s.claims[0].uid, s.lines[0].sessions[0].claim.uid, s.claimUIDs[0]}
	if want := [...]uint8{3, 2, 1, 2, 3, 3, 2, 1, 2}; got != want {
		t.Errorf("numbers %v, want %v", got, want)
	}
}

// checked returns a transition of a set by annotation that was scaled away. A session has read its claim, and every
// precondition of the deletion holds.
func checked() (*transition, *work) {
	w := &World{Ordinals: 1, Size: 1, Replicas: 1, Policy: both}
	k := newWorker(w)
	c := &transition{World: w, machine: k.machine, state: k.Decode(k.First())}
	c.pods[0][0], c.sets[0].replicas = pod{}, 0
	c.claims[0].mark = mark{set: 1, deletes: true, of: 1}
	h := &c.history[0]
	h.grace, h.mustScale[0], h.mustDelete[0] = true, true, true
	return c, &work{on: true, claim: c.claims[0], setSeen: statefulset.Found, set: 1, as: c.sets[0],
		podSeen:   statefulset.Absent,
		claimRead: 1, podRead: 2, setRead: 3, claimPermits: true, podPermits: true, setPermits: true}
}

func TestEachDeletionIsChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*transition, *work)
		want    string
	}{
		"a claim that was scaled away": {func(*transition, *work) {}, ""},
		"another claim":                {func(c *transition, _ *work) { c.claims[0].uid++ }, "S2"},
		"the set keeps it":             {func(_ *transition, s *work) { s.setPermits = false }, "S1"},
		"its pod remains":              {func(_ *transition, s *work) { s.podPermits = false }, "S1"},
		"its pod was read too late":    {func(_ *transition, s *work) { s.podRead = 4 }, "S1"},
		"it is held":                   {func(c *transition, _ *work) { c.claims[0].hold = true }, "S1"},
		"it has another owner":         {func(c *transition, _ *work) { c.claims[0].foreign = plain }, "S1"},
		"which is gone": {
			func(c *transition, _ *work) { c.claims[0].foreign, c.foreignGone = plain, true }, ""},
		"without grace": {func(c *transition, _ *work) { c.history[0].grace = false }, "S1"},
		"without grace, before its pod ends": {
			func(c *transition, s *work) { c.history[0].grace, s.pod.uid = false, 1 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := checked()
			tc.prepare(c, s)
			c.checkDeletion(0, s)
			modeltest.Broken(t, c.Wrong, tc.want)
		})
	}
}

func TestPermissionBySet(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*transition, *work)
		want    bool
	}{
		"scaled away":       {func(*transition, *work) {}, true},
		"there is none":     {func(_ *transition, s *work) { s.set = 0 }, false},
		"it is gone":        {func(c *transition, _ *work) { c.sets[0] = set{} }, false},
		"it is terminating": {func(c *transition, _ *work) { c.sets[0].terminating = true }, false},
		"in range":          {func(c *transition, _ *work) { c.sets[0].replicas = 1 }, false},
		"it retains":        {func(c *transition, _ *work) { c.sets[0].annotation = whenDeleted }, false},
		"it retained":       {func(c *transition, _ *work) { c.history[0].scaled[0] = false }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := checked()
			tc.prepare(c, s)
			if got := c.permitsBySet(0, s); got != tc.want {
				t.Errorf("permits %v", got)
			}
		})
	}
}

func TestEachAddedOwnerIsChecked(t *testing.T) {
	owned := func(c claim) claim { c.sets[0] = plain; return c }
	goes := func(c claim) claim { c.pods[0] = podRef{plain, 0, 1}; return c }
	running := func(c *transition, s *work) {
		c.pods[0][0] = pod{uid: 1, owner: 1, bound: true}
		s.pod, s.podSeen = c.pods[0][0], statefulset.Found
	}
	for name, tc := range map[string]struct {
		prepare func(*transition, *work)
		patch   func(claim) claim
		want    string
		late    bool
	}{
		"the set":                   {func(*transition, *work) {}, owned, "", false},
		"of a claim never used":     {func(c *transition, _ *work) { c.history[0].had[0] = false }, owned, "S1", false},
		"which was not read":        {func(_ *transition, s *work) { s.setRead = 0 }, owned, "S1", false},
		"which retains":             {func(_ *transition, s *work) { s.as.annotation = whenScaled }, owned, "S1", false},
		"which goes":                {func(_ *transition, s *work) { s.as.terminating = true }, owned, "S1", false},
		"which has gone since":      {func(c *transition, _ *work) { c.sets[0] = set{} }, owned, "", true},
		"the pod":                   {running, goes, "", false},
		"which was not there":       {func(*transition, *work) {}, goes, "S1", true},
		"which has gone since, too": {func(c *transition, s *work) { running(c, s); c.pods[0][0] = pod{} }, goes, "", true},
		"of a set that keeps it": {func(c *transition, s *work) { running(c, s); s.setPermits = false }, goes, "S1",
			false},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := checked()
			tc.prepare(c, s)
			c.checkPatch(0, s, tc.patch(c.claims[0]))
			modeltest.Broken(t, c.Wrong, tc.want)
			if c.history[0].late != tc.late {
				t.Errorf("late %v", c.history[0].late)
			}
		})
	}
}

func TestEachPodDeletionIsChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*transition, *work)
		want    string
	}{
		"on an old claim":       {func(*transition, *work) {}, ""},
		"another pod":           {func(c *transition, _ *work) { c.pods[0][0].uid = 2 }, "S2"},
		"on a claim that stays": {func(_ *transition, s *work) { s.claimPermits = false }, "S1"},
		"out of range":          {func(_ *transition, s *work) { s.as.replicas = 0 }, "S1"},
		"the set retains":       {func(_ *transition, s *work) { s.as.annotation = whenDeleted }, "S1"},
		"Kubernetes does it":    {func(_ *transition, s *work) { s.as.field = both }, "S1"},
		"the set was not read":  {func(_ *transition, s *work) { s.setRead = 0 }, "S1"},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := checked()
			c.pods[0][0], s.pod, s.as.replicas = pod{uid: 1, owner: 1}, pod{uid: 1, owner: 1}, 1
			tc.prepare(c, s)
			c.checkPodDeletion(0, s)
			modeltest.Broken(t, c.Wrong, tc.want)
		})
	}
}

func TestEachCollectionIsChecked(t *testing.T) {
	fresh := func() *transition {
		c, _ := checked()
		c.claims[0].sets[0] = plain
		c.removeSet(0, background)
		return c
	}
	withPod := func(c *transition) { c.claims[0].sets[0], c.claims[0].pods[0] = noRef, podRef{plain, 0, 1} }
	collection := func(c *transition) string { c.checkCollection(0); return c.Wrong }
	modeltest.Check(t, fresh, collection, map[string]modeltest.Case[*transition]{
		"with its set":             {nil, ""},
		"by Kubernetes":            {func(c *transition) { c.claims[0].sets[0], c.ends[0].how = controller, orphan }, ""},
		"without dependents":       {func(c *transition) { c.ends[0].how = orphan }, "S1"},
		"added to a deleted set":   {func(c *transition) { c.ends[0].how, c.history[0].late = orphan, true }, ""},
		"which has never said so":  {func(c *transition) { c.history[0].deleted[0] = false }, "S1"},
		"which keeps it":           {func(c *transition) { c.ends[0].says, c.ends[0].atRest = whenScaled, true }, "S1"},
		"which was turned just so": {func(c *transition) { c.ends[0].says = whenScaled }, ""},
		"which is held":            {func(c *transition) { c.claims[0].hold, c.history[0].held = true, true }, "S1"},
		"which was held just so":   {func(c *transition) { c.claims[0].hold = true }, ""},
		"with its pod, and held": {
			func(c *transition) { withPod(c); c.claims[0].hold, c.history[0].held = true, true }, "S1"},
		"with its pod":                 {withPod, ""},
		"with its pod, which was kept": {func(c *transition) { withPod(c); c.history[0].scaled[0] = false }, "S1"},
	})
}

func TestRestIsChecked(t *testing.T) {
	keep := func(c *transition) { c.history[0].mustScale[0], c.history[0].mustDelete[0] = false, false }
	runs := func(c *transition) {
		c.sets[0].replicas, c.pods[0][0] = 1, pod{uid: 1, owner: 1, bound: true, ready: true}
	}
	fresh := func() *transition { c, _ := checked(); return c }
	unsettled := func(c *transition) string { return newWorker(c.World).unsettled(&c.state) }
	modeltest.Check(t, fresh, unsettled, map[string]modeltest.Case[*transition]{
		"condemned":            {nil, "L1"},
		"and held":             {func(c *transition) { c.claims[0].hold = true }, ""},
		"and owned by another": {func(c *transition) { c.claims[0].foreign = plain }, ""},
		"its pod remains":      {func(c *transition) { c.pods[0][0].uid = 1 }, ""},
		"not seen":             {keep, ""},
		"it runs":              {runs, ""},
		"a set without pods":   {func(c *transition) { runs(c); c.pods[0][0] = pod{} }, "L2"},
		"a pod without claim":  {func(c *transition) { runs(c); c.claims[0] = claim{} }, "L2"},
		"of a set that keeps claims": {
			func(c *transition) { runs(c); c.claims[0], c.sets[0].annotation = claim{}, whenDeleted }, ""},
		"a pod on a claim that goes": {func(c *transition) { runs(c); c.claims[0].terminating = true }, ""},
		"still woken":                {func(c *transition) { runs(c); c.sets[0].woken = true }, "L3"},
		"the set is gone":            {func(c *transition) { c.removeSet(0, background) }, "L1"},
		"and kept it":                {func(c *transition) { c.removeSet(0, background); c.ends[0].says = whenScaled }, "L3"},
		"and its mark": {
			func(c *transition) { keep(c); c.removeSet(0, background); c.claims[0].mark = mark{} }, ""},
		"without dependents":    {func(c *transition) { c.removeSet(0, orphan) }, "L3"},
		"without its mark":      {func(c *transition) { c.removeSet(0, orphan); c.claims[0].mark = mark{} }, ""},
		"the mark of another":   {func(c *transition) { runs(c); c.claims[0].mark.of = 2 }, "L3"},
		"a mark without policy": {func(c *transition) { runs(c); c.sets[0].annotation = none }, "L3"},
		"an owner without policy": {
			func(c *transition) { runs(c); c.claims[0].sets[0], c.sets[0].annotation = plain, whenScaled }, "L3"},
		"an owner with policy":    {func(c *transition) { runs(c); c.claims[0].sets[0] = plain }, ""},
		"a pod in range as owner": {func(c *transition) { runs(c); c.claims[0].pods[0] = podRef{plain, 0, 1} }, "L3"},
		"uninstalled":             {func(c *transition) { runs(c); c.removing = true }, "L3"},
		"uninstalled, and clean":  {func(c *transition) { runs(c); c.removing, c.claims[0].mark = true, mark{} }, ""},
	})
}
