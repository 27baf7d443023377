package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	libcontroller "sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/provisioning"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
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
	if l.tracker.due(name, l.cfg.Clock.Now()) == 0 && l.log.State(name) != inflight.Open {
		return true
	}
	// The library forgets the claim now. Our queue brings it back.
	l.claimed.Store(name, keyOf(claim))
	l.unsettled.Add(name)
	return false
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

// Provision makes the claim's volume and its PV. Whatever comes of it, the library is told that there is nothing to
// store, to record or to try again: all of that is the same for the tries of our own queue, and so is ours.
func (l provisioner) Provision(ctx context.Context, options libcontroller.ProvisionOptions) (*v1.PersistentVolume,
	libcontroller.ProvisioningState, error) {
	outcome := l.provision(l.lifetime(ctx), options)
	return nil, libcontroller.ProvisioningFinished, &libcontroller.IgnoredError{Reason: outcome}
}

// provision makes one try, and returns what came of it, for the log.
func (l provisioner) provision(ctx context.Context, options libcontroller.ProvisionOptions) string {
	if !l.gate.Open() {
		return errStopping.Error()
	}
	name := l.nameOf(options.PVC.UID)
	t, giveBack, err := l.tracker.take(ctx, name)
	if err != nil {
		return err.Error()
	}
	defer func() {
		if giveBack() {
			l.unsettled.Add(name)
		}
	}()
	defer l.announceStart(l.claimOf(options.PVC))()
	w := &run{Controller: l.Controller, name: name, claimKey: keyOf(options.PVC), track: t,
		wanted: &wanted{class: options.StorageClass}, began: l.cfg.Clock.Now()}
	d, err := l.readNode(ctx, w, options.SelectedNode)
	if err == nil {
		d, err = w.work(ctx)
	}
	return w.provisioned(ctx, d, err)
}

// readNode reads the node that is selected for a claim. One that is gone is given back to the scheduler.
func (l provisioner) readNode(ctx context.Context, w *run, node *v1.Node) (d provisioning.Decision, err error) {
	if node == nil || l.cfg.Local != nil {
		w.wanted.node = node
		return d, nil
	}
	reading, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if w.wanted.node, err = l.client.CoreV1().Nodes().Get(reading, node.Name, metav1.GetOptions{}); err != nil {
		w.observe()
		w.label()
		w.reschedule = kube.Absent(err, v1.Resource("nodes"), node.Name)
		err = reasons.Because(w.failure(), fmt.Errorf("failed to get target node: %w", err))
	}
	return d, err
}

// provisioned ends a try that the library began, and returns what came of it.
func (w *run) provisioned(ctx context.Context, d provisioning.Decision, err error) string {
	switch {
	case err != nil && request.RemediationOf(err) == request.RemediationIgnore:
		return err.Error()
	case err != nil:
		w.fail(ctx, err)
	case d.Done, d.Reason == provisioning.ReasonStored:
		w.tracker.freely(w.name)
		return d.Reason.Sentence()
	case d.Reason == provisioning.ReasonNotQuiet:
		w.tracker.freely(w.name)
	default:
		w.waits(ctx, d.Reason)
		w.tracker.failed(w.name, w.cfg.Clock.Now(), w.cfg.RetryStart, w.cfg.RetryMax)
		err = errors.New(d.Reason.Sentence())
	}
	w.claimed.Store(w.name, w.claimKey)
	w.unsettled.Add(w.name) // which continues, or brings the claim back
	if err == nil {
		return d.Reason.Sentence()
	}
	return err.Error()
}

// limiter tells the library when a claim comes back that it could not bring to Provision. Its queues hold UIDs of
// claims. The library asks it once for each claim that a worker has taken, when it has done all else.
type limiter struct{ *Controller }

// When returns how long a claim waits: longer each time.
func (l limiter) When(item any) time.Duration {
	text, _ := item.(string)
	defer l.gate.EndTurn(types.UID(text))
	return l.early.failed(text, l.cfg.Clock.Now(), l.cfg.RetryStart, l.cfg.RetryMax)
}

// Forget is called whenever the library has nothing more to do for a claim.
func (l limiter) Forget(item any) {
	text, _ := item.(string)
	l.early.freely(text)
	l.gate.EndTurn(types.UID(text))
}

// NumRequeues returns nothing of use: the library is set to try for ever.
func (limiter) NumRequeues(any) int { return 0 }
