package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/outcome"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/order"
)

// library is what the ProvisionController calls. It may call for several claims at once, never
// for one claim twice at once.
type library struct{ *Provisioner }

var (
	_ controller.Qualifier        = library{}
	_ controller.BlockProvisioner = library{}

	errStopping = errors.New("the provisioner is being stopped")
)

// SupportsBlock leaves it to the driver to refuse a block volume, as the stock provisioner does.
func (library) SupportsBlock(context.Context) bool { return true }

// Delete never deletes: PVs and their volumes are the matter of package reclaim, and the volumes
// that have no PV that of [Decide]. The library calls it where it takes a PV for one that could
// not be stored, on the strength of answers that were lost.
func (library) Delete(context.Context, *v1.PersistentVolume) error {
	return &controller.IgnoredError{Reason: "volumes are deleted elsewhere"}
}

// ShouldProvision tells whether Provision is to be called for a claim now. A claim without our
// finalizer, of which it is clear what to ask for, gets it and is answered false: its own update
// brings it back.
func (l library) ShouldProvision(ctx context.Context, claim *v1.PersistentVolumeClaim) bool {
	if !l.gate.beginTurn(claim.UID) || !l.ready(claim) {
		return false
	}
	ctx = l.working(ctx)
	it, giveBack, err := l.lives.take(ctx, keyOf(claim))
	if err != nil {
		return false
	}
	defer giveBack()
	w := &run{Provisioner: l.Provisioner, claim: claim, life: it, wanted: &wanted{class: l.classOf(claim)}}
	defer w.leaveName()
	d, err := w.qualify(ctx)
	switch {
	case err != nil:
		// Provision finds the same, and tells of it, unless it is nothing to us.
		if remedyOf(err) != order.RemedyIgnore {
			return true
		}
		w.announce(ctx, err)
		return false
	case d.Action == Protect:
		return w.unprotected(ctx, w.act(ctx, d))
	}
	return w.leftToProvision(d)
}

// qualify settles what to ask for, for a claim that is not held yet, and says what comes next.
func (w *run) qualify(ctx context.Context) (Decision, error) {
	d := w.next(ctx)
	for !w.facts.Claim.Protected && (d.Action == Compose || d.looksFirst()) {
		if err := w.act(ctx, d); err != nil {
			return d, err
		}
		d = Decide(w.facts, w.cfg.Clock.Now())
	}
	return d, nil
}

// looksFirst tells whether it is a node's look for the PV before it asks for the volume.
func (d Decision) looksFirst() bool { return d.Action == ReadPV && d.Reason == ReasonProvision }

// unprotected tells whether Provision is to try once more to protect the claim, and tell why that
// failed: no event may bring it back.
func (w *run) unprotected(ctx context.Context, err error) bool {
	if err == nil || errors.Is(err, kube.ErrChanged) || errors.Is(err, kube.ErrGone) {
		return false
	}
	klog.FromContext(ctx).V(2).Info("A claim was not protected", "claim", klog.KObj(w.claim), "err", err)
	return true
}

// leftToProvision tells whether the step is one of Provision. Others are our loop's, which brings
// the claim back.
func (w *run) leftToProvision(d Decision) bool {
	switch {
	case d.Action == Compose, d.Action == CreateVolume, d.Action == StorePV, d.looksFirst():
		return true
	default:
		w.lives.askedEarly(w.claim.UID)
		w.clean.Add(keyOf(w.claim))
		return d.Reason == ReasonNameTaken // which Provision tells
	}
}

// ready tells whether the library would go on to provision the claim, and its time has come. It
// repeats what the library checks later: a claim it will not provision must not be protected.
func (l library) ready(claim *v1.PersistentVolumeClaim) bool {
	class := l.classOf(claim)
	switch {
	case claim.DeletionTimestamp != nil, claim.Spec.VolumeName != "", !l.ours(claim), class == nil:
		return false
	case l.at(claim) == AtElsewhere, late(class) && claim.Annotations[annSelectedNode] == "":
		return false
	}
	if l.at(claim) == AtNone {
		l.bidding.Add(keyOf(claim))
		return false
	}
	if l.lives.due(claim.UID, l.cfg.Clock.Now()) > 0 {
		// The library forgets the claim now, and its queue may have merged the delay that it asked
		// for with a shorter one.
		l.lives.askedEarly(claim.UID)
		l.clean.Add(keyOf(claim))
		return false
	}
	return true
}

// Provision makes the claim's volume and its PV, and returns the PV as it is stored.
func (l library) Provision(ctx context.Context, options controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	if !l.gate.open() {
		return nil, controller.ProvisioningNoChange, errStopping
	}
	ctx = l.working(ctx)
	it, giveBack, err := l.lives.take(ctx, keyOf(options.PVC))
	if err != nil {
		return nil, controller.ProvisioningNoChange, err
	}
	defer giveBack()
	w := l.provision(it, options)
	defer w.leaveName()
	return w.provisioned(w.work(ctx))
}

// provision begins a run of Provision.
func (l library) provision(it *life, options controller.ProvisionOptions) *run {
	if it.volume == VolumeUnknown && !it.tried && !l.protects {
		it.volume, it.doubt = VolumeNone, false // nothing remembers what was before
	}
	return &run{Provisioner: l.Provisioner, claim: options.PVC, life: it, wanted: &wanted{class: options.StorageClass, node: options.SelectedNode}}
}

// provisioned says to the library what came of a run.
func (w *run) provisioned(d Decision, err error) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	switch {
	case err == nil && d.Action == Protect:
		// The claim's own update brings it back.
		return nil, controller.ProvisioningFinished, &controller.IgnoredError{Reason: "the claim is held first"}
	case w.nothingBegun() && remedyOf(err) == order.RemedyIgnore:
		return nil, controller.ProvisioningFinished, &controller.IgnoredError{Reason: err.Error()}
	case err == nil && w.life.stored == nil:
		err = because(d.Reason, fmt.Errorf("%s", d.Reason.Sentence()))
	}
	if err == nil {
		w.lives.freely(w.claim.UID)
		w.clean.Add(keyOf(w.claim))
		return w.life.stored.DeepCopy(), controller.ProvisioningFinished, nil
	}
	return nil, w.failed(), w.pause(err)
}

// failed says to the library what a failed try has left. After ProvisioningInBackground it asks
// again even for a claim that is gone.
func (w *run) failed() controller.ProvisioningState {
	switch {
	case w.elsewhere:
		return controller.ProvisioningReschedule
	case !w.asked:
		return controller.ProvisioningNoChange
	case w.life.volume == VolumeNone:
		return controller.ProvisioningFinished
	}
	return controller.ProvisioningInBackground
}

// pause notes when the claim is to be tried again, and wakes our own loop, which frees a claim of
// which nothing is left. A claim that gets another node is left as it is: the library updates it
// next, from what it has cached.
func (w *run) pause(err error) error {
	if w.elsewhere {
		w.lives.freely(w.claim.UID)
		return err
	}
	// With nothing made the claim is freed, also where the driver was not even asked: what keeps it
	// from being asked might be gone for ever when the claim is to be cleaned up.
	w.life.failed = w.life.failed || w.life.volume == VolumeNone
	w.lives.failed(w.claim.UID, w.cfg.Clock.Now(), w.firstDelay(err), w.cfg.RetryMax)
	w.clean.Add(keyOf(w.claim))
	return err
}

// firstDelay is longer for what a person has to mend first.
func (p *Provisioner) firstDelay(err error) time.Duration {
	class, remedy := outcome.Of(err), remedyOf(err)
	if class == outcome.Refused || class == outcome.Unfit || class == outcome.Exhausted || remedy == order.RemedyChange || remedy == order.RemedyDiscard {
		return 10 * p.cfg.RetryStart
	}
	return p.cfg.RetryStart
}
