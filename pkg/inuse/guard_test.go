package inuse

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// world is a kind whose objects are released unless they are used, with a diary of the writes.
type world struct {
	objects map[string]Object
	used    map[string]bool
	// other overrides the decision on an object that is not settled.
	other map[string]Decision
	// fail is the error of the next writes; undo accepts a write and undoes it.
	fail  error
	undo  bool
	diary []string
	// wrote, if set, is called at each write.
	wrote func(Object)
}

func (w *world) Decide(key string, duty func(Object) Duty) (Object, Decision, bool) {
	o, found := w.objects[key]
	if !found {
		return Object{}, Decision{}, false
	}
	d := duty(o)
	decision, settled := d.Settle(o)
	other, is := w.other[key]
	switch {
	case settled:
	case is:
		decision = other
	case w.used[key]:
		decision = Rest(ReasonInUse)
	case !d.Acts():
		decision = Later(ReasonLeftToBuiltIn)
	default:
		decision = Step(RemoveFinalizer, ReasonUnused)
	}
	return o, decision, true
}

func (w *world) Get(key string) (Object, bool) { o, found := w.objects[key]; return o, found }

func (w *world) ReadUsers(Object) {}

func (w *world) Patch(_ context.Context, o Object, a Action) (Object, error) {
	w.diary = append(w.diary, fmt.Sprintf("%s %s", a, o.Name))
	if w.wrote != nil {
		w.wrote(o)
	}
	o.Protected = (a == AddFinalizer) != w.undo
	return o, w.fail
}

func (w *world) Keys() []string {
	var keys []string
	for key := range w.objects {
		keys = append(keys, key)
	}
	return keys
}

func (w *world) List(context.Context) ([]Held, error) { return nil, nil }

// start returns a Guard of the objects, its clock and its Events. It runs nothing.
func start(t *testing.T, cfg Config, objects ...Object) (*world, *Guard, *testclock.FakeClock, *record.FakeRecorder) {
	t.Helper()
	clock := testclock.NewFakeClock(at(0))
	events := record.NewFakeRecorder(100)
	cfg.Clock, cfg.Events, cfg.Metrics = clock, events, prometheus.NewRegistry()
	w := &world{objects: map[string]Object{}, used: map[string]bool{}}
	for _, o := range objects {
		w.objects[o.Key()] = o
	}
	g := must.Get(New("Thing", w, cfg))(t)
	t.Cleanup(g.Stop)
	return w, g, clock, events
}

func (w *world) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(w.diary, want) {
		t.Errorf("diary: %q\nwant:  %q", w.diary, want)
	}
}

func named(name string, terminating, protected bool) Object {
	return Object{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), ResourceVersion: "1",
		Terminating: terminating, Protected: protected}
}

func TestWritesWaitForPatience(t *testing.T) {
	for _, o := range []Object{named("new", false, false), named("going", true, true)} {
		w, g, clock, _ := start(t, Config{Mode: ModeFull}, o)
		next := g.reconcile(t.Context(), o.Key())
		if next != controller.After(patience) {
			t.Errorf("%s: comes back %+v, want after the patience", o.Name, next)
		}
		clock.Step(patience - time.Second)
		if next = g.reconcile(t.Context(), o.Key()); next != controller.After(time.Second) {
			t.Errorf("%s: comes back %+v, want after a second", o.Name, next)
		}
		w.expect(t)
		clock.Step(time.Second)
		if next = g.reconcile(t.Context(), o.Key()); next != controller.Done() {
			t.Errorf("%s: comes back %+v after what it needs is done", o.Name, next)
		}
		if len(w.diary) != 1 {
			t.Errorf("%s: diary %q, want one write", o.Name, w.diary)
		}
		// The watch does not show the write yet.
		g.reconcile(t.Context(), o.Key())
		if len(w.diary) != 1 {
			t.Errorf("%s: written again: %q", o.Name, w.diary)
		}
	}
}

func TestAloneGuardWritesAtOnce(t *testing.T) {
	w, g, clock, _ := start(t, Config{Mode: ModeFull}, named("a", true, true), named("b", true, true))
	g.reconcile(t.Context(), "ns/a")
	clock.Step(patience)
	g.reconcile(t.Context(), "ns/a")
	g.reconcile(t.Context(), "ns/b")
	w.expect(t, "RemoveFinalizer a", "RemoveFinalizer b")

	// Then another controller is seen at work.
	g.Deleted(named("c", true, true), true)
	w.objects["ns/d"] = named("d", true, true)
	g.reconcile(t.Context(), "ns/d")
	w.expect(t, "RemoveFinalizer a", "RemoveFinalizer b")
}

// Writes by others under another leader prove nothing about the present.
func TestNewLeaderForgetsEvidence(t *testing.T) {
	_, g, _, _ := start(t, Config{Mode: ModeFull})
	g.tracker.alone()
	g.tracker.due("u", at(0))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	for deadline := time.Now().Add(time.Minute); !g.Working() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if g.tracker.isAlone() || len(g.tracker.of) != 0 {
		t.Errorf("alone %v, and it remembers %v", g.tracker.isAlone(), g.tracker.of)
	}
}

// No event may come for an object that was left to others.
func TestProofOfBeingAloneEnqueuesAll(t *testing.T) {
	w, g, clock, _ := start(t, Config{Mode: ModeFull, Settings: controllers.Settings{Workers: 1}}, named("a", true, true),
		named("b", true, true))
	g.reconcile(t.Context(), "ns/a")
	clock.Step(patience)
	g.reconcile(t.Context(), "ns/a")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w.wrote = func(o Object) {
		if o.Name == "b" {
			cancel()
		}
	}
	g.queue.Run(ctx)
	w.expect(t, "RemoveFinalizer a", "RemoveFinalizer b")
}

func TestEndOfUseIsANewNeed(t *testing.T) {
	w, g, clock, events := start(t, Config{Mode: ModeFull}, named("a", true, true))
	g.reconcile(t.Context(), "ns/a")
	w.used["ns/a"] = true
	clock.Step(patience)
	if next := g.reconcile(t.Context(), "ns/a"); next != controller.Done() {
		t.Errorf("in use, it comes back %+v: its user's end wakes it", next)
	}
	if reported := <-events.Events; !strings.HasPrefix(reported, v1.EventTypeNormal+" "+string(ReasonInUse)) {
		t.Errorf("reported %q", reported)
	}
	w.used["ns/a"] = false
	g.reconcile(t.Context(), "ns/a")
	w.expect(t)
	clock.Step(patience)
	g.reconcile(t.Context(), "ns/a")
	w.expect(t, "RemoveFinalizer a")
}

func TestFailedWrite(t *testing.T) {
	retry := controller.Retries(Config{}.WithDefaults().Settings).Retry()
	cases := map[string]struct {
		fail     error
		undo     bool
		again    controller.Result
		reported bool
	}{
		"the object is gone":             {fail: fmt.Errorf("patch: %w", kube.ErrGone)},
		"the object has changed":         {fail: fmt.Errorf("patch: %w", kube.ErrChanged), again: controller.Soon()},
		"the API server does not answer": {fail: errors.New("timeout"), again: retry, reported: true},
		"the API server refuses it": {fail: errclass.Mark(errclass.Refused, errors.New("no")),
			again: controller.Retries(Config{}.WithDefaults().Settings).Slow(), reported: true},
		"a policy undoes it": {undo: true, again: retry, reported: true},
	}
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			w, g, clock, events := start(t, Config{Mode: ModeFull}, named("a", true, true))
			w.fail, w.undo = c.fail, c.undo
			g.reconcile(t.Context(), "ns/a")
			clock.Step(patience)
			for range 2 {
				if next := g.reconcile(t.Context(), "ns/a"); next != c.again {
					t.Errorf("comes back %+v, want %+v", next, c.again)
				}
			}
			w.expect(t, "RemoveFinalizer a", "RemoveFinalizer a")
			if reported := len(events.Events); (reported == 1) != c.reported || reported > 1 {
				t.Errorf("reported %d times, want reported once: %v", reported, c.reported)
			}
		})
	}
}

func TestNoReportAfterCancel(t *testing.T) {
	w, g, clock, events := start(t, Config{Mode: ModeFull}, named("a", true, true))
	ctx, cancel := context.WithCancel(t.Context())
	g.reconcile(ctx, "ns/a")
	clock.Step(patience)
	cancel()
	w.fail = context.Canceled
	if next := g.reconcile(ctx, "ns/a"); next != controller.Done() || len(events.Events) != 0 {
		t.Errorf("comes back %+v, reported %d times", next, len(events.Events))
	}
}

func TestDryRun(t *testing.T) {
	w, g, clock, events := start(t, Config{Mode: ModeFull, Settings: controllers.Settings{DryRun: true}},
		named("a", true, true), named("b", false, false))
	for range 3 {
		g.reconcile(t.Context(), "ns/a")
		g.reconcile(t.Context(), "ns/b")
		clock.Step(patience)
	}
	w.expect(t)
	if len(events.Events) != 0 {
		t.Errorf("an Event is a write: %q", <-events.Events)
	}
	if got := g.recorder.Waiting(); got[reasonDryRun] != 2 {
		t.Errorf("counted %v, want two of %s", got, reasonDryRun)
	}
	if !g.tracker.isAlone() {
		t.Error("a need that nobody answered shows no absence")
	}
}

func TestPatienceStartsWithLeftToBuiltIn(t *testing.T) {
	w, g, clock, _ := start(t, Config{Mode: ModeFull}, named("a", true, true))
	w.other = map[string]Decision{"ns/a": Later(ReasonAPIReadFailed)}
	retry := controller.Retries(Config{}.WithDefaults().Settings).Retry()
	if next := g.reconcile(t.Context(), "ns/a"); next != retry {
		t.Errorf("comes back %+v, want %+v", next, retry)
	}
	clock.Step(patience)
	w.other = nil
	if next := g.reconcile(t.Context(), "ns/a"); next != controller.After(patience) {
		t.Errorf("comes back %+v: others had no time since its users are known", next)
	}
	w.expect(t)
}

func TestOutdatedProofOfBeingAlone(t *testing.T) {
	_, g, _, _ := start(t, Config{Mode: ModeFull})
	s := session{Guard: g, duty: Duty{Mode: ModeFull, Alone: true}}
	s.proveAlone(t.Context()) // decided before they were seen
	if g.tracker.isAlone() {
		t.Error("an absence that was proven earlier is proven again")
	}
}

func TestWaitingReasons(t *testing.T) {
	w, g, clock, events := start(t, Config{Mode: ModeFull}, named("a", true, true), named("b", true, true))
	waits := func(what string, want ...Reason) {
		t.Helper()
		if got := slices.Sorted(maps.Keys(g.recorder.Waiting())); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	g.reconcile(t.Context(), "ns/none")
	waits("an object that there is not")
	if len(events.Events) > 0 {
		t.Errorf("reported of an object that there is not: %s", <-events.Events)
	}
	w.other = map[string]Decision{"ns/b": Step(ReadUsers, reasonReadingUsers)}
	g.reconcile(t.Context(), "ns/b")
	waits("its users are read", reasonReadingUsers)
	delete(w.objects, "ns/b")
	g.Deleted(named("b", true, true), false)
	g.reconcile(t.Context(), "ns/a")
	clock.Step(patience)
	w.fail = errors.New("timeout")
	g.reconcile(t.Context(), "ns/a")
	waits("a write fails", reasonAPIWriteFailed)
	w.fail = nil
	g.reconcile(t.Context(), "ns/a")
	waits("it is written")
}

func TestModeOff(t *testing.T) {
	w, g, clock, _ := start(t, Config{}, named("a", true, true), named("b", false, false))
	for range 3 {
		g.reconcile(t.Context(), "ns/a")
		g.reconcile(t.Context(), "ns/b")
		clock.Step(patience)
	}
	w.expect(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRecreatedObject(t *testing.T) {
	_, g, _, _ := start(t, Config{Mode: ModeFull})
	before, now := named("a", true, true), named("a", false, false)
	now.UID = "another"
	g.tracker.due(before.UID, at(0))
	g.Updated(before, now)
	if _, known := g.tracker.of[before.UID]; known || g.tracker.isAlone() {
		t.Error("the one that is gone is remembered")
	}
	if g.tracker.peer != (peer{}) {
		t.Error("an end that was not seen shows nobody at work")
	}
}

// An object that is gone before the last answer of its session is not counted as waiting for ever.
func TestLateReportIsDropped(t *testing.T) {
	t.Parallel()
	for sentence, leaves := range map[string]bool{"it is gone": false, "another has its name": true} {
		o := named("a", true, true)
		w, g, clock, _ := start(t, Config{Mode: ModeFull}, o)
		g.reconcile(t.Context(), o.Key())
		clock.Step(patience)
		w.fail = errors.New("no answer")
		w.wrote = func(o Object) {
			delete(w.objects, o.Key())
			if leaves {
				next := o
				next.UID = "next"
				w.objects[o.Key()] = next
			}
			g.Deleted(o, true)
		}
		g.reconcile(t.Context(), o.Key())
		if waiting := g.recorder.Waiting(); len(waiting) != 0 || len(g.tracker.of) != 0 {
			t.Errorf("%s: %v waits, and %v is remembered", sentence, waiting, g.tracker.of)
		}
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	w := &world{objects: map[string]Object{"ns/a": named("a", true, true)}, used: map[string]bool{"ns/a": true}}
	g := must.Get(New("Thing", w, Config{Mode: ModeFull, Settings: controllers.Settings{Metrics: registry}}))(t)
	t.Cleanup(g.Stop)
	g.reconcile(t.Context(), "ns/a")
	found := map[string]bool{}
	families := must.Get(registry.Gather())(t)
	for _, f := range families {
		found[f.GetName()] = true
	}
	for _, want := range []string{"csi_reclaimer_protection_waiting", "csi_reclaimer_protection_alone",
		"csi_reclaimer_protection_reports_total"} {
		if !found[want] {
			t.Errorf("no figure %s among %v", want, found)
		}
	}
	if second, err := New("Thing", w, Config{Settings: controllers.Settings{Metrics: registry}}); err == nil {
		second.Stop()
		t.Error("registered twice")
	}
}
