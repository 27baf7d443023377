package volumes

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

// pending is a claim that waits for an installed driver to create its volume.
func pending() ClaimFacts {
	its := released()
	explained.Clear(&its.PVs)
	return ClaimFacts{
		ClusterFacts: its.ClusterFacts,
		Claim: &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "c", ResourceVersion: "7",
				Annotations: map[string]string{volume.AnnProvisioner: driver}},
			Spec:   v1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("fast")},
			Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending},
		},
		Class: explain.Found(&storagev1.StorageClass{Provisioner: driver}), Pods: explain.Found[[]pvc.Pod](nil),
		Events: explain.Found[[]v1.Event](nil),
	}
}

// terminate marks the claim as terminating with these finalizers.
func (f *ClaimFacts) terminate(finalizers ...string) {
	f.Claim.DeletionTimestamp, f.Claim.Finalizers = ptr.To(ago(time.Hour)), finalizers
}

// restored replaces the claim by one from a backup, and returns its PV, which names the claim before.
func (f *ClaimFacts) restored() *PVFacts {
	its := released()
	f.Claim, f.PV = its.restored(), explain.Found(&its)
	return &its
}

func TestExplainClaim(t *testing.T) {
	user := pvc.Pod{Namespace: "ns", Name: "app", UID: "p", Scheduled: true, Claims: []string{"data"}}
	explained.Table(t, pending, claimText, map[string]explained.Row[ClaimFacts]{
		"a volume is to be made": {func(*ClaimFacts) {},
			[]string{"Claim ns/data is pending and waits for driver " + driver + " to create the volume.",
				"BuildRequest, Provision (by csi-reclaimer beside " + driver, "!You can", "!In flight"}},
		"a pod has to come first": {func(f *ClaimFacts) {
			f.Class.Value.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
		},
			[]string{"waits for a pod that uses the claim to be scheduled"}},
		"a pod has come": {func(f *ClaimFacts) {
			f.Class.Value.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
			f.Claim.Annotations[volume.AnnSelectedNode] = "n1"
		}, []string{"waits for driver", "n1, selected by the scheduler"}},
		"the class is gone": {func(f *ClaimFacts) { explained.Remove(&f.Class) },
			[]string{"waits for StorageClass fast, which does not exist", "Create the StorageClass"}},
		"the class may not be read": {func(f *ClaimFacts) { explained.Forbid(&f.Class) },
			[]string{"!which does not exist", "StorageClass fast: forbidden"}},
		"the driver is gone": {func(f *ClaimFacts) { f.uninstall() },
			[]string{"waits for driver " + driver + ", which is not installed", "Install driver",
				"is not a CSI driver, look for"}},
		"its provisioner is without CSI": {func(f *ClaimFacts) {
			f.uninstall()
			f.Claim.Annotations[volume.AnnProvisioner] = "rancher.io/local-path"
		}, []string{"waits for provisioner rancher.io/local-path to create the volume", "!not installed",
			"!csi-reclaimer"}},
		"a person has to make the volume": {func(f *ClaimFacts) {
			f.Claim.Spec.StorageClassName, f.Claim.Annotations = nil,
				nil
		}, []string{"waits for a PV that fits"}},
		"its PV's name belongs to another": {func(f *ClaimFacts) {
			other := released().PV
			other.Name = "pvc-c"
			other.Spec.ClaimRef.UID = "x"
			f.PVs = explain.Found([]explain.PV{explain.PVOf(other)})
		}, []string{"(by csi-reclaimer beside", string(provision.ReasonNameTaken)}},
		"bound": {func(f *ClaimFacts) {
			its := released()
			its.Claim = explain.Found(f.Claim)
			its.PV.Status.Phase = v1.VolumeBound
			f.Claim.Spec.VolumeName, f.Claim.Status.Phase, f.PV = "pv", v1.ClaimBound, explain.Found(&its)
		}, []string{"Claim ns/data is bound, with PV pv.", "PV pv is bound (Bound)", "!Waits for"}},
		"bound, and its PV is being deleted": {func(f *ClaimFacts) {
			its := released()
			its.Claim = explain.Found(f.Claim)
			its.PV.Status.Phase, its.PV.Spec.ClaimRef.UID = v1.VolumeBound, f.Claim.UID
			its.terminate(time.Hour)
			f.Claim.Spec.VolumeName, f.Claim.Status.Phase, f.PV = "pv", v1.ClaimBound, explain.Found(&its)
		}, []string{"Claim ns/data is bound, with PV pv, which is being deleted (TerminatingBound): The PV is"}},
		"its PV is lost": {func(f *ClaimFacts) {
			f.Claim.Spec.VolumeName, f.Claim.Status.Phase, f.PV = "pv", v1.ClaimLost, explain.Found[*PVFacts](nil)
		}, []string{"pv, gone", "is lost and waits for PV pv, which is gone", "create a PV named pv for it",
			"If the data is not needed: kubectl delete pvc data -n ns, and create"}},
		"lost, and its PV may not be read": {func(f *ClaimFacts) {
			f.Claim.Spec.VolumeName, f.Claim.Status.Phase, f.PV = "pv", v1.ClaimLost, explain.Failed[*PVFacts](errForbidden)
			explained.Forbid(&f.PVs)
		}, []string{"of which it is not known whether it exists", "Keep the claim", "!kubectl delete pvc"}},
		"lost, and it names no PV": {func(f *ClaimFacts) { f.Claim.Status.Phase = v1.ClaimLost },
			[]string{"it names no PV, and gets none", "!to create the volume"}},
		"restored, and its PV names the claim before": {func(f *ClaimFacts) { f.restored() },
			[]string{"is lost and waits for PV pv to be bound to it",
				"bind the claim to the PV again: kubectl patch pv pv",
				`'{"spec":{"claimRef":{"uid":"new","resourceVersion":null}}}'`,
				"kubectl delete pvc data -n ns. The driver then deletes the volume", "!which is gone", "!create the claim again"}},
		"restored, and its PV has policy Retain": {func(f *ClaimFacts) { f.restored().policy("Retain") },
			[]string{`"uid":"new"`, "kubectl delete pvc data -n ns", "!The driver then deletes"}},
		"lost, and its PV belongs to another claim": {func(f *ClaimFacts) { f.restored().PV.Spec.ClaimRef.Name = "other" },
			[]string{"waits for PV pv, which belongs to claim ns/other", "this claim is not needed: kubectl delete pvc data"}},
		"lost, and its PV names it": {func(f *ClaimFacts) { f.restored().PV.Spec.ClaimRef.UID = "new" },
			[]string{"waits for kube-controller-manager to bind it to PV pv", "!If the data is not needed"}},
		"being deleted while a pod uses it": {
			func(f *ClaimFacts) { f.terminate(pvc.Finalizer); f.Pods = explain.Found([]pvc.Pod{user}) },
			[]string{"has been terminating for 60m (InUse)", "Pod app.", "pod app to end", "kubectl delete pod app -n ns"},
		},
		"being deleted while a pod that has ended names it": {func(f *ClaimFacts) {
			ended := user
			ended.Ended = true
			f.terminate(pvc.Finalizer)
			f.Pods = explain.Found([]pvc.Pod{ended})
		}, []string{"(" + string(inuse.ReasonInUseEnded) + ")", "pod app, which has terminated"}},
		"being deleted, and not in use": {func(f *ClaimFacts) { f.terminate(pvc.Finalizer) },
			[]string{"(Unused)", "!kubectl delete pod"}},
		"being deleted, and pods may not be read": {
			func(f *ClaimFacts) { f.terminate(pvc.Finalizer); explained.Forbid(&f.Pods) },
			[]string{"(APIReadFailed)", "Pods: forbidden. So it is not known which pods use the claim."},
		},
		"being deleted while a pod has its lock": {func(f *ClaimFacts) { f.terminate(singlenode.Finalizer) },
			[]string{"Waits for    finalizer " + singlenode.Finalizer +
				", which volume-guard (single-node) removes when the pod"}},
		"being deleted while its pod is held": {func(f *ClaimFacts) { f.terminate(objects.RunningFinalizer) },
			[]string{"Waits for    finalizer " + objects.RunningFinalizer +
				", which volume-guard (pod-safety) removes when the claim"}},
		"being deleted, with the finalizer of a driver that may not be read": {func(f *ClaimFacts) {
			f.terminate(request.CloningFinalizer)
			f.Claim.Annotations = nil
			explained.Forbid(&f.Class)
		}, []string{"the owner of finalizer " + request.CloningFinalizer + " to remove it", "!stuck", "!kubectl patch"}},
		"being deleted, with the finalizer of a driver, and there is none": {func(f *ClaimFacts) {
			f.terminate(request.CloningFinalizer)
			f.Claim.Annotations, f.Claim.Spec.StorageClassName = nil, nil
			f.Class = explain.Read[*storagev1.StorageClass]{}
		}, []string{"is stuck", "no CSI driver manages this object"}},
		"being deleted, with a foreign finalizer": {func(f *ClaimFacts) { f.terminate("example.com/keep") },
			[]string{"the owner of finalizer example.com/keep to remove it"}},
	})
}
