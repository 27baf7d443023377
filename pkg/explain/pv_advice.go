package explain

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	protectpv "github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// waits tells what has to come about before the PV goes on its way.
func (s *Story) waits(f PVFacts, pv PV, d Decision) {
	claim := pv.Claim.Namespace + "/" + pv.Claim.Name
	switch reclaim.Reason(d.Reason) {
	case reclaim.ReasonTerminatingBound, reclaim.ReasonRetainBound, reclaim.ReasonClaimAlive:
		s.waitsFor("the end of claim %s", claim)
	case reclaim.ReasonClaimNamesPV:
		s.waitsFor("the end of claim %s, which names the PV, or for the PV to be bound to it", claim)
	case reclaim.ReasonAttached:
		for _, name := range append([]PV{pv}, f.siblingsOf(pv)...) {
			for _, a := range f.attachmentsOf(name.Name) {
				s.waitsFor("the end of VolumeAttachment %s to node %s", a.Name, a.Spec.NodeName)
			}
		}
	case reclaim.ReasonHeld:
		s.waitsFor("the end of the annotation %s", volume.HoldAnnotation)
	case reclaim.ReasonBraked:
		s.waitsFor("the brake to be let go")
	case reclaim.ReasonInFlight:
		s.waitsFor("the entry of its volume in the in-flight log to be settled")
	case reclaim.ReasonSharedHandle, reclaim.Reason(intree.ReasonSharedSource):
		for _, other := range f.siblingsOf(pv) {
			s.waitsFor("the end of PV %s, or that it is to be deleted too", other.Name)
		}
	case reclaim.ReasonNotYetBound:
		s.waitsFor("the PV controller to bind claim %s", claim)
	default:
	}
	if !pv.Terminating {
		return
	}
	for _, finalizer := range s.Finalizers {
		switch {
		case finalizer.Stuck != "":
			s.waitsFor("finalizer %s, for ever: %s", finalizer.Name, finalizer.Stuck)
		case finalizer.Name == protectpv.Finalizer:
			s.builtIn(f)
		case finalizer.Owner == "":
			s.waitsFor("finalizer %s to be taken off by whoever put it on%s", finalizer.Name, putOn(finalizer))
		}
	}
}

// builtIn tells what the protection of PVs in use waits for, by the function that volume-guard decides with.
func (s *Story) builtIn(f PVFacts) {
	d := protectpv.Decide(protectpv.Snapshot{Duty: inuse.Duty{Mode: inuse.ModeFull, Alone: true}, PV: protectpv.PVOf(f.PV)})
	if d.Reason == inuse.ReasonBound {
		s.waitsFor("finalizer %s: %s", protectpv.Finalizer, bare(d.Reason.Sentence()))
	}
}

func putOn(f Finalizer) string {
	if f.PutOnBy == "" {
		return ""
	}
	return " (" + f.PutOnBy + ")"
}

// whatToDo tells what a person can do. What a reason's sentence says already is not repeated.
func (s *Story) whatToDo(f PVFacts, pv PV, d Decision) {
	name := pv.Name
	switch reclaim.Reason(d.Reason) {
	case reclaim.ReasonHeld:
		s.advise("To let the volume go: kubectl annotate pv %s %s-", name, volume.HoldAnnotation)
	case reclaim.ReasonBraked:
		s.advise("Look whether the volumes are to go; then let go: %s", f.braked(pv.Owner()))
	case reclaim.ReasonAttached:
		for _, a := range f.attachmentsOf(name) {
			s.detach(f, a)
		}
	case reclaim.ReasonPolicyKeepsVolume:
		s.kept(f.PV)
	case reclaim.ReasonTerminatingBound:
		s.advise("A deletion cannot be taken back. To keep the volume: %s", turn(name, v1.PersistentVolumeReclaimRetain))
		s.claimGoes(f)
	case reclaim.ReasonRetainBound, reclaim.ReasonClaimAlive:
		s.claimGoes(f)
	case reclaim.ReasonClaimNamesPV:
		s.bindAgain(f)
	case reclaim.ReasonReclaim:
		s.advise("To keep the volume after all, before the driver has deleted it: %s", turn(name, v1.PersistentVolumeReclaimRetain))
	default:
	}
	if pv.Terminating {
		for _, finalizer := range s.Finalizers {
			s.letGo(pv, finalizer)
		}
	}
}

// kept is what can be done with a volume that outlives its claim.
func (s *Story) kept(o *v1.PersistentVolume) {
	if o.Status.Phase != v1.VolumeReleased && o.Status.Phase != v1.VolumeFailed || o.DeletionTimestamp != nil {
		return
	}
	s.advise("To delete the volume too: %s", turn(o.Name, v1.PersistentVolumeReclaimDelete))
	s.advise("To forget the PV and keep the volume in the storage system: kubectl delete pv %s", o.Name)
	s.advise(`To use the volume again: kubectl patch pv %s --type=json -p '[{"op":"remove","path":"/spec/claimRef"}]'`, o.Name)
}

func (s *Story) claimGoes(f PVFacts) {
	ref := f.PV.Spec.ClaimRef
	if ref == nil {
		return
	}
	if claim := f.Claim.Value; claim != nil && claim.DeletionTimestamp != nil {
		s.advise("The claim is being deleted and waits as well: kubectl reclaim explain pvc/%s -n %s", ref.Name, ref.Namespace)
		return
	}
	s.advise("If nobody needs the claim any more: kubectl delete pvc %s -n %s", ref.Name, ref.Namespace)
}

// bindAgain is what can be done where another claim of the name names the PV. A claim's spec.volumeName cannot
// be changed once it is set.
func (s *Story) bindAgain(f PVFacts) {
	claim := f.Claim.Value
	if claim == nil {
		return
	}
	if claim.DeletionTimestamp == nil {
		s.advise("To bind the claim to the PV again: %s", reclaim.BindCommand(f.PV.Name, claim.UID))
	}
	s.claimGoes(f)
}

func turn(pv string, to v1.PersistentVolumeReclaimPolicy) string {
	return fmt.Sprintf(`kubectl patch pv %s -p '{"spec":{"persistentVolumeReclaimPolicy":"%s"}}'`, pv, to)
}

// detach is what can be done about an attachment that does not end.
func (s *Story) detach(f PVFacts, a storagev1.VolumeAttachment) {
	node := a.Spec.NodeName
	state, _ := nodeState(f.Nodes[node])
	switch {
	case f.presenceOf(a.Spec.Attacher) == presenceGone:
		s.advise("Nobody ends VolumeAttachment %s: driver %s is gone. Install it again; or, if the volume is not in use on node %s, let it go: kubectl patch volumeattachment %s --type=merge -p '{\"metadata\":{\"finalizers\":null}}' && kubectl delete volumeattachment %s",
			a.Name, a.Spec.Attacher, node, a.Name, a.Name)
	case state == nodeNotReady:
		s.advise("Node %s is away, so nobody knows whether the volume is still in use there. It is detached when the node is back. If the machine is off for sure: kubectl taint nodes %s node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, and take the taint away when it is back",
			node, node)
	case state == nodeGone && a.DeletionTimestamp == nil:
		s.advise("Node %s is gone. kube-controller-manager detaches its volumes after some minutes; if it does not: kubectl delete volumeattachment %s", node, a.Name)
	case a.DeletionTimestamp == nil:
		s.advise("See which pod on node %s uses the volume; it is detached when that pod is gone", node)
	default:
		s.advise("If it takes long, see what external-attacher of %s says: it is to detach the volume from node %s", a.Spec.Attacher, node)
	}
}

// letGo is what can be done about a finalizer of a PV that is being deleted.
func (s *Story) letGo(pv PV, f Finalizer) {
	keeps := "its volume then stays in the storage system"
	switch {
	case f.Stuck != "" && pv.Tree == nil:
		s.advise("Install the driver again, and the rest happens by itself. Or let the PV go by hand; %s: %s", keeps, takeOff("pv", pv.Name, f.Name))
	case f.Stuck != "":
		s.advise("Let the PV go by hand; %s: %s", keeps, takeOff("pv", pv.Name, f.Name))
	case f.Owner == "":
		s.advise("Ask whoever put finalizer %s on%s. Take it off by hand only if that program is gone: %s", f.Name, putOn(f), takeOff("pv", pv.Name, f.Name))
	}
}
