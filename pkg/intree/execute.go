package intree

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// maxSteps bounds the steps of one run: at most five come before a write and two after it. Only reads
// that keep growing too old before the next is answered take more.
const maxSteps = 16

// errEnded ends a run without complaint: there is nothing left to decide on.
var errEnded = errors.New("nothing left to do")

// errSlow: every read is too old when the next is answered.
var errSlow = fmt.Errorf("reads take longer than %v, so that each is too old when the next is answered", liveFor)

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

// run is the work on one PV from its wake-up to the next wait: it decides, asks, learns from the
// answer, and decides again with what was learned.
type run struct {
	*Controller
	facts Snapshot
	reads int
	// object is the PV as it was read last.
	object *v1.PersistentVolume
}

// reconcile works on the PV of a name.
func (c *Controller) reconcile(ctx context.Context, name string) controller.Next {
	w, found := c.begin(name)
	if !found {
		return controller.Next{}
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("PV", name))
	d, err := w.carryOut(ctx)
	return w.ended(ctx, d, err)
}

// begin returns the run on the PV of a name, if there is something to decide on.
func (c *Controller) begin(name string) (w *run, found bool) {
	facts, found := c.observer.observe(name)
	if !found {
		return nil, false
	}
	facts.LeftSince = c.observer.notes.left(facts.PV, facts.Manages == ManagesOther && facts.PV.left(), c.cfg.Clock.Now())
	return &run{Controller: c, facts: facts}, true
}

// ended tells people why the run has ended, and says when there is to be another.
func (w *run) ended(ctx context.Context, d Decision, err error) controller.Next {
	switch {
	case err != nil:
		return w.afterTrouble(ctx, w.subject(), err)
	case d.Action != Wait: // a dry run ends before its first write
		w.reports.would(ctx, w.subject(), d)
		return controller.Next{}
	}
	reason := w.told(d.Reason)
	w.reports.now(ctx, w.subject(), reason, w.detail(reason))
	switch {
	case d.After > 0:
		// A loop's delay may be a fifth shorter than asked for.
		return controller.Next{Backoff: controller.Backoff{First: d.After + d.After/4, Max: d.After + d.After/4}}
	case d.Timed:
		return w.usual()
	}
	return controller.Next{}
}

// carryOut takes steps until there is nothing to do now, and returns why.
func (w *run) carryOut(ctx context.Context) (Decision, error) {
	for range maxSteps {
		d := Decide(w.facts, w.cfg.Clock.Now())
		klog.FromContext(ctx).V(5).Info("Decided", "action", d.Action, "reason", d.Reason)
		if d.Action == Wait || w.cfg.DryRun && d.Action.changes() {
			return d, nil
		}
		if d.Reason == ReasonTooLateToKeep {
			w.reports.aside(ctx, w.facts.PV, d.Reason)
		}
		if err := w.take(ctx, d); err != nil {
			return d, err
		}
	}
	return Decision{}, because(ReasonUnreadable, fmt.Errorf("prepare the deletion of the volume of PV %q: %w", w.subject().Name, errSlow))
}

// subject is the PV that the run is about.
func (w *run) subject() PV {
	if w.facts.PV.UID == "" {
		return w.facts.Twin
	}
	return w.facts.PV
}

// told returns the reason that people are told. While one try follows another, it is that tries fail: it is
// told once, not with each.
func (w *run) told(reason Reason) Reason {
	switch reason {
	case ReasonTwinMade, ReasonTwinArmed, ReasonTwinEnding:
		if w.facts.Failure != (Failure{}) {
			return w.facts.Failure.reason()
		}
	default:
	}
	return reason
}

// detail adds to a reason's sentence what is known of this PV.
func (w *run) detail(reason Reason) string {
	switch reason {
	case ReasonVolumeFailedDelete, ReasonPluginGone:
		if w.facts.Failure.Message != "" {
			return w.facts.Failure.Message
		}
		return w.facts.PV.Message
	case ReasonTwinNameTaken, ReasonTwinChanged:
		return fmt.Sprintf("It is PV %s.", w.facts.Twin.Name)
	case ReasonHeld:
		return w.facts.PV.HeldBecause
	case ReasonClaimNamesPV:
		return fmt.Sprintf("It is claim %s/%s with UID %s. To bind the claim to the PV: %s. To have the volume deleted, delete the claim.",
			w.facts.PV.Claim.Namespace, w.facts.PV.Claim.Name, w.facts.Claim.UID, reclaim.BindCommand(w.facts.PV.Name, w.facts.Claim.UID))
	default:
		return ""
	}
}

// take takes one step and learns from it.
func (w *run) take(ctx context.Context, d Decision) error {
	switch d.Action {
	case ReadClaim, ReadAttachments, ReadSiblings, ReadPV, ReadOriginal:
		return because(ReasonUnreadable, w.look(ctx, d.Action))
	case MakeTwin:
		return because(ReasonUnwritable, w.makeTwin(ctx))
	case ArmTwin:
		return because(ReasonUnwritable, w.setPolicy(ctx, v1.PersistentVolumeReclaimDelete))
	case DisarmTwin:
		return because(ReasonUnwritable, w.setPolicy(ctx, v1.PersistentVolumeReclaimRetain))
	case DeleteTwin:
		return because(ReasonUnwritable, w.deleteTwin(ctx, d.Reason))
	case FreeTwin:
		return because(ReasonUnwritable, w.freeTwin(ctx))
	case Protect, DropGuard, ReleasePV:
		return because(ReasonUnwritable, w.patch(ctx, d))
	case Wait:
	}
	return errEnded
}

// next numbers a live read.
func (w *run) next() Read {
	w.reads++
	return Read{Sent: w.cfg.Clock.Now(), Order: w.reads}
}

// look makes one live read.
func (w *run) look(ctx context.Context, a Action) error {
	read := w.next()
	switch a {
	case ReadClaim:
		claim, err := w.cluster.readClaim(ctx, w.facts.PV.Claim)
		if err != nil {
			return err
		}
		claim.Read = read
		w.facts.Claim = claim
	case ReadAttachments:
		count, err := w.cluster.countAttachments(ctx, w.names())
		if err != nil {
			return err
		}
		w.facts.Attachments = AttachmentFacts{Read: read, Count: count}
	case ReadSiblings:
		return w.readSiblings(ctx, read)
	case ReadOriginal:
		o, found, err := w.cluster.readPV(ctx, w.facts.Twin.Original)
		if err != nil {
			return err
		}
		w.facts.Original = OriginalFacts{Read: read, Gone: !found || o.UID != w.facts.Twin.TwinOf}
	default:
		return w.readPV(ctx, read)
	}
	return nil
}

func (w *run) readPV(ctx context.Context, read Read) error {
	o, found, err := w.cluster.readPV(ctx, w.facts.PV.Name)
	switch {
	case err != nil:
		return err
	case !found || o.UID != w.facts.PV.UID:
		return errEnded
	}
	w.object, w.facts.PV, w.facts.PVRead = o, PVOf(o), read
	return nil
}

// readSiblings reads the PVs of the volume that are known; those that are gone are none.
func (w *run) readSiblings(ctx context.Context, read Read) error {
	var there []PV
	for _, known := range w.facts.Siblings {
		o, found, err := w.cluster.readPV(ctx, known.Name)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		if other := PVOf(o); other.Source == w.facts.PV.Source {
			there = append(there, other)
		}
	}
	w.facts.Siblings, w.facts.SiblingsRead = there, read
	return nil
}

// names returns the names under which the volume may be attached.
func (w *run) names() []string {
	names := []string{w.facts.PV.Name, TwinName(w.facts.PV.Name)}
	for _, other := range w.facts.Siblings {
		names = append(names, other.Name)
	}
	return names
}

// makeTwin creates the twin from the PV as it was just read. Where there is a PV of that name that the
// watch does not show, it is judged next; before it is armed, all is looked at a second time, as with any
// other.
func (w *run) makeTwin(ctx context.Context) error {
	twin := newTwin(w.object)
	o, err := w.cluster.createPV(ctx, twin)
	if errors.Is(err, kube.ErrChanged) {
		w.facts.Claim, w.facts.Attachments, w.facts.SiblingsRead, w.facts.PVRead = ClaimFacts{}, AttachmentFacts{}, Read{}, Read{}
		var found bool
		if o, found, err = w.cluster.readPV(ctx, twin.Name); err == nil && !found {
			return kube.ErrChanged
		}
	}
	if err != nil {
		return err
	}
	w.twinIs(o)
	return nil
}

func (w *run) setPolicy(ctx context.Context, policy v1.PersistentVolumeReclaimPolicy) error {
	o, err := w.cluster.setPolicy(ctx, w.facts.Twin, policy)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Turned the reclaim policy of a twin", "twin", o.Name, "policy", policy)
	w.twinIs(o)
	return nil
}

// twinIs brings in the twin as a write of ours has made it.
func (w *run) twinIs(o *v1.PersistentVolume) {
	w.facts.Twin, w.facts.TwinFound = PVOf(o), true
	w.observer.notes.write(w.facts.Twin, w.observer.pvs.Reached)
}

// deleteTwin ends a twin. One that failed begins the delay until the next try.
func (w *run) deleteTwin(ctx context.Context, why Reason) error {
	twin := w.facts.Twin
	if err := w.cluster.deletePV(ctx, twin); err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Deleted a twin", "twin", twin.Name, "reason", why)
	w.observer.notes.accepted(twin.UID)
	if twin.Phase == volume.PhaseFailed && w.facts.PV.UID != "" {
		first, most := w.cfg.RetryStart, w.cfg.RetryMax
		if twin.PluginGone {
			first, most = pluginGoneDelay*w.cfg.RetryMax, pluginGoneDelay*w.cfg.RetryMax
		}
		w.observer.notes.fail(w.facts.PV.UID, twin, w.cfg.Clock.Now(), first, most)
		_, w.facts.Failure = w.observer.notes.of(w.facts.PV.UID)
	}
	w.facts.Twin.Terminating = true
	return nil
}

// freeTwin takes the finalizer off the twin, which then goes.
func (w *run) freeTwin(ctx context.Context) error {
	o, err := w.cluster.patchFinalizers(ctx, w.facts.Twin, nil, []string{Finalizer}, true)
	if err != nil {
		return err
	}
	w.twinIs(o)
	return errEnded
}

// patch changes the finalizers of the PV.
func (w *run) patch(ctx context.Context, d Decision) error {
	var add []string
	drop, bound := w.facts.ours(), true
	switch d.Action {
	case Protect:
		add, drop = w.facts.protection()
	case ReleasePV:
		// By UID alone: the volume is gone, whatever else changed on the PV.
		bound = false
	default:
	}
	o, err := w.cluster.patchFinalizers(ctx, w.facts.PV, add, drop, bound)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Changed the finalizers of a PV", "add", add, "drop", drop, "reason", d.Reason)
	w.observer.notes.write(PVOf(o), w.observer.pvs.Reached)
	if d.Action == ReleasePV {
		w.metrics.deleted.Inc()
	}
	// What follows begins with the write's own event.
	return errEnded
}

// pluginGoneDelay is how many times the longest usual delay lies between tries while there is no
// plugin: only another kube-controller-manager can have one.
const pluginGoneDelay = 12

// afterTrouble says when to try again, by what the error means, and reports it.
func (c *Controller) afterTrouble(ctx context.Context, pv PV, err error) controller.Next {
	switch {
	case errors.Is(err, errEnded), ctx.Err() != nil, errors.Is(err, kube.ErrGone):
		return controller.Next{}
	case errors.Is(err, kube.ErrChanged):
		// Not worth a word: the change's own event wakes the PV, the delay is for the case that it
		// came before the answer.
		return controller.Next{Backoff: controller.Backoff{First: 200 * time.Millisecond, Max: 5 * time.Second}}
	}
	reason := ReasonUnreadable
	var t *trouble
	if errors.As(err, &t) {
		reason = t.reason
	}
	c.reports.failure(ctx, pv, reason, err)
	return c.usual()
}

func (c *Controller) usual() controller.Next {
	return controller.Next{Backoff: controller.Backoff{First: c.cfg.RetryStart, Max: c.cfg.RetryMax}}
}
