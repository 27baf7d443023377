package inuse

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// Each operand of a condition counts by itself.

func TestDueDecisions(t *testing.T) {
	for _, d := range []Decision{
		Step(RemoveFinalizer, ReasonUnused), Step(AddFinalizer, ReasonProtect), Step(ReadUsers, ReasonInUse),
		Later(ReasonLeftToBuiltIn), Rest(reasonReadingUsers), Rest(ReasonAPIReadFailed),
	} {
		if !d.due() {
			t.Errorf("%s because %s is not due", d.Action, d.Reason)
		}
	}
	if Rest(ReasonInUse).due() {
		t.Error("use is due")
	}
}

func TestRemovalDoesNotSettleLaterNeed(t *testing.T) {
	d, settled := Duty{Mode: ModeFull, Removed: true}.Settle(object(false, true))
	if !settled || d.Reason != ReasonProtected {
		t.Errorf("got %s, want %s", d.Reason, ReasonProtected)
	}
}

func TestAnswered(t *testing.T) {
	for _, c := range []struct {
		before, now Object
		want        bool
	}{
		{object(false, false), object(false, true), true},
		{object(false, true), object(false, true), false},
		{object(false, false), object(false, false), false},
		{object(true, true), object(true, false), true},
		{object(true, false), object(true, false), false},
		{object(true, true), object(true, true), false},
	} {
		if got := answered(c.before, c.now); got != c.want {
			t.Errorf("from %+v to %+v: got %v", c.before, c.now, got)
		}
	}
}

func TestDeletionOfUnheldObjectIsNoEvidence(t *testing.T) {
	for name, o := range map[string]Object{"not terminating": object(false, true), "not held": object(true, false)} {
		n := newTracker(ModeFull, patience)
		n.alone()
		if n.gone(o, true, at(1)) || !n.isAlone() {
			t.Errorf("%s: its end counts as others' work", name)
		}
	}
}

func TestUnrelatedChangeKeepsNeed(t *testing.T) {
	n := newTracker(ModeFull, patience)
	n.due("u", at(0))
	n.changed(object(false, false), object(false, false), at(1))
	if d := n.duty(object(false, false), at(30)); !d.Unanswered {
		t.Error("a need counts anew after a change of something else")
	}
	n.changed(object(true, true), object(false, true), at(31))
	if d := n.duty(object(false, true), at(61)); d.Unanswered {
		t.Error("another need counts from when the one before was found")
	}
}

func TestEvidenceOfOthersIsNewsOnce(t *testing.T) {
	n := newTracker(ModeFull, patience)
	need, held := object(false, false), object(false, true)
	if !n.changed(need, held, at(1)) {
		t.Error("the first sight of others is no news")
	}
	if n.changed(need, held, at(2)) {
		t.Error("the second is")
	}
	if !n.alone() || n.alone() {
		t.Error("to be alone is not news once")
	}
	if !n.changed(need, held, at(3)) {
		t.Error("others after none are no news")
	}
}

func TestOnlyAdditionsAreCounted(t *testing.T) {
	n := newTracker(ModeFull, patience)
	n.begin("u", RemoveFinalizer)
	n.end("u", RemoveFinalizer, refused)
	if d := n.duty(object(true, true), at(0)); d.Adds != 0 {
		t.Errorf("%d additions", d.Adds)
	}
	n.begin("u", AddFinalizer)
	n.end("u", AddFinalizer, refused)
	if d := n.duty(object(false, false), at(0)); d.Adds != 0 || d.Added {
		t.Errorf("a refused addition counts: %+v", d)
	}
	n.end("u", AddFinalizer, accepted) // a reply without a write
	n.end("other", AddFinalizer, accepted)
	if d := n.duty(object(false, false), at(0)); d.Added {
		t.Error("an answer after the watch counts")
	}
	n.notDue("other")
	if _, known := n.of["other"]; known {
		t.Error("an object of which nothing is known is remembered")
	}
}

func TestOutcomeOfErrors(t *testing.T) {
	for _, err := range []error{kube.ErrGone, kube.ErrChanged, kube.ErrUndone} {
		if got := outcomeOf(fmt.Errorf("patch: %w", err)); got != refused {
			t.Errorf("%v: outcome %d", err, got)
		}
	}
	if outcomeOf(errors.New("timeout")) != lost || outcomeOf(nil) != accepted {
		t.Error("a lost answer, or one that came")
	}
}

func TestStandsComparesState(t *testing.T) {
	o := object(false, false)
	w, g, _, _ := start(t, Config{}, o)
	if !g.stands(o) {
		t.Fatal("what has not changed does not stand")
	}
	for name, now := range map[string]Object{"protected": object(false, true), "terminating": object(true, false)} {
		w.objects["o"] = now
		if g.stands(o) {
			t.Errorf("stands although it is %s", name)
		}
	}
	clear(w.objects)
	if g.stands(Object{Name: "o"}) {
		t.Error("stands although it is gone")
	}
}

// flaky is a stock with one failing list, whose writes all fail.
type flaky struct {
	*stock
	fails int
}

var errBroken = errors.New("expired")

func (f flaky) List(ctx context.Context) ([]Held, error) {
	all, err := f.stock.List(ctx)
	if f.lists == f.fails {
		return nil, errBroken
	}
	return all, err
}

func (f flaky) Patch(context.Context, Object, Action) (Object, error) { return Object{}, errBroken }

func newFlaky(t *testing.T, fails int) flaky {
	t.Helper()
	s, clock := newStock(t, named("a", false, true), named("bare", false, false))
	f := flaky{s, fails}
	s.g = releasing(t, f, clock)
	return f
}

func TestReleaseFailsWithList(t *testing.T) {
	for _, n := range []int{1, 2} {
		if _, err := newFlaky(t, n).g.Release(t.Context()); !errors.Is(err, errBroken) {
			t.Errorf("list %d fails, and the release returns %v", n, err)
		}
	}
}

func TestFailedWriteHasLostOutcome(t *testing.T) {
	err := newFlaky(t, 0).g.patch(t.Context(), named("a", false, false), AddFinalizer)
	if !errors.Is(err, errBroken) || outcomeOf(err) != lost {
		t.Errorf("got %v", err)
	}
}

func TestHeldByOtherFinalizer(t *testing.T) {
	o := func(finalizers ...string) metav1.Object { return &metav1.ObjectMeta{Finalizers: finalizers} }
	if !HeldOf(o("ours", "other"), "ours").ByOthers || HeldOf(o("ours"), "ours").ByOthers {
		t.Error("whether another finalizer holds it")
	}
}

// ending is a stock whose context ends during one of its lists.
type ending struct {
	*stock
	at  int
	end context.CancelFunc
}

func (e ending) List(ctx context.Context) ([]Held, error) {
	all, err := e.stock.List(ctx)
	if e.lists == e.at {
		e.end()
	}
	return all, err
}

func TestReleaseReturnsContextError(t *testing.T) {
	s, clock := newStock(t, named("a", false, true), named("bare", false, false))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.g = releasing(t, ending{s, 2, cancel}, clock)
	if _, err := s.g.Release(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	s.expect(t)
}

func TestReleaseOfMissingObject(t *testing.T) {
	s, _ := newStock(t, named("a", false, true))
	s.fail = fmt.Errorf("patch: %w", kube.ErrGone)
	if err := s.g.bare(t.Context(), s.objects["ns/a"]); err != nil {
		t.Error(err)
	}
}
