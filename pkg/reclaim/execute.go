package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// maxSteps bounds the steps of one run. A deletion takes eight; only reads that keep
// growing too old before the next is answered take more.
const maxSteps = 24

// errEnded ends a run without complaint: there is nothing left to decide on.
var errEnded = errors.New("nothing left to do")

// errBehind: the watch has not delivered all that the API server has, and the list is too
// long to be read in one page.
var errBehind = errors.New("the watch is behind the API server")

// trouble is an error with what it means for the PV it befell.
type trouble struct {
	reason Reason
	err    error
}

func (t *trouble) Error() string { return t.err.Error() }
func (t *trouble) Unwrap() error { return t.err }

func because(reason Reason, err error) error {
	if err == nil {
		return nil
	}
	return &trouble{reason, err}
}

// run is the work on one PV from its wake-up to the next wait: it decides, asks, learns from
// the answer, and decides again with what was learned.
type run struct {
	*Reclaimer
	facts   Snapshot
	steps   int
	reads   int
	secrets map[string]string
	// listed is what a live list of VolumeAttachments showed in this run.
	listed map[string]int
	// gone are siblings that a live read did not find, whatever the cache still shows.
	gone []types.UID
	// taken is the handle of the volume that is being deleted.
	taken string
}

// reclaim works on the PV of a name, and on those that had the name and are gone.
func (r *Reclaimer) reclaim(ctx context.Context, name string) controller.Next {
	var next controller.Next
	defer r.traces.end(name, r.observer.notes.forgotten)
	for _, m := range r.observer.matters(name) {
		facts, found := r.observer.observe(m)
		if !found {
			continue
		}
		if n := r.work(ctx, facts); n != (controller.Next{}) {
			next = n
		}
	}
	return next
}

// work carries a run on one PV to its end.
func (r *Reclaimer) work(ctx context.Context, facts Snapshot) controller.Next {
	w := &run{Reclaimer: r, facts: facts}
	defer w.end()
	logger := klog.FromContext(ctx).WithValues("PV", facts.PV.Name, "PVUID", facts.PV.UID)
	ctx = r.traces.in(klog.NewContext(ctx, logger), facts.PV)
	defer r.traces.end(facts.PV.Name, func(uid types.UID) bool { return uid == facts.PV.UID && !w.facts.underway() })
	c, next, over := w.next(ctx)
	if !over {
		r.inHand.Add(1)
		defer r.inHand.Add(-1)
		if c.Action != DropFinalizer {
			ctx = r.traces.resume(ctx, facts.PV)
		}
	}
	for !over {
		c, next, over = w.goOn(ctx, c, r.traces.call(ctx, c, r.ask))
	}
	return next
}

// next decides and returns what to ask. The run is over when nothing is to be asked now.
func (w *run) next(ctx context.Context) (_ call, _ controller.Next, over bool) {
	d := Decide(w.facts, w.cfg.Clock.Now())
	klog.FromContext(ctx).V(5).Info("Decided", "action", d.Action, "reason", d.Reason)
	traceDecision(ctx, d.Reason)
	switch {
	case d.Action == Wait:
		return call{}, w.wait(ctx, d), true
	case w.cfg.DryRun && d.Action.changes():
		w.reports.would(ctx, w.facts.PV, d)
		if w.facts.End.Gone {
			w.forget()
		}
		return call{}, controller.Next{}, true
	case d.Action.protects():
		// Another loop's work: a backlog of these must not delay deletions.
		w.protectSoon(w.facts.PV.Name)
		return call{}, controller.Next{}, true
	case w.steps == maxSteps:
		return call{}, w.afterTrouble(ctx, w.facts.PV, d, because(ReasonUnreadable,
			fmt.Errorf("prepare the deletion of PV %q: reads take longer than %v, so that each is too old when the next is answered", w.facts.PV.Name, liveFor))), true
	}
	w.steps++
	if d.Reason == ReasonTooLateToKeep {
		w.reports.aside(ctx, w.facts.PV, d.Reason, "")
	}
	c, err := w.begin(d)
	if err != nil {
		return call{}, w.afterTrouble(ctx, w.facts.PV, d, err), true
	}
	return c, controller.Next{}, false
}

// goOn learns from an answer and returns what to ask next.
func (w *run) goOn(ctx context.Context, c call, a answer) (_ call, _ controller.Next, over bool) {
	if err := w.learn(ctx, c, a); err != nil {
		return call{}, w.afterTrouble(ctx, c.pv, c.Decision, err), true
	}
	if !w.look() {
		return call{}, controller.Next{}, true
	}
	return w.next(ctx)
}

// wait ends a run with the reason why nothing more is done now.
func (w *run) wait(ctx context.Context, d Decision) controller.Next {
	if d.Reason == ReasonNotLeading {
		return w.usual() // what was reported before stays as it is
	}
	w.reports.now(ctx, w.facts.PV, d.Reason, w.detail(d.Reason))
	if d.Over {
		w.forget()
	}
	if d.Timed {
		return w.usual()
	}
	return controller.Next{}
}

// forget ends what is known of a PV that is gone.
func (w *run) forget() {
	w.observer.notes.forget(&w.facts.PV)
	w.reports.Forget(w.facts.PV.UID)
}

// detail adds to a reason's sentence what is known of this PV.
func (w *run) detail(reason Reason) string {
	more := explainMore(w.facts, reason)
	if reason == ReasonClaimNamesPV {
		more += " " + bindOrDelete(w.facts)
	}
	if reason == ReasonReclaimAbandoned && w.cfg.Clock.Since(w.began) < w.cfg.TakeoverPeriod {
		more += " Or the leader before this one took it off, after it had the volume deleted: it led until a moment ago."
	}
	return more
}

// protect puts our finalizer on one PV, if that is still the decision when there is room
// for such work.
func (r *Reclaimer) protect(ctx context.Context, name string) controller.Next {
	done, err := r.pace.Acquire(ctx)
	if err != nil {
		return controller.Next{} // the program or the lease ended
	}
	defer done()
	c, needed := r.beginProtect(name)
	if !needed {
		return controller.Next{}
	}
	return r.endProtect(ctx, c, r.ask(ctx, c))
}

// beginProtect settles what is asked to protect the PV of a name.
func (r *Reclaimer) beginProtect(name string) (_ call, needed bool) {
	facts, found := r.observer.observePV(name)
	if !found {
		return call{}, false
	}
	d := Decide(facts, r.cfg.Clock.Now())
	if !d.Action.protects() {
		return call{}, false
	}
	c := call{Decision: d, pv: facts.PV, add: []string{facts.Rules.finalizer()}}
	if d.Action == AdoptPV {
		c.drop = []string{volume.CompanionFinalizer}
	}
	r.observer.notes.begin(c)
	return c, true
}

// endProtect notes what came of it.
func (r *Reclaimer) endProtect(ctx context.Context, c call, a answer) controller.Next {
	r.observer.notes.end(c, a)
	if a.err != nil {
		return r.afterTrouble(ctx, c.pv, c.Decision, because(ReasonUnwritable, a.err))
	}
	klog.FromContext(ctx).V(4).Info("Put the finalizer on a PV", "PV", c.pv.Name, "reason", c.Reason)
	return controller.Next{}
}

// look brings in what the watches have told since, without giving up what live reads of
// this run have shown. The run is over when they told of the PV's end: what that leaves to
// do is another matter, with the same notes.
func (w *run) look() (goOn bool) {
	w.facts.Brake, w.facts.Leading = w.observer.brake.State(), holds(w.observer.lease)
	if w.facts.End.Gone {
		w.lookAtEnd()
	} else if !w.lookAtPV() {
		return false
	}
	w.facts.Attachments = w.observer.attachmentsOf(w.facts)
	if w.listed != nil {
		seen := w.listed[w.facts.PV.Name]
		for _, other := range w.facts.Siblings {
			seen += w.listed[other.Name]
		}
		w.facts.Attachments = max(w.facts.Attachments, seen)
	}
	return true
}

// lookAtPV brings in what became known of a PV.
func (w *run) lookAtPV() (known bool) {
	noted, known := w.observer.notes.of(w.facts.PV)
	w.facts.Done, w.facts.History, w.facts.Contested, w.facts.DriverContested = noted.done, noted.history, noted.contested, noted.driver
	if w.facts.SiblingsRead == (Read{}) || w.unreadSibling() {
		w.facts.Siblings, w.facts.SiblingsRead = w.siblingsNow(), Read{}
	}
	return known
}

// lookAtEnd brings in what became known of a PV after it was gone.
func (w *run) lookAtEnd() {
	w.facts.Siblings = w.observer.siblings(w.facts.PV, "")
	noted, over, known := w.observer.notes.ofEnd(w.facts.PV.UID)
	w.facts.Contested, w.facts.DriverContested = noted.contested, noted.driver
	if known {
		w.facts.Done, w.facts.History = noted.done, noted.history
	}
	// What is not known any more is another leader's business now.
	w.facts.End.Shared = w.facts.End.Shared || over.end.Shared || !known
}

// unreadSibling tells whether the cache shows a PV of the volume that was not read live, or
// a later state of one than was read.
func (w *run) unreadSibling() bool {
	for _, now := range w.siblingsNow() {
		known := slices.ContainsFunc(w.facts.Siblings, func(read volume.PV) bool {
			return read.UID == now.UID && !kube.Newer(now.ResourceVersion, read.ResourceVersion)
		})
		if !known {
			return true
		}
	}
	return false
}

func (w *run) siblingsNow() []volume.PV {
	var there []volume.PV
	for _, other := range w.observer.siblings(w.facts.PV, w.facts.PV.Name) {
		if !slices.Contains(w.gone, other.UID) {
			there = append(there, other)
		}
	}
	return there
}

// afterTrouble says when to try again, by what the error means, and reports it.
func (r *Reclaimer) afterTrouble(ctx context.Context, pv volume.PV, d Decision, err error) controller.Next {
	switch {
	case errors.Is(err, errEnded):
		return controller.Next{}
	case errors.Is(err, ErrLeaseExpired):
		return r.usual()
	case ctx.Err() != nil:
		// The lease or the program ended: the next leader goes on.
		return controller.Next{}
	case errors.Is(err, kube.ErrGone):
		return controller.Next{}
	case errors.Is(err, kube.ErrChanged):
		// Not worth a word: the change's own event wakes the PV, the delay is for the
		// case that it came before the answer.
		return r.soon()
	}
	reason := ReasonUnreadable
	var t *trouble
	if errors.As(err, &t) {
		reason = t.reason
	}
	class := errclass.Uncertain
	if d.Action == DeleteVolume {
		class = errclass.Of(err)
	}
	switch {
	case errors.Is(err, errBusy), class == errclass.InProgress:
		return r.soon()
	case errors.Is(err, errBehind):
		r.reports.failure(ctx, pv, reason, err, false)
		return r.soon()
	case class == errclass.Refused, class == errclass.NotFound, errors.Is(err, ErrPutBack), errors.Is(err, errSecretUnclear):
		// A person has to mend it: each new message is told.
		r.reports.failure(ctx, pv, reason, err, true)
		return r.slow()
	default:
		r.reports.failure(ctx, pv, reason, err, false)
		return r.usual()
	}
}
