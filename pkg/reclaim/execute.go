package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/outcome"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/loop"
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

// run is the work on one PV from its wake-up to the next wait.
type run struct {
	*Reclaimer
	facts   Snapshot
	reads   int
	secrets map[string]string
	// listed is what a live list of VolumeAttachments showed in this run.
	listed map[string]int
	// gone are siblings that a live read did not find, whatever the cache still shows.
	gone map[string]bool
}

// reclaim works on the PV of a name, and on those that had the name and are gone.
func (r *Reclaimer) reclaim(ctx context.Context, name string) loop.Next {
	var next loop.Next
	for _, e := range r.observer.ended.of(name) {
		if n := r.work(ctx, r.observer.observeEnd(e)); n != (loop.Next{}) {
			next = n
		}
	}
	if facts, found := r.observer.observe(name); found {
		if n := r.work(ctx, facts); n != (loop.Next{}) {
			next = n
		}
	}
	return next
}

// work decides on one PV, carries out the step, and decides again with what was learned,
// until the decision is to wait.
func (r *Reclaimer) work(ctx context.Context, facts Snapshot) loop.Next {
	w := &run{Reclaimer: r, facts: facts}
	logger := klog.FromContext(ctx).WithValues("PV", facts.PV.Name, "PVUID", facts.PV.UID)
	ctx = klog.NewContext(ctx, logger)
	for i := range maxSteps {
		d := Decide(w.facts, r.cfg.Clock.Now())
		logger.V(5).Info("Decided", "action", d.Action, "reason", d.Reason)
		switch {
		case d.Action == Wait:
			return w.wait(ctx, d)
		case r.cfg.DryRun && d.Action.changes():
			r.reports.would(ctx, w.facts.PV, d)
			if w.facts.End.Gone {
				w.forget()
			}
			return loop.Next{}
		case d.Action.protects():
			// Another loop's work: a backlog of these must not delay deletions.
			r.protecting.Add(w.facts.PV.Name)
			return loop.Next{}
		}
		if i == 0 {
			r.inHand.Add(1)
			defer r.inHand.Add(-1)
		}
		if d.Reason == ReasonTooLateToKeep {
			r.reports.aside(ctx, w.facts.PV, d.Reason, "")
		}
		if err := w.carryOut(ctx, d); err != nil {
			return r.afterTrouble(ctx, w.facts.PV, d, err)
		}
		if !w.look() {
			return loop.Next{}
		}
	}
	return r.afterTrouble(ctx, w.facts.PV, Decision{}, because(ReasonUnreadable,
		fmt.Errorf("prepare the deletion of PV %q: reads take longer than %v, so that each is too old when the next is answered", w.facts.PV.Name, liveFor)))
}

// wait ends a run with the reason why nothing more is done now.
func (w *run) wait(ctx context.Context, d Decision) loop.Next {
	w.reports.now(ctx, w.facts.PV, d.Reason, w.detail(d.Reason))
	if d.Over {
		w.forget()
	}
	if d.Timed {
		return w.usual()
	}
	return loop.Next{}
}

// forget ends what is known of a PV that is gone.
func (w *run) forget() {
	w.observer.ended.forget(w.facts.PV)
	w.reports.forget(w.facts.PV.UID)
}

// detail adds to a reason's sentence what is known of this PV.
func (w *run) detail(reason Reason) string {
	more := explainMore(w.facts, reason)
	if reason == ReasonReclaimAbandoned && w.cfg.Clock.Since(w.began) < w.cfg.TakeoverPeriod {
		more += " Or the leader before this one took it off, after it had the volume deleted: it led until a moment ago."
	}
	return more
}

// protect puts our finalizer on one PV, if that is still the decision when there is room
// for such work.
func (r *Reclaimer) protect(ctx context.Context, name string) loop.Next {
	done, err := r.pace.Acquire(ctx)
	if err != nil {
		return loop.Next{} // the program or the lease ended
	}
	defer done()
	facts, found := r.observer.observe(name)
	if !found {
		return loop.Next{}
	}
	d := Decide(facts, r.cfg.Clock.Now())
	if !d.Action.protects() {
		return loop.Next{}
	}
	var drop []string
	if d.Action == AdoptPV {
		drop = []string{CompanionFinalizer}
	}
	if err := r.patch(ctx, facts.PV, []string{facts.Rules.finalizer()}, drop, false); err != nil {
		return r.afterTrouble(ctx, facts.PV, d, because(ReasonUnwritable, err))
	}
	klog.FromContext(ctx).V(4).Info("Put the finalizer on a PV", "PV", name, "reason", d.Reason)
	return loop.Next{}
}

// patch changes the finalizers of a PV, and notes that it was us.
func (r *Reclaimer) patch(ctx context.Context, pv PV, add, drop []string, bound bool) error {
	r.observer.notes.writing(pv.UID, len(add) > 0)
	version, err := r.cluster.patchFinalizers(ctx, pv, add, drop, bound)
	refused := errors.Is(err, kube.ErrChanged) || errors.Is(err, kube.ErrGone) || errors.Is(err, ErrPutBack)
	if refused {
		version = ""
	}
	r.observer.notes.wrote(pv.UID, version, refused)
	return err
}

// carryOut does one step and adds what it learned to the facts.
func (w *run) carryOut(ctx context.Context, d Decision) error {
	switch d.Action {
	case CatchUpAttachments:
		return w.catchUp(ctx)
	case ReadSecrets:
		return w.readSecrets(ctx)
	case ReadClaim:
		return w.readClaim(ctx)
	case ReadSiblings:
		return w.readSiblings(ctx)
	case ReadFamily:
		return w.readFamily(ctx)
	case ReadPV:
		return w.readPV(ctx)
	case DeleteVolume:
		return w.deleteVolume(ctx)
	case DeletePV:
		return w.deletePV(ctx)
	case DropFinalizer:
		return w.dropFinalizer(ctx, d.Reason)
	case ReleasePV:
		return w.releasePV(ctx)
	case Wait, AddFinalizer, AdoptPV:
	}
	return fmt.Errorf("carry out %v on PV %q: no step of a run", d.Action, w.facts.PV.Name)
}

// look brings in what the watches have told since, without giving up what live reads of
// this run have shown. The run is over when they told of the PV's end: what that leaves to
// do is decided from its ending, which also holds what this run has done.
func (w *run) look() (goOn bool) {
	w.facts.Brake = w.observer.brake.State()
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
	w.facts.Done, w.facts.History, w.facts.Contested = noted.done, noted.history, noted.contested
	if w.facts.SiblingsRead == (Read{}) || w.unreadSibling() {
		w.facts.Siblings, w.facts.SiblingsRead = w.siblingsNow(), Read{}
	}
	return known
}

// lookAtEnd brings in what became known of a PV after it was gone.
func (w *run) lookAtEnd() {
	w.facts.Contested = w.observer.notes.inContest()
	w.facts.Siblings = w.observer.siblings(w.facts.PV, "")
	for _, e := range w.observer.ended.of(w.facts.PV.Name) {
		if e.pv.UID == w.facts.PV.UID {
			w.facts.History, w.facts.Done.VolumeDeleted = e.history, e.volumeDeleted
			w.facts.End.Shared = w.facts.End.Shared || e.end.Shared
			return
		}
	}
	// It is another leader's business now.
	w.facts.End.Shared = true
}

// unreadSibling tells whether the cache shows a PV of the volume that was not read live, or
// a later state of one than was read.
func (w *run) unreadSibling() bool {
	for _, now := range w.siblingsNow() {
		known := slices.ContainsFunc(w.facts.Siblings, func(read PV) bool {
			return read.UID == now.UID && !kube.Newer(now.ResourceVersion, read.ResourceVersion)
		})
		if !known {
			return true
		}
	}
	return false
}

func (w *run) siblingsNow() []PV {
	var there []PV
	for _, other := range w.observer.siblings(w.facts.PV, w.facts.PV.Name) {
		if !w.gone[string(other.UID)] {
			there = append(there, other)
		}
	}
	return there
}

func (w *run) deleteVolume(ctx context.Context) error {
	pv := w.facts.PV
	if !w.deleting.take(pv.Handle) {
		return because(ReasonVolumeBusy, errBusy)
	}
	defer w.deleting.giveBack(pv.Handle)
	start := w.cfg.Clock.Now()
	err := w.deleter.DeleteVolume(ctx, pv.Handle, w.secrets)
	if w.cfg.NotFoundIsDeleted && outcome.Of(err) == outcome.NotFound {
		err = nil
	}
	w.metrics.deleted(pv, err, w.cfg.Clock.Since(start))
	if err != nil {
		return because(ReasonVolumeFailedDelete, err)
	}
	if w.facts.Rules.Role == RoleCompanion && w.facts.History.SeenReleased {
		w.metrics.repeated.Inc()
	}
	w.facts.Done = w.observer.note(pv, func(d *Done) { d.VolumeDeleted, d.Claim = true, pv.Claim })
	klog.FromContext(ctx).Info("Deleted a volume", "volumeHandle", pv.Handle, "claim", klog.KRef(pv.Claim.Namespace, pv.Claim.Name), "pvFirst", pv.Terminating)
	if w.facts.End.Gone {
		w.reports.aside(ctx, pv, ReasonUnprotectedReclaim, fmt.Sprintf("Volume %q.", pv.Handle))
	}
	return nil
}

func (w *run) deletePV(ctx context.Context) error {
	err := w.cluster.deletePV(ctx, w.facts.PV)
	if errors.Is(err, kube.ErrGone) {
		return errEnded
	}
	if err != nil {
		return because(ReasonUnwritable, err)
	}
	w.facts.Done = w.observer.note(w.facts.PV, func(d *Done) { d.PVDeleted = true })
	return nil
}

func (w *run) dropFinalizer(ctx context.Context, why Reason) error {
	err := w.patch(ctx, w.facts.PV, nil, w.facts.Rules.finalizers(w.facts.PV), true)
	switch {
	case errors.Is(err, kube.ErrGone):
		return errEnded
	case err != nil:
		return because(ReasonUnwritable, err)
	}
	klog.FromContext(ctx).Info("Took the finalizer off a PV whose volume is kept", "reason", why)
	// What the cache shows is older than this write; its own event wakes the PV again.
	return errEnded
}

func (w *run) releasePV(ctx context.Context) error {
	// By UID alone: the volume is gone, whatever else changed on the PV.
	err := w.patch(ctx, w.facts.PV, nil, w.facts.Rules.finalizers(w.facts.PV), false)
	if err != nil && !errors.Is(err, kube.ErrGone) {
		return because(ReasonUnwritable, err)
	}
	w.facts.Done = w.observer.note(w.facts.PV, func(d *Done) { d.Released = true })
	return errEnded
}

// afterTrouble says when to try again, by what the error means, and reports it.
func (r *Reclaimer) afterTrouble(ctx context.Context, pv PV, d Decision, err error) loop.Next {
	switch {
	case errors.Is(err, errEnded):
		return loop.Next{}
	case ctx.Err() != nil:
		// The lease or the program ended: the next leader goes on.
		return loop.Next{}
	case errors.Is(err, kube.ErrGone):
		return loop.Next{}
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
	class := outcome.Uncertain
	if d.Action == DeleteVolume {
		class = outcome.Of(err)
	}
	switch {
	case errors.Is(err, errBusy), class == outcome.InProgress:
		return r.soon()
	case errors.Is(err, errBehind):
		r.reports.failure(ctx, pv, reason, err, false)
		return r.soon()
	case class == outcome.Refused, class == outcome.NotFound, errors.Is(err, ErrPutBack), errors.Is(err, errSecretUnclear):
		// A person has to mend it: each new message is told.
		r.reports.failure(ctx, pv, reason, err, true)
		return r.slow()
	default:
		r.reports.failure(ctx, pv, reason, err, false)
		return r.usual()
	}
}
