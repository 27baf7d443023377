package provision

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	libcontroller "sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/provisioning"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/caches"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
)

// provisioner is what the library calls. It may call for several claims at once, never
// for one claim twice at once.
type provisioner struct{ *Controller }

var (
	_ libcontroller.Qualifier        = provisioner{}
	_ libcontroller.BlockProvisioner = provisioner{}

	errStopping = errors.New("the provisioner is being stopped")
)

// SupportsBlock leaves it to the driver to refuse a block volume, as the stock provisioner does.
func (provisioner) SupportsBlock(context.Context) bool { return true }

// Delete never deletes: PVs and their volumes are the matter of package reclaim, and the volumes
// that have no PV that of the engine. The library calls it where it takes a PV for one that could
// not be stored, on the strength of answers that were lost.
func (provisioner) Delete(context.Context, *v1.PersistentVolume) error {
	return &libcontroller.IgnoredError{Reason: "volumes are deleted elsewhere"}
}

// ShouldProvision reports whether Provision is to be called for a claim now.
func (l provisioner) ShouldProvision(ctx context.Context, claim *v1.PersistentVolumeClaim) bool {
	if !l.gate.BeginTurn(claim.UID) || !l.wants(l.lifetime(ctx), claim) {
		return false
	}
	name := l.nameOf(claim.UID)
	state := l.log.State(name)
	early := l.tracker.due(name, l.cfg.Clock.Now()) > 0 || state != inflight.Absent && state != inflight.Removing
	if early {
		// The library forgets the claim now, and its queue may have merged the delay that it asked for with a
		// shorter one. Our queue brings the claim back.
		l.tracker.askedEarly(name)
		l.claimed.Store(name, keyOf(claim))
		l.unsettled.Add(name)
	}
	return !early
}

// wants reports whether a claim is to get its volume here and now. It repeats what the library checks later.
func (p *Controller) wants(ctx context.Context, claim *v1.PersistentVolumeClaim) bool {
	class := p.classOf(claim)
	switch {
	case claim.DeletionTimestamp != nil, claim.Spec.VolumeName != "", !p.ours(claim), class == nil:
		return false
	case p.at(claim) == provisioning.NodeElsewhere, late(class) && claim.Annotations[caches.AnnSelectedNode] == "":
		return false
	}
	if q, ok := p.requests.(Qualifier); ok {
		if err := q.Ignores(claim, class); err != nil {
			p.announce(ctx, claim, err)
			return false
		}
	}
	if p.at(claim) == provisioning.NodeNone {
		p.selecting.Add(keyOf(claim))
		return false
	}
	return true
}

// Provision makes the claim's volume and its PV, and returns the PV as it is stored.
func (l provisioner) Provision(ctx context.Context, options libcontroller.ProvisionOptions) (*v1.PersistentVolume,
	libcontroller.ProvisioningState, error) {
	if !l.gate.Open() {
		return nil, libcontroller.ProvisioningNoChange, errStopping
	}
	ctx = l.lifetime(ctx)
	name := l.nameOf(options.PVC.UID)
	t, giveBack, err := l.tracker.take(ctx, name)
	if err != nil {
		return nil, libcontroller.ProvisioningNoChange, err
	}
	defer giveBack()
	w := &run{Controller: l.Controller, name: name, claimKey: keyOf(options.PVC), track: t,
		wanted: &wanted{class: options.StorageClass, node: options.SelectedNode}}
	d, err := w.work(ctx)
	return w.provisioned(ctx, d, err)
}

// provisioned says to the library what came of a run.
func (w *run) provisioned(ctx context.Context, d provisioning.Decision, err error) (*v1.PersistentVolume,
	libcontroller.ProvisioningState, error) {
	stored := w.track.stored
	switch {
	case err != nil && request.RemediationOf(err) == request.RemediationIgnore:
		return nil, libcontroller.ProvisioningFinished, &libcontroller.IgnoredError{Reason: err.Error()}
	case err == nil && d.Done:
		return nil, libcontroller.ProvisioningFinished, &libcontroller.IgnoredError{Reason: d.Reason.Sentence()}
	case err == nil && (stored == nil || d.Action != provisioning.CloseEntry && d.Reason != provisioning.ReasonNotQuiet):
		err = reasons.Because(d.Reason, errors.New(d.Reason.Sentence()))
	}
	if err != nil {
		return nil, w.failedState(), w.pause(ctx, err)
	}
	w.tracker.freely(w.name)
	if d.Reason == provisioning.ReasonNotQuiet {
		w.unsettled.Add(w.name)
	}
	return stored.DeepCopy(), libcontroller.ProvisioningFinished, nil
}

// failedState says to the library what a failed try has left. It is never ProvisioningInBackground: what is in
// flight is the matter of our queue, and the library would ask again even for a claim that is gone.
func (w *run) failedState() libcontroller.ProvisioningState {
	if w.reschedule {
		return libcontroller.ProvisioningReschedule
	}
	return libcontroller.ProvisioningFinished
}

// pause notes when the claim is tried again, and has our queue continue with what is in doubt. A claim that gets
// another node is not delayed.
func (w *run) pause(ctx context.Context, err error) error {
	if reasonOf(err) != provisioning.ReasonFailed { // of which the library records an Event
		w.recorder.Report(ctx, eventOn(w.facts.Claim), reasonOf(err), err.Error())
	}
	if w.reschedule {
		w.tracker.freely(w.name)
	} else {
		w.tracker.failed(w.name, w.cfg.Clock.Now(), w.firstDelay(err), w.cfg.RetryMax)
	}
	w.unsettled.Add(w.name)
	return err
}

// limiter tells the library when a claim comes back. Its queues hold UIDs of claims. The library asks
// it once for each claim that a worker has taken, when it has done all else.
type limiter struct{ *Controller }

// When returns how long a claim waits: as long as its last failure said, or, where the library
// did not come as far as Provision, longer each time.
func (l limiter) When(item any) time.Duration {
	text, _ := item.(string)
	uid, now := types.UID(text), l.cfg.Clock.Now()
	defer l.gate.EndTurn(uid)
	if wait := l.tracker.due(l.nameOf(uid), now); wait > 0 {
		return wait
	}
	return l.early.failed(text, now, l.cfg.RetryStart, l.cfg.RetryMax)
}

// Forget is called whenever the library has nothing to do for a claim. A claim's failures are
// forgotten with its success instead: our own patches bring claims back in between.
func (l limiter) Forget(item any) {
	text, _ := item.(string)
	l.early.freely(text)
	l.gate.EndTurn(types.UID(text))
}

// NumRequeues returns nothing of use: the library is set to try for ever.
func (limiter) NumRequeues(any) int { return 0 }
