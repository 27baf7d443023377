package volumes

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

var (
	now, ago, expect = explained.Now, explained.Ago, explained.Expect
	errForbidden     = explained.ErrForbidden
)

const driver = "disk.csi.example.com"

// released is a provisioned PV with policy Delete whose claim is gone. Every object is readable, and the driver is
// installed.
func released() PVFacts {
	f := PVFacts{
		PV: &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "u", ResourceVersion: "7", Finalizers: []string{volume.Finalizer},
				Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": driver}},
			Spec: v1.PersistentVolumeSpec{
				PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
				ClaimRef:                      &v1.ObjectReference{Namespace: "ns", Name: "data", UID: "c"},
				PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver,
					VolumeHandle: "vol"}},
			},
			Status: v1.PersistentVolumeStatus{Phase: v1.VolumeReleased},
		},
		Claim: explain.Found[*v1.PersistentVolumeClaim](nil), Nodes: map[string]explain.Read[*v1.Node]{},
		Events: explain.Found[[]v1.Event](nil),
	}
	f.ClusterFacts = ClusterFacts{
		Now: now(), PVs: explain.Found([]explain.PV{explain.PVOf(f.PV)}),
		Attachments: explain.Found[[]storagev1.VolumeAttachment](nil),
		Installed:   explain.Found([]string{driver}), OnNodes: explain.Found[[]string](nil),
		Leases:   explain.Found[[]coordinationv1.Lease](nil),
		InFlight: explain.Found(explain.InFlightLogs{}),
	}
	return f
}

func (f *PVFacts) policy(to v1.PersistentVolumeReclaimPolicy) {
	f.PV.Spec.PersistentVolumeReclaimPolicy = to
}

func (f *PVFacts) hold(why string) { f.PV.Annotations[volume.HoldAnnotation] = why }

// companion has the PV carry the companion's finalizer instead.
func (f *PVFacts) companion() { f.PV.Finalizers = []string{volume.CompanionFinalizer} }

// relist makes the PV the only one of the list.
func (f *PVFacts) relist() { f.PVs = explain.Found([]explain.PV{explain.PVOf(f.PV)}) }

// onNodes has csi-reclaimer run on each node, and the PV be reached from these nodes, none for no affinity.
func (f *PVFacts) onNodes(names ...string) {
	f.InFlight.Value.OnNodes = map[string]bool{driver: true}
	if len(names) == 0 {
		return
	}
	f.PV.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{}}
	for _, name := range names {
		f.PV.Spec.NodeAffinity.Required.NodeSelectorTerms = append(f.PV.Spec.NodeAffinity.Required.NodeSelectorTerms,
			v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
				{Key: "node", Operator: v1.NodeSelectorOpIn, Values: []string{name}}}})
	}
}

func (f *PVFacts) terminate(since time.Duration) { f.PV.DeletionTimestamp = ptr.To(ago(since)) }

// bound binds the PV to its claim again.
func (f *PVFacts) bound() *v1.PersistentVolumeClaim {
	f.PV.Status.Phase = v1.VolumeBound
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "c"},
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv"}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}
	f.Claim = explain.Found(claim)
	return claim
}

// restored replaces the claim by a new one of the same name, which names the PV.
func (f *PVFacts) restored() *v1.PersistentVolumeClaim {
	claim := f.bound()
	claim.UID, claim.Status.Phase = "new", v1.ClaimLost
	f.PV.Status.Phase = v1.VolumeReleased
	return claim
}

// attach attaches the PV to a node; nil means that the node is gone.
func (f *PVFacts) attach(node *v1.Node) *storagev1.VolumeAttachment {
	f.Attachments = explain.Found([]storagev1.VolumeAttachment{explained.Attachment("csi-1", "n1", "pv", driver)})
	f.Nodes["n1"] = explain.Found(node)
	return &f.Attachments.Value[0]
}

func node(ready v1.ConditionStatus) *v1.Node { return explained.Node("n1", ready) }

func (w *ClusterFacts) uninstall() { explained.Clear(&w.Installed) }

// lease adds a Lease that who last renewed d ago. annotations are pairs of key and value.
func (w *ClusterFacts) lease(name, who string, d time.Duration, annotations ...string) {
	if who != "" {
		who += "_6f1c" // the random part of an identity
	}
	l := *explained.Lease(name, who, d)
	for i := 0; i < len(annotations); i += 2 {
		l.Annotations[annotations[i]] = annotations[i+1]
	}
	w.Leases.Value = append(w.Leases.Value, l)
}

// renewed adds the Lease of the driver, which who last renewed d ago. brake adds one with the annotation of the brake.
func (w *ClusterFacts) renewed(who string, d time.Duration) { w.lease("disk-csi-example-com", who, d) }
func (w *ClusterFacts) brake(who string) {
	w.lease("disk-csi-example-com", who, 0, reclaim.BrakeAnnotation, "stop")
}

// provisioner adds the held Lease of a csi-reclaimer that is the driver's provisioner.
func (w *ClusterFacts) provisioner() {
	w.renewed("pod-1", 0)
	w.Leases.Value[len(w.Leases.Value)-1].Labels = map[string]string{objects.DriverLabel: driver}
}

// sibling adds another PV of the same volume.
func (f *PVFacts) sibling(name string, change func(*v1.PersistentVolume)) {
	o := f.PV.DeepCopy()
	o.Name, o.UID = name, types.UID(name)
	change(o)
	f.PVs.Value = append(f.PVs.Value, explain.PVOf(o))
}

// siblingClaim adds another PV of the volume that is due for deletion, and the claim that its claimRef names.
func (f *PVFacts) siblingClaim(claim *v1.PersistentVolumeClaim) {
	f.sibling("other", func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef.Name = "others" })
	other := f.PVs.Value[len(f.PVs.Value)-1]
	f.SiblingClaims = map[volume.ClaimRef]explain.Read[*v1.PersistentVolumeClaim]{other.Claim: explain.Found(claim)}
}

func pvText(f PVFacts) string       { return ExplainPV(f).Wrapped(true, 0) }
func claimText(f ClaimFacts) string { return ExplainClaim(f).Wrapped(false, 0) }
