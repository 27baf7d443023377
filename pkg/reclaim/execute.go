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

// reclaim decides on one PV, carries out the step, and decides again with what was
// learned, until the decision is to wait.
func (r *Reclaimer) reclaim(ctx context.Context, name string) loop.Next {
	facts, found := r.observer.observe(name)
	if !found {
		return loop.Next{}
	}
	w := &run{Reclaimer: r, facts: facts}
	logger := klog.FromContext(ctx).WithValues("PV", name, "PVUID", facts.PV.UID)
	ctx = klog.NewContext(ctx, logger)
	for range maxSteps {
		d := Decide(w.facts, r.cfg.Clock.Now())
		logger.V(5).Info("Decided", "action", d.Action, "reason", d.Reason)
		switch {
		case d.Action == Wait && d.Timed:
			r.reports.now(ctx, w.facts.PV, d.Reason, "")
			return r.usual()
		case d.Action == Wait:
			r.reports.now(ctx, w.facts.PV, d.Reason, "")
			return loop.Next{}
		case d.Action == AddFinalizer:
			// Another loop's work: a backlog of these must not delay deletions.
			r.protecting.Add(name)
			return loop.Next{}
		}
		if err := w.carryOut(ctx, d); err != nil {
			return r.afterTrouble(ctx, w.facts.PV, d, err)
		}
		w.look()
	}
	return r.afterTrouble(ctx, w.facts.PV, Decision{}, because(ReasonUnreadable,
		fmt.Errorf("prepare the deletion of PV %q: reads take longer than %v, so that each is too old when the next is answered", name, liveFor)))
}

// protect puts our finalizer on one PV, if that is still the decision.
func (r *Reclaimer) protect(ctx context.Context, name string) loop.Next {
	facts, found := r.observer.observe(name)
	if !found {
		return loop.Next{}
	}
	d := Decide(facts, r.cfg.Clock.Now())
	if d.Action != AddFinalizer {
		return loop.Next{}
	}
	if err := r.cluster.addFinalizer(ctx, facts.PV); err != nil {
		return r.afterTrouble(ctx, facts.PV, d, because(ReasonUnwritable, err))
	}
	klog.FromContext(ctx).V(4).Info("Put the finalizer on a PV", "PV", name, "reason", d.Reason)
	return loop.Next{}
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
	case Wait, AddFinalizer:
	}
	return fmt.Errorf("carry out %v on PV %q: no step of a run", d.Action, w.facts.PV.Name)
}

// look brings in what the watches have told since, without giving up what live reads of
// this run have shown.
func (w *run) look() {
	w.facts.Done = w.observer.notes.of(w.facts.PV.UID)
	if w.facts.SiblingsRead == (Read{}) || w.unreadSibling() {
		w.facts.Siblings, w.facts.SiblingsRead = w.siblingsNow(), Read{}
	}
	w.facts.Attachments = w.observer.attachmentsOf(w.facts)
	if w.listed != nil {
		seen := w.listed[w.facts.PV.Name]
		for _, other := range w.facts.Siblings {
			seen += w.listed[other.Name]
		}
		w.facts.Attachments = max(w.facts.Attachments, seen)
	}
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
	for _, other := range w.observer.siblings(w.facts.PV) {
		if !w.gone[string(other.UID)] {
			there = append(there, other)
		}
	}
	return there
}

func (w *run) catchUp(ctx context.Context) error {
	list, err := w.cluster.listAttachments(ctx)
	if err != nil {
		return because(ReasonUnreadable, err)
	}
	if list.complete {
		w.listed = list.ofPV
	} else if !w.observer.attachmentWatch.Reached(list.version) {
		return because(ReasonCatchingUp, errors.New("the watch of VolumeAttachments is behind the API server"))
	}
	w.facts.AttachmentsCurrent = true
	return nil
}

func (w *run) readSecrets(ctx context.Context) error {
	ref := w.facts.PV.DeletionSecret
	if ref == (SecretRef{}) {
		w.facts.SecretsRead = true
		return nil
	}
	secrets, found, err := w.cluster.readSecret(ctx, ref)
	if err != nil {
		return because(ReasonUnreadable, err)
	}
	if !found {
		w.reports.aside(ctx, w.facts.PV, ReasonSecretNotFound, fmt.Sprintf("Secret %s/%s", ref.Namespace, ref.Name))
	}
	w.secrets, w.facts.SecretsRead = secrets, true
	return nil
}

// nextRead is called before a live read is sent.
func (w *run) nextRead() Read {
	w.reads++
	return Read{Sent: w.cfg.Clock.Now(), Order: w.reads}
}

func (w *run) readClaim(ctx context.Context) error {
	read := w.nextRead()
	claim, err := w.cluster.readClaim(ctx, w.facts.PV.Claim)
	if err != nil {
		return because(ReasonUnreadable, err)
	}
	claim.Read = read
	w.facts.Claim = claim
	return nil
}

func (w *run) readSiblings(ctx context.Context) error {
	read := w.nextRead()
	var there []PV
	for _, cached := range w.facts.Siblings {
		other, found, err := w.cluster.readPV(ctx, cached.Name)
		switch {
		case err != nil:
			return because(ReasonUnreadable, err)
		case !found || other.UID != cached.UID:
			if w.gone == nil {
				w.gone = map[string]bool{}
			}
			w.gone[string(cached.UID)] = true
		default:
			there = append(there, other)
		}
	}
	w.facts.Siblings, w.facts.SiblingsRead = there, read
	return nil
}

func (w *run) readPV(ctx context.Context) error {
	read := w.nextRead()
	pv, found, err := w.cluster.readPV(ctx, w.facts.PV.Name)
	if err != nil {
		return because(ReasonUnreadable, err)
	}
	if !found || pv.UID != w.facts.PV.UID {
		return errEnded
	}
	w.facts.PV, w.facts.PVRead = pv, read
	return nil
}

func (w *run) deleteVolume(ctx context.Context) error {
	pv := w.facts.PV
	start := w.cfg.Clock.Now()
	err := w.deleter.DeleteVolume(ctx, pv.Handle, w.secrets)
	w.metrics.deleted(pv, err, w.cfg.Clock.Since(start))
	if err != nil {
		return because(ReasonVolumeFailedDelete, err)
	}
	w.facts.Done = w.observer.note(pv, func(d *Done) { d.VolumeDeleted = true })
	klog.FromContext(ctx).Info("Deleted a volume", "volumeHandle", pv.Handle, "claim", klog.KRef(pv.Claim.Namespace, pv.Claim.Name), "pvFirst", pv.Terminating)
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
	err := w.cluster.dropFinalizers(ctx, w.facts.PV)
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
	err := w.cluster.releasePV(ctx, w.facts.PV)
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
	switch class {
	case outcome.InProgress:
		return r.soon()
	case outcome.Refused, outcome.NotFound:
		// What the driver says is what a person has to mend: each new message is told.
		r.reports.failure(ctx, pv, reason, err, true)
		return r.slow()
	default:
		r.reports.failure(ctx, pv, reason, err, false)
		return r.usual()
	}
}
