package volumes

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	engine "github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	protectpv "github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const (
	attacherPrefix    = "external-attacher/"
	snapshotFinalizer = "snapshot.storage.kubernetes.io/pvc-as-source-protection"
)

// finalizersOf returns the finalizers of an object, with their owners. driver manages the volume, and csiDriver is the
// name in its CSI source. plugin says why the in-tree plugin does nothing, empty if no reason is known.
func (w ClusterFacts) finalizersOf(o metav1.Object, driver, csiDriver, plugin string) []explain.Finalizer {
	all := make([]explain.Finalizer, 0, len(o.GetFinalizers()))
	for _, name := range o.GetFinalizers() {
		f := w.finalizer(name, driver, csiDriver, plugin)
		f.Name, f.AddedBy = name, explain.AddedBy(o, name)
		all = append(all, f)
	}
	return all
}

func (w ClusterFacts) finalizer(name, driver, csiDriver, plugin string) explain.Finalizer {
	switch name {
	case volume.Finalizer:
		return w.driverFinalizer(driver, "csi-reclaimer, or external-provisioner 5 and newer, of "+driver,
			"when the volume is deleted, or the policy keeps it")
	case volume.CompanionFinalizer:
		return w.driverFinalizer(driver, "csi-reclaimer of "+driver+", role companion",
			"when the volume is deleted, or the policy keeps it")
	case intree.Finalizer:
		return explain.Finalizer{Owner: "kube-controller-manager from 1.31 on, or volume-guard",
			When: "when the volume is deleted, or the policy keeps it", Stuck: plugin}
	case protectpv.Finalizer:
		return explain.Finalizer{Owner: "kube-controller-manager (pv-protection)",
			When: "when the PV is terminating and no claim is bound to it"}
	case pvc.Finalizer:
		return explain.Finalizer{Owner: "kube-controller-manager (pvc-protection)",
			When: "when the claim is terminating and no pod uses it"}
	case request.CloningFinalizer:
		return w.driverFinalizer(driver, "csi-reclaimer or external-provisioner of "+driver,
			"when no clone of the claim is being created")
	case objects.RunningFinalizer:
		f := explain.Finalizer{Owner: explain.VolumeGuard + " (pod-safety)",
			When: "when the claim is terminating and its pod is no longer held"}
		if runs, known := w.GuardRuns(); known && !runs {
			f.When += "; " + explain.NoGuard
		}
		return f
	case singlenode.Finalizer:
		return explain.Finalizer{Owner: explain.VolumeGuard + " (single-node)",
			When: "when the pod that has the lock of the claim cannot write any more"}
	case snapshotFinalizer:
		return explain.Finalizer{Owner: "snapshot-controller", When: "when no snapshot of the claim is being taken"}
	case metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents:
		return explain.Finalizer{Owner: "kube-controller-manager (garbage collector)",
			When: "when the objects that it owns are deleted or orphaned"}
	}
	if short, is := strings.CutPrefix(name, attacherPrefix); is {
		attacher := w.attacherOf(short, csiDriver)
		return w.driverFinalizer(attacher, "external-attacher of "+attacher,
			"when the PV is terminating and no VolumeAttachment names it")
	}
	return explain.Finalizer{}
}

// attacherOf returns the driver whose sanitized name is short: csiDriver or an installed driver, and short itself if
// none matches.
func (w ClusterFacts) attacherOf(short, csiDriver string) string {
	for _, names := range [][]string{{csiDriver}, w.Installed.Value, w.OnNodes.Value} {
		for _, name := range names {
			if objects.SanitizedDriver(name) == short {
				return name
			}
		}
	}
	return short
}

// driverFinalizer describes a finalizer that a driver's sidecar removes.
func (w ClusterFacts) driverFinalizer(driver, owner, when string) explain.Finalizer {
	f := explain.Finalizer{Owner: owner, When: when}
	switch {
	case driver == "":
		f.Owner, f.When, f.Stuck = "", "", "no CSI driver manages this object"
	case explain.InTree(driver):
		f.Owner, f.When = explain.VolumeGuard,
			"when the volume, which is not a CSI driver's, is protected by another finalizer or deleted"
	case !explain.CSIName(driver), w.by.foreign[driver]:
		f.Owner = "provisioner " + driver
	case w.presenceOf(driver) == presenceGone:
		f.Stuck = fmt.Sprintf("driver %s is gone: no CSIDriver has its name, no node runs it, and no program holds a Lease "+
			"of it", driver)
	}
	return f
}

// removed reports whether Kubernetes of a minor version, 0 if unknown, lacks a former plugin. Both Ceph plugins existed
// up to 1.30; the others left before any version still in use.
func removed(plugin string, minor int) bool {
	return plugin != "" && (minor > 30 || plugin != explain.RBD && plugin != explain.CephFS)
}

func stuck(all []explain.Finalizer) []explain.Finalizer {
	return explain.Filter(all, func(f explain.Finalizer) bool { return f.Stuck != "" })
}

// removeCommand returns the command that removes a finalizer by hand.
func removeCommand(kind, name, finalizer string) explain.Command {
	return explain.Command(fmt.Sprintf(
		`kubectl patch %s %s -p '{"metadata":{"$deleteFromPrimitiveList/finalizers":["%s"]}}'`, kind, name, finalizer))
}

// addWaits adds every condition that still keeps the PV in the cluster.
func addWaits(s *explain.Explanation, f PVFacts, pv explain.PV, d decision) {
	addReasonWaits(s, f, pv, d)
	if pv.Terminating {
		addFinalizerWaits(s, f)
	}
}

func addReasonWaits(s *explain.Explanation, f PVFacts, pv explain.PV, d decision) {
	claim := pv.Claim.Namespace + "/" + pv.Claim.Name
	switch reclaim.Reason(d.Reason) {
	case engine.ReasonTerminatingBound, engine.ReasonTerminatingUnbound, engine.ReasonRetainBound,
		engine.ReasonClaimStillExists:
		s.AddWait("claim %s to be deleted", claim)
		for _, pod := range f.users() {
			s.AddWait("pod %s to end, which uses the claim", pod)
		}
	case engine.ReasonClaimNamesPV:
		s.AddWait("claim %s, which names the PV, to be deleted or to be bound to it", claim)
	case engine.ReasonAttached:
		for _, name := range append([]explain.PV{pv}, f.SiblingsOf(pv)...) {
			for _, a := range f.attachmentsOf(name.Name) {
				s.AddWait("VolumeAttachment %s to node %s to be deleted", a.Name, a.Spec.NodeName)
			}
		}
	case engine.ReasonHeld:
		s.AddWait("the annotation %s to be removed", volume.HoldAnnotation)
	case engine.ReasonDeletionsPaused:
		s.AddWait("the brake to be released")
	case engine.ReasonInFlight:
		s.AddWait("the entry of its volume in the in-flight log to be settled")
	case engine.ReasonLogUnreadable:
		s.AddWait("the in-flight log to be readable where it is for its volume")
	case engine.ReasonSharedHandle, reclaim.Reason(intree.ReasonSharedSource):
		addSiblingWaits(s, f.SiblingsOf(pv), d.neededBy)
	case engine.ReasonNotYetBound:
		s.AddWait("the PV controller to bind claim %s", claim)
	default:
	}
}

// addSiblingWaits adds the conditions of the PVs among siblings that keep the volume.
func addSiblingWaits(s *explain.Explanation, siblings []explain.PV, keepers []string) {
	for _, other := range siblings {
		switch {
		case !slices.Contains(keepers, other.Name):
		case other.Held:
			s.AddWait("the annotation %s of PV %s to be removed", volume.HoldAnnotation, other.Name)
		case other.Deletable():
			s.AddWait("claim %s/%s, which keeps PV %s, to be deleted", other.Claim.Namespace, other.Claim.Name, other.Name)
		default:
			s.AddWait("PV %s to be deleted, or to get policy Delete and lose its claim", other.Name)
		}
	}
}

// addFinalizerWaits adds the conditions of the finalizers of a terminating PV.
func addFinalizerWaits(s *explain.Explanation, f PVFacts) {
	for _, finalizer := range s.Finalizers {
		switch {
		case finalizer.Stuck != "":
			s.AddWait("finalizer %s, forever: %s", finalizer.Name, finalizer.Stuck)
		case finalizer.Name == protectpv.Finalizer:
			waitsForProtection(s, f)
		case finalizer.Owner == "":
			s.AddWait("the owner of finalizer %s to remove it%s", finalizer.Name, addedByNote(finalizer))
		}
	}
}

// waitsForProtection adds the condition of kubernetes.io/pv-protection, by volume-guard's own decision function.
func waitsForProtection(s *explain.Explanation, f PVFacts) {
	d := protectpv.Decide(protectpv.Facts{Duty: inuse.Duty{Mode: inuse.ModeFull, Alone: true},
		PV: protectpv.PVOf(f.PV)})
	if d.Reason == inuse.ReasonBound {
		s.AddWait("finalizer %s: %s", protectpv.Finalizer, explain.WithoutPeriod(d.Reason.Sentence()))
	}
}

func addedByNote(f explain.Finalizer) string {
	if f.AddedBy == "" {
		return ""
	}
	return " (added by " + f.AddedBy + ")"
}

// addAdvice adds commands and checks for a person. It does not repeat the reason's sentence.
func addAdvice(s *explain.Explanation, f PVFacts, pv explain.PV, d decision) {
	name := pv.Name
	switch reclaim.Reason(d.Reason) {
	case engine.ReasonHeld, reclaim.Reason(intree.ReasonHoldNotObeyed):
		adviseOnHold(s, f, pv, d)
	case engine.ReasonDeletionsPaused:
		s.Advise("Check that the volumes should be deleted; then release the brake: %s", f.releaseBrakeCommand(pv.Owner()))
	case engine.ReasonLogUnreadable:
		adviseOnLog(s, f.ClusterFacts, f.InFlight.Value.Of(pv.Owner()).Unreadable(name), bondOf(pv.PV))
	case engine.ReasonAttached:
		for _, a := range f.attachmentsOf(name) {
			adviseDetach(s, f, a)
		}
	case engine.ReasonPolicyKeepsVolume:
		adviseOnKeptVolume(s, f, pv)
	case engine.ReasonTerminatingBound:
		s.Advise("The deletion of the PV cannot be undone. To keep the volume: %s",
			setPolicyCommand(name, v1.PersistentVolumeReclaimRetain))
		adviseOnClaim(s, f)
	case engine.ReasonTerminatingUnbound, engine.ReasonRetainBound, engine.ReasonClaimStillExists:
		adviseOnClaim(s, f)
	case engine.ReasonClaimNamesPV:
		adviseRebind(s, f)
	case engine.ReasonReclaim:
		s.Advise("To keep the volume, before the driver deletes it: %s", setPolicyCommand(name,
			v1.PersistentVolumeReclaimRetain))
	default:
	}
	if pv.Terminating {
		for _, finalizer := range s.Finalizers {
			adviseOnFinalizer(s, pv, finalizer)
		}
	}
}

func adviseOnHold(s *explain.Explanation, f PVFacts, pv explain.PV, d decision) {
	if !f.obeysHolds(pv.Owner()) {
		s.Advise("To keep the volume: %s", setPolicyCommand(pv.Name, v1.PersistentVolumeReclaimRetain))
	}
	if d.Reason == string(engine.ReasonHeld) {
		s.Advise("To have the volume deleted: kubectl annotate pv %s %s-", pv.Name, volume.HoldAnnotation)
	}
}

// adviseOnKeptVolume adds the choices for a volume that outlives its claim. A PV without a claimRef is free for the
// next claim of its class in any namespace, which would get the data. So the claimRef keeps its namespace and name.
//
// Provisioners other than csi-reclaimer look at this PV alone. So nothing is advised that deletes a volume that another
// PV or a claim may need, or that hands out a volume that another PV may have handed out.
func adviseOnKeptVolume(s *explain.Explanation, f PVFacts, pv explain.PV) {
	o, claim := f.PV, f.Claim.Value
	if o.Status.Phase != v1.VolumeReleased && o.Status.Phase != v1.VolumeFailed || o.DeletionTimestamp != nil {
		return
	}
	named := claim != nil && claim.Spec.VolumeName == o.Name
	alone := f.PVs.OK() && len(f.SiblingsOf(pv)) == 0
	if alone && !named && f.Claim.OK() {
		s.Advise("To delete the volume too: %s", setPolicyCommand(o.Name, v1.PersistentVolumeReclaimDelete))
	}
	s.Advise("To delete the PV and keep the volume in the storage system: kubectl delete pv %s", o.Name)
	switch ref := o.Spec.ClaimRef; {
	case ref == nil, !alone:
	case named && claim.DeletionTimestamp == nil:
		s.Advise("To bind the claim to the PV again: %s", bindCommand(o.Name, claim.UID))
	default:
		s.Advise(`To use the volume again: kubectl patch pv %s -p `+
			`'{"spec":{"claimRef":{"uid":null,"resourceVersion":null}}}', and create claim %s in namespace %s with `+
			"spec.volumeName: %s", o.Name, ref.Name, ref.Namespace, o.Name)
	}
}

func adviseOnClaim(s *explain.Explanation, f PVFacts) {
	ref := f.PV.Spec.ClaimRef
	if ref == nil {
		return
	}
	if claim := f.Claim.Value; claim != nil && claim.DeletionTimestamp != nil {
		s.Advise("The claim is terminating and waits, too: kubectl reclaim explain pvc/%s -n %s", ref.Name, ref.Namespace)
		return
	}
	s.Advise("If the claim is not needed: kubectl delete pvc %s -n %s", ref.Name, ref.Namespace)
}

// adviseRebind covers a new claim of the same name whose spec.volumeName names the PV. The API server rejects changes
// of spec.volumeName once it is set, so the PV's claimRef has to follow the claim.
func adviseRebind(s *explain.Explanation, f PVFacts) {
	claim := f.Claim.Value
	if claim == nil {
		return
	}
	if claim.DeletionTimestamp == nil {
		s.Advise("To bind the claim to the PV again: %s", bindCommand(f.PV.Name, claim.UID))
	}
	adviseOnClaim(s, f)
}

func setPolicyCommand(pv string, to v1.PersistentVolumeReclaimPolicy) explain.Command {
	return explain.Command(fmt.Sprintf(
		`kubectl patch pv %s -p '{"spec":{"persistentVolumeReclaimPolicy":"%s"}}'`, pv, to))
}

func bindCommand(pv string, claim types.UID) explain.Command {
	return explain.Command(engine.BindCommand(pv, claim))
}

func adviseDetach(s *explain.Explanation, f PVFacts, a storagev1.VolumeAttachment) {
	node := a.Spec.NodeName
	state := nodeState(f.Nodes[node])
	switch {
	case f.presenceOf(a.Spec.Attacher) == presenceGone:
		s.Advise("No program removes VolumeAttachment %s, because driver %s is gone. Install the driver again. Or, if the "+
			"volume is not in use on node %s, delete the attachment: kubectl patch volumeattachment %s --type=merge -p "+
			"'{\"metadata\":{\"finalizers\":null}}' && kubectl delete volumeattachment %s",
			a.Name, a.Spec.Attacher, node, a.Name, a.Name)
	case state == nodeNotReady:
		s.Advise("Node %s is not ready, so it is unknown whether the volume is still in use there. It is detached when the "+
			"node is ready again. If you are sure that the machine is off: kubectl taint nodes %s "+
			"node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, and remove the taint when the node is back",
			node, node)
	case state == nodeGone && a.DeletionTimestamp == nil:
		s.Advise("Node %s is gone. kube-controller-manager detaches its volumes after some minutes; if it does not: "+
			"kubectl delete volumeattachment %s", node, a.Name)
	case a.DeletionTimestamp == nil:
		s.Advise("Find the pod on node %s that uses the volume. The volume is detached when that pod is gone", node)
	default:
		s.Advise("If it takes long, check the log of the external-attacher of %s, which detaches the volume from node %s",
			a.Spec.Attacher, node)
	}
}

func adviseOnFinalizer(s *explain.Explanation, pv explain.PV, f explain.Finalizer) {
	keeps := "its volume stays in the storage system"
	switch {
	case f.Stuck != "" && pv.Tree == nil:
		s.Advise("Install the driver again: it finishes the deletion. Or remove the finalizer by hand; %s: %s", keeps,
			removeCommand("pv", pv.Name, f.Name))
	case f.Stuck != "":
		s.Advise("Remove the finalizer by hand; %s: %s", keeps, removeCommand("pv", pv.Name, f.Name))
	case f.Owner == "":
		s.Advise("Ask the owner of finalizer %s%s. Remove it by hand only if that program is gone: %s", f.Name,
			addedByNote(f), removeCommand("pv", pv.Name, f.Name))
	}
}
