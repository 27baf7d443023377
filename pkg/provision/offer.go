package provision

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/selfselect"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// offer queues the volume of a claim that this process may have to provision now, unless its PV is stored. It reads
// only memory, because the watch waits for it. The PV controller asks for a volume by its annotation on the claim, so a
// claim without one waits.
func (p *Controller) offer(claim *v1.PersistentVolumeClaim) {
	_, asked := volume.ProvisionerOf(claim)
	switch {
	case !p.working(), !asked, p.dueClass(claim) == nil, p.stored(claim.UID):
	case p.at(claim) == provision.NodeNone:
		p.selecting.Add(refOf(claim))
	default:
		name := p.nameOf(claim.UID)
		p.tracker.want(name, refOf(claim))
		p.queue.Add(name)
	}
}

// offerOf offers the claim with this UID if the cache knows it as a claim that may need a volume.
func (p *Controller) offerOf(claim types.UID) {
	if whole := p.claims.WholeByUID(claim); whole != nil {
		p.offer(whole)
	}
}

// dueClass returns the class of a claim whose volume is this driver's, and is due according to claim and class. It
// returns nil for other claims.
func (p *Controller) dueClass(claim *v1.PersistentVolumeClaim) *storagev1.StorageClass {
	class := p.classOf(claim)
	switch {
	case claim.DeletionTimestamp != nil, claim.Spec.VolumeName != "", !p.ours(claim), class == nil:
		return nil
	case !slices.Contains(p.names, class.Provisioner):
		return nil
	case p.at(claim) == provision.NodeElsewhere, late(class) && claim.Annotations[volume.AnnSelectedNode] == "":
		return nil
	}
	return class
}

// wantedClass returns the class of a claim that this process has to provision now, and nil for other claims.
func (p *Controller) wantedClass(ctx context.Context, claim *v1.PersistentVolumeClaim) *storagev1.StorageClass {
	class := p.dueClass(claim)
	if class == nil || p.at(claim) == provision.NodeNone || p.ignores(ctx, claim, class) {
		return nil
	}
	return class
}

// ignores reports whether another program provisions a claim.
func (p *Controller) ignores(ctx context.Context, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	q, ok := p.requests.(Qualifier)
	if !ok {
		return false
	}
	err := q.Ignores(claim, class)
	if err != nil {
		p.announce(ctx, claim, err)
	}
	return err != nil
}

// selectionFacts returns the facts about a claim that has no selected node.
func (p *Controller) selectionFacts(claim *v1.PersistentVolumeClaim) selfselect.Facts {
	local := p.cfg.Local
	if local == nil || claim == nil {
		return selfselect.Facts{}
	}
	b := selfselect.Facts{Enabled: local.Immediate, Node: p.at(claim)}
	b.Free = p.ours(claim) && claim.DeletionTimestamp == nil && claim.Spec.VolumeName == ""
	if class := p.classOf(claim); class != nil {
		b.Immediate, b.Allowed = !late(class), selfselect.Allowed(class, local.Node)
	}
	return b
}

// turnOf decides about a claim that may need this node, nil if it is gone. due is the time of this node's turn. The
// turns and rounds of a claim count until it has its volume or is gone.
func (p *Controller) turnOf(ctx context.Context, k volume.ClaimRef) (claim *v1.PersistentVolumeClaim,
	d provision.Decision, due time.Time) {
	claim, now := p.claims.Of(k.Namespace, k.Name, k.UID), p.cfg.Clock.Now()
	facts := p.selectionFacts(claim)
	switch d = selfselect.Decide(facts, now); {
	case !facts.Free:
		p.selections.Forget(k.UID)
	case d.Done:
		p.selections.Over(k.UID)
	case p.ignores(ctx, claim, p.classOf(claim)):
		d.Done = true
	default:
		facts.Due = p.selections.Due(k.UID, now, p.cfg.Local.BaseDelay, p.cfg.Local.MaxDelay)
		d = selfselect.Decide(facts, now)
	}
	return claim, d, facts.Due
}

// capacityDriver is a Driver that knows its free capacity.
type capacityDriver interface {
	ReportsCapacity() bool
	GetCapacity(ctx context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error)
}

// full reports whether the driver has no room for a claim on this node. A driver that does not answer may have room,
// and the refusal of its CreateVolume has an Event.
func (p *Controller) full(ctx context.Context, claim *v1.PersistentVolumeClaim) bool {
	driver, ok := p.driver.(capacityDriver)
	class := p.classOf(claim)
	if !ok || class == nil || !driver.ReportsCapacity() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	answer, err := driver.GetCapacity(ctx, &csi.GetCapacityRequest{Parameters: class.Parameters,
		AccessibleTopology: &csi.Topology{Segments: p.cfg.Local.Node.Segments}})
	size := claim.Spec.Resources.Requests[v1.ResourceStorage]
	full := err == nil && selfselect.Full(answer, size.Value())
	klog.FromContext(ctx).V(4).Info("Asked for the room of this node for a claim that binds immediately", "claim",
		klog.KObj(claim), "full", full, "err", err)
	return full
}

// selectSelf handles one claim that binds immediately, and selects this node for it when its turn comes, unless the
// driver has no room.
func (p *Controller) selectSelf(ctx context.Context, k volume.ClaimRef) controller.Result {
	claim, d, due := p.turnOf(ctx, k)
	if d.Action == provision.SelectNode {
		if p.full(ctx, claim) {
			p.selections.Taken(k.UID)
		}
		claim, d, due = p.turnOf(ctx, k) // another node may have been selected meanwhile
	}
	switch {
	case d.Done:
		return controller.Done()
	case d.Action != provision.SelectNode:
		return controller.After(due.Sub(p.cfg.Clock.Now()))
	}
	p.selections.Taken(k.UID)
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	switch err := p.selectNode(ctx, claim, p.cfg.Local.Node.Name); {
	case err == nil:
		klog.FromContext(ctx).V(2).Info("This node makes the volume of a claim that binds immediately", "claim",
			klog.KObj(claim))
	case errors.Is(err, kube.ErrChanged), errors.Is(err, kube.ErrGone):
		// Most likely another node was faster, which the claim's own update shows; otherwise the retry selects the node.
		return p.retries().Retry()
	default:
		klog.FromContext(ctx).Info("A claim that binds immediately was not given this node; it is tried again", "claim",
			klog.KObj(claim), "err", err)
		return p.retries().Retry()
	}
	return controller.Done()
}

// selectNode selects a node for the claim, or clears it if node is empty, while the lease is held.
func (p *Controller) selectNode(ctx context.Context, claim *v1.PersistentVolumeClaim, node string) error {
	if err := p.mayAct(); err != nil {
		return err
	}
	return p.cluster.selectNode(ctx, claim, node)
}

// The delay of a failed claim grows from try to try. A relevant change of the claim, its StorageClass or the nodes ends
// the delay, as does an entry that leaves a full in-flight log. Objects that are not watched are read every
// unwatchedRetry.

const (
	// unwatchedRetry limits the delay while an object that is not watched is missing or not ready. Secrets are read as
	// often.
	unwatchedRetry = 30 * time.Second
	// roomTries is the number of names that an entry's removal lets try for room. The room may be in another Lease than a
	// name needs, or in another namespace's share.
	roomTries = inflight.Shards
	// correctedRetries is the minimum interval between two corrections that end a delay of one claim, in first delays. A
	// program that keeps writing to a claim must not cause a driver call for each write.
	correctedRetries = 10
)

// correction classifies a change of a claim by its effect on the claim's delay.
type correction uint8

const (
	// noCorrection means that the change is bookkeeping, for example by the PV controller or by this process.
	noCorrection correction = iota
	// corrected means that an input of the request has changed.
	corrected
	// moved means that another node is selected.
	moved
)

// correctionOf compares a claim before and after a change.
func correctionOf(before, now *v1.PersistentVolumeClaim) correction {
	node := now.Annotations[volume.AnnSelectedNode]
	switch {
	case now.DeletionTimestamp != nil || now.Spec.VolumeName != "":
		return noCorrection
	case node != "" && node != before.Annotations[volume.AnnSelectedNode]:
		return moved
	case !equality.Semantic.DeepEqual(before.Spec, now.Spec), differ(before.Annotations, now.Annotations):
		return corrected
	}
	return noCorrection
}

// differ reports whether annotations other than bookkeeping differ.
func differ(before, now map[string]string) bool {
	for _, pair := range [][2]map[string]string{{before, now}, {now, before}} {
		for name, value := range pair[0] {
			if other, found := pair[1][name]; (!found || other != value) && !bookkeeping(name) {
				return true
			}
		}
	}
	return false
}

// bookkeeping reports whether controllers, or this project's programs, write an annotation for themselves.
func bookkeeping(annotation string) bool {
	if annotation == v1.BetaStorageClassAnnotation {
		return false
	}
	domain, _, _ := strings.Cut(annotation, "/")
	return domain == "csi-reclaimer.io" || domain == "pv.kubernetes.io" || domain == "volume.kubernetes.io" ||
		domain == "volume.beta.kubernetes.io"
}

// classDiffers reports whether a StorageClass was recreated or changed in a field that requests depend on, since all
// other fields are immutable.
func classDiffers(before, now *storagev1.StorageClass) bool {
	return before.UID != now.UID || !equality.Semantic.DeepEqual(before.AllowedTopologies, now.AllowedTopologies) ||
		!equality.Semantic.DeepEqual(before.MountOptions, now.MountOptions)
}

// claimCorrected ends the delay of a claim after a relevant change, and notes a selection that was withdrawn.
func (p *Controller) claimCorrected(before, now *v1.PersistentVolumeClaim) {
	if at := p.cfg.Clock.Now(); before.Annotations[volume.AnnSelectedNode] != "" &&
		!selfselect.Decide(p.selectionFacts(now), at).Done {
		p.selections.Withdrawn(now.UID, at)
	}
	switch correctionOf(before, now) {
	case corrected:
		p.hasten(p.nameOf(now.UID))
	case moved:
		p.tracker.hasten(p.nameOf(now.UID), p.cfg.Clock.Now(), 0)
	case noCorrection:
	}
}

// classCame ends the delays of a StorageClass' claims, and handles them as changed. The request of an open entry does
// not change.
func (p *Controller) classCame(class *storagev1.StorageClass) {
	for _, claim := range p.claims.OfClass(class.Name) {
		if name := p.nameOf(claim.UID); p.working() && p.log.State(name) != inflight.Open {
			p.hasten(name)
		}
	}
	p.classChanged(class)
}

// classChanged handles the claims of a StorageClass as changed. Claims of other classes, and claims that have their
// volume, do not depend on it.
func (p *Controller) classChanged(class *storagev1.StorageClass) {
	for _, claim := range p.claims.OfClass(class.Name) {
		p.claimChanged(nil, claim)
	}
}

// nodesChanged ends the delay of the claims whose last try failed before the driver was called.
func (p *Controller) nodesChanged() {
	if !p.working() {
		return
	}
	for _, name := range p.tracker.notBuilt() {
		p.hasten(name)
		p.queue.Add(name)
	}
}

// hasten ends the delay of a name, limited by the interval correctedRetries.
func (p *Controller) hasten(name string) {
	p.tracker.hasten(name, p.cfg.Clock.Now(), correctedRetries*p.cfg.RetryStart)
}

// roomCame ends the delay of a few names that the log had no room for. All others would find no room again.
func (p *Controller) roomCame() {
	for _, name := range p.tracker.refused(roomTries) {
		p.hasten(name)
		p.queue.Add(name)
	}
}

// longestDelay returns the maximum delay after a failure. It is short if nothing shows the end of its cause.
func (p *Controller) longestDelay(err error) time.Duration {
	if request.ReasonOf(err) != "" && request.RemediationOf(err) == request.RemediationWait {
		return min(unwatchedRetry, p.cfg.RetryMax)
	}
	return p.cfg.RetryMax
}

// seenSecret is the Secret of a name's last try. The zero value is none.
type seenSecret struct {
	ref v1.SecretReference
	// values is a digest of its values, zero if it is gone. Metadata, which other programs keep changing, do not count.
	values [sha256.Size]byte
}

func digestOf(values map[string]string) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q", values))
}

// saw records the result of a read of the Secret.
func (w *run) saw(ref v1.SecretReference, values map[string]string, err error) {
	switch {
	case err == nil:
		w.secret = seenSecret{ref: ref, values: digestOf(values)}
	case errors.Is(err, errSecretGone):
		w.secret = seenSecret{ref: ref}
	}
}

// readSecrets reads each Secret of the names that wait for their next try, once for all names. Other values end the
// delay of a name as a change of its claim does, and the driver is not called for the same values. A pass ends in
// kube.Timeout: the order of the Secrets is random, so the next pass reads others first.
func (p *Controller) readSecrets(ctx context.Context, _ struct{}) controller.Result {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	for ref, names := range p.tracker.secrets(p.cfg.Clock.Now()) {
		values, err := p.cluster.readSecret(ctx, ref)
		if err != nil {
			continue
		}
		now := seenSecret{ref: ref, values: digestOf(values)}
		for _, name := range names {
			// A try since the pass began may have seen other values.
			if last := p.tracker.retryOf(name); last.secret.ref == ref && last.secret != now &&
				last.due.After(p.cfg.Clock.Now()) {
				p.hasten(name)
				p.queue.Add(name)
			}
		}
	}
	return controller.After(unwatchedRetry)
}
