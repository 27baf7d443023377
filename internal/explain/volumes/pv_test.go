package volumes

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	engine "github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

func TestExplainPV(t *testing.T) {
	const attacher = "external-attacher/disk-csi-example-com"
	explained.Table(t, released, pvText, map[string]explained.Row[PVFacts]{
		"released, and nothing stands in the way: the volume is deleted": {func(*PVFacts) {},
			[]string{"PV pv is released (Reclaim): The claim is gone", "DeleteVolume, Reclaim (by csi-reclaimer beside " +
				driver + ", role owner)", "ns/data, gone", "To keep the volume, before the driver deletes it", "!Waits for",
				"!Not read"}},
		"bound": {func(f *PVFacts) { f.bound() },
			[]string{"PV pv is bound (Bound): The PV is in use by its claim.", "ns/data, bound", "!You can"}},
		"deleted while its claim lives": {func(f *PVFacts) { f.bound(); f.terminate(time.Hour) },
			[]string{"has been terminating for 60m and waits (TerminatingBound)", "claim ns/data to be deleted",
				`"persistentVolumeReclaimPolicy":"Retain"`, "kubectl delete pvc data -n ns"}},
		"deleted before its claim was bound to it": {func(f *PVFacts) {
			claim := f.bound()
			claim.Spec.VolumeName, claim.Status.Phase = "", v1.ClaimPending
			f.PV.Status.Phase = v1.VolumePending
			f.terminate(time.Hour)
		}, []string{"waits (TerminatingUnbound)", "claim ns/data to be deleted", "kubectl delete pvc data -n ns",
			"!to bind claim"}},
		"deleted while its claim, which is being deleted too, lives": {
			func(f *PVFacts) { f.bound().DeletionTimestamp = f.now(); f.terminate(time.Hour) },
			[]string{"kubectl reclaim explain pvc/data -n ns", "!kubectl delete pvc"},
		},
		"deleted before it was protected": {func(f *PVFacts) {
			f.PV.Finalizers = []string{"kubernetes.io/pv-protection"}
			f.bound()
			f.terminate(time.Minute)
		},
			[]string{"DeletionUnprotected", "finalizer kubernetes.io/pv-protection: The PV is terminating and bound"}},
		"several nodes may reach it, and no node lets it go": {func(f *PVFacts) {
			f.onNodes()
			f.policy(v1.PersistentVolumeReclaimRetain)
			f.terminate(time.Hour)
		}, []string{"has been terminating for 60m and waits (NodeUnclear)", "Wait, NodeUnclear",
			`kubectl patch pv pv -p '{"metadata":{"$deleteFromPrimitiveList/finalizers":["` + volume.Finalizer + `"]}}'`,
			"!RemoveFinalizer"}},
		"several nodes may reach it, and it is in use": {func(f *PVFacts) {
			f.onNodes()
			f.bound()
		}, []string{"PV pv is bound (NoNode): ", "so no node protects or deletes it", "!another node", "!waits"}},
		"several nodes may reach it, and a pod uses it": {func(f *PVFacts) {
			f.onNodes()
			f.bound()
			f.policy(v1.PersistentVolumeReclaimRetain)
			f.terminate(time.Hour)
		}, []string{`Keep volume "vol": claim ns/data may use it. This only removes the finalizer`, "!elete volume"}},
		"several nodes may reach it, and it is to be deleted": {func(f *PVFacts) { f.onNodes("a", "b") },
			[]string{"waits (NodeUnclear)", "!DeleteVolume"}},
		"one node reaches it, to be kept": {func(f *PVFacts) {
			f.onNodes("a", "a")
			f.policy(v1.PersistentVolumeReclaimRetain)
			f.terminate(time.Hour)
		}, []string{"RemoveFinalizer, PolicyKeepsVolume", "!NodeUnclear"}},
		"its name is another claim's now": {func(f *PVFacts) {
			claim := f.bound()
			claim.UID, claim.Spec.VolumeName = "other", ""
			f.PV.Status.Phase = v1.VolumeReleased
		},
			[]string{"(Reclaim)", "gone; a new claim has its name"}},
		"its name is another claim's now, which names the PV": {func(f *PVFacts) { f.restored() },
			[]string{"waits (ClaimNamesPV)", "gone; a new claim of that name names this PV (UID new, lost)",
				`kubectl patch pv pv -p '{"spec":{"claimRef":{"uid":"new","resourceVersion":null}}}'`,
				"kubectl delete pvc data -n ns"}},
		"the same, and that claim is being deleted": {func(f *PVFacts) { f.restored().DeletionTimestamp = f.now() },
			[]string{"waits (ClaimNamesPV)", "kubectl reclaim explain pvc/data -n ns", "!kubectl delete pvc"}},
		"an in-tree PV whose claim's name is another's now, which names the PV": {
			func(f *PVFacts) { withTwin(f); f.restored() },
			[]string{"waits (ClaimNamesPV)", `kubectl patch pv pv -p '{"spec":{"claimRef":{"uid":"new"`},
		},
		"released while its claim lives": {func(f *PVFacts) { f.bound(); f.PV.Status.Phase = v1.VolumeReleased },
			[]string{"waits (ClaimStillExists)", "claim ns/data to be deleted"}},
		"kept by its policy": {func(f *PVFacts) { f.policy("Retain"); f.PV.Finalizers = nil },
			[]string{"PV pv is released (PolicyKeepsVolume)", "To delete the volume too", "kubectl delete pv pv",
				`kubectl patch pv pv -p '{"spec":{"claimRef":{"uid":null,"resourceVersion":null}}}', and create claim data in`,
				"spec.volumeName: pv", "!/spec/claimRef"}},
		"kept by its policy, and a restored claim names it": {func(f *PVFacts) { f.policy("Retain"); f.restored() },
			[]string{"(PolicyKeepsVolume)", `"uid":"new"`, "!To use the volume again", "!To delete the volume too"}},
		"kept by its policy, and another PV has the volume": {func(f *PVFacts) {
			f.policy("Retain")
			f.sibling("other", func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeBound })
		}, []string{"(PolicyKeepsVolume)", "kubectl delete pv pv", "!To use the volume again", "!To delete the volume too"}},
		"kept by its policy, and other PVs are not known": {func(f *PVFacts) {
			f.policy("Retain")
			explained.Forbid(&f.PVs)
		}, []string{"(PolicyKeepsVolume)", "kubectl delete pv pv", "!To use the volume again", "!To delete the volume too"}},
		"kept by its policy, and its claim is not known": {func(f *PVFacts) {
			f.policy("Retain")
			explained.Forbid(&f.Claim)
		}, []string{"(PolicyKeepsVolume)", "kubectl delete pv pv", "!To delete the volume too"}},
		"held by a person": {func(f *PVFacts) { f.hold("audit"); f.provisioner() },
			[]string{"waits (Held)", `Its reason: "audit"`, "kubectl annotate pv pv csi-reclaimer.io/hold-", "!In doubt",
				"!To keep the volume"}},
		"held by a person, and no csi-reclaimer is seen": {func(f *PVFacts) { f.hold("audit"); f.renewed("pod-1", 0) },
			[]string{"waits (Held)", "In doubt     The annotation csi-reclaimer.io/hold keeps the volume only from csi-recl",
				"To keep the volume: kubectl patch pv pv -p", "To have the volume deleted"}},
		"braked": {func(f *PVFacts) { f.brake("pod-1") },
			[]string{"waits (DeletionsPaused)",
				"kubectl annotate lease -n kube-system disk-csi-example-com csi-reclaimer.io/brake-",
				"pod-1 leads (Lease kube-system/disk-csi-example-com)",
				"In doubt     Only csi-reclaimer keeps the volume for this reason (DeletionsPaused), and no Lease shows"}},
		"an annotation on the Lease of the provisioner beside csi-reclaimer": {func(f *PVFacts) {
			f.companion()
			f.relist()
			f.brake("pod-1")
		}, []string{"Lease kube-system/disk-csi-example-com has no effect", "set it with --role",
			"reads Lease disk-csi-example-com-reclaimer", "!DeletionsPaused"}},
		"attached to a node that is away": {
			func(f *PVFacts) { f.attach(node(v1.ConditionUnknown)).DeletionTimestamp = f.now() },
			[]string{"waits (Attached)", "csi-1 to node n1 (NotReady for 10m), detaching for",
				"VolumeAttachment csi-1 to node n1 to be deleted", "node.kubernetes.io/out-of-service"},
		},
		"attached to a node that is gone": {func(f *PVFacts) { f.attach(nil) },
			[]string{"n1 (gone from the cluster), attached", "kubectl delete volumeattachment csi-1"}},
		"attached to a node that works": {func(f *PVFacts) { f.attach(node(v1.ConditionTrue)) },
			[]string{"n1 (Ready), attached", "the pod on node n1", "!out-of-service", "!kubectl delete volumeattachment"}},
		"attached, and the detaching fails": {func(f *PVFacts) {
			a := f.attach(node(v1.ConditionTrue))
			a.DeletionTimestamp, a.Status.DetachError = f.now(), &storagev1.VolumeError{Message: "busy"}
		}, []string{driver + ` reports "busy"`, "check the log of the external-attacher of " + driver}},
		"attached by a driver that is gone": {func(f *PVFacts) { f.attach(node(v1.ConditionTrue)); f.uninstall() },
			[]string{"No program removes VolumeAttachment csi-1, because driver " + driver + " is gone"}},
		"another PV keeps the same volume": {func(f *PVFacts) {
			f.sibling(
				"other",
				func(o *v1.PersistentVolume) { o.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain },
			)
		}, []string{"waits (SharedHandle)", "It is PV other.", "PV other, policy Retain",
			"PV other to be deleted, or to get policy Delete and lose its claim"}},
		"another PV keeps a volume whose handle differs in case": {func(f *PVFacts) {
			f.sibling("other", func(o *v1.PersistentVolume) {
				o.Spec.PersistentVolumeReclaimPolicy, o.Spec.CSI.VolumeHandle = v1.PersistentVolumeReclaimRetain, "VOL"
			})
		}, []string{"waits (SharedHandle)", `Its handle "VOL" and that of this PV, "vol", differ in case`}},
		"another PV of the volume is to be deleted too, and its claim is gone": {func(f *PVFacts) { f.siblingClaim(nil) },
			[]string{"(Reclaim)"}},
		"another PV of the volume is to be deleted too, and a restored claim names it": {func(f *PVFacts) {
			f.siblingClaim(&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "new"},
				Spec: v1.PersistentVolumeClaimSpec{VolumeName: "other"}})
		}, []string{"waits (SharedHandle)", "It is PV other.", "claim ns/others, which keeps PV other, to be deleted",
			"!PV other to be deleted"}},
		"another in-tree PV of the volume, whose claim is gone": {func(f *PVFacts) { withTwin(f); f.siblingClaim(nil) },
			[]string{"CreateTwin"}},
		"another in-tree PV of the volume, which a restored claim names": {func(f *PVFacts) {
			withTwin(f)
			f.siblingClaim(&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "newer"},
				Spec: v1.PersistentVolumeClaimSpec{VolumeName: "other"}})
		}, []string{", " + string(intree.ReasonSharedSource)}},
		"of two other PVs of the volume, one keeps it": {func(f *PVFacts) {
			f.siblingClaim(nil)
			f.sibling("keeper", func(o *v1.PersistentVolume) { o.Status.Phase = v1.VolumeBound })
		}, []string{"waits (SharedHandle)", "It is PV keeper.", "Waits for    PV keeper to be deleted", "!PV other to be"}},
		"a migrated PV, and a CSI PV keeps the same volume": {func(f *PVFacts) {
			f.sibling("static", ofEBSDriver)
			ofEBS(f.PV)
			f.PV.Annotations[volume.AnnMigratedTo] = ebsDriver
		}, []string{"waits (SharedHandle)", "It is PV static."}},
		"a CSI PV, and a migrated PV keeps the same volume": {func(f *PVFacts) {
			ofEBSDriver(f.PV)
			f.PV.Status.Phase = v1.VolumeReleased
			f.sibling("migrated", func(o *v1.PersistentVolume) {
				ofEBS(o)
				o.Annotations[volume.AnnMigratedTo], o.Status.Phase = ebsDriver, v1.VolumeBound
			})
		}, []string{"waits (SharedHandle)", "It is PV migrated."}},
		"a PV that is not migrated, and a CSI PV of the same volume": {func(f *PVFacts) {
			f.sibling("static", ofEBSDriver)
			ofEBS(f.PV)
		}, []string{"(Protect)", "!PV static"}},
		"an in-tree PV with a hold that keeps nothing": {func(f *PVFacts) {
			withTwin(f)
			f.PV.DeletionTimestamp = nil
			f.hold("audit")
		}, []string{"(HoldNotObeyed)", "!To have the volume deleted", "To keep the volume: kubectl patch pv pv -p " +
			`'{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'`}},
		"the driver is gone while the PV is being deleted": {func(f *PVFacts) { f.uninstall(); f.terminate(24 * time.Hour) },
			[]string{"has been terminating for 24h and is stuck: no program removes " + volume.Finalizer + ", because driver " +
				driver + " is gone", "forever", "Install the driver again",
				`kubectl patch pv pv -p '{"metadata":{"$deleteFromPrimitiveList/finalizers":["` + volume.Finalizer + `"]}}'`}},
		"the driver is gone, and the PV is not being deleted": {func(f *PVFacts) { f.uninstall() },
			[]string{"PV pv is released, and nothing happens to it: the next step is DeleteVolume (Reclaim), but driver " +
				driver + " is gone"}},
		"the driver has no CSIDriver, but a node runs it": {
			func(f *PVFacts) { f.uninstall(); f.OnNodes = explain.Found([]string{driver}); f.terminate(time.Hour) },
			[]string{"!is stuck", driver + ", installed"},
		},
		"the driver has neither, but its sidecar leads": {func(f *PVFacts) {
			f.uninstall()
			f.renewed("pod-1", time.Second)
			f.terminate(time.Hour)
		},
			[]string{"!is stuck"}},
		"the driver has neither, and its sidecar led once": {func(f *PVFacts) {
			f.uninstall()
			f.renewed("pod-1", time.Hour)
			f.terminate(time.Hour)
		},
			[]string{"is stuck"}},
		"whether the driver is gone may not be read": {func(f *PVFacts) {
			f.uninstall()
			explained.Forbid(&f.OnNodes)
			f.terminate(time.Hour)
		}, []string{"!is stuck", "not known whether it is installed",
			"CSINodes: forbidden. So it is not known whether a node runs a driver."}},
		"the attacher of a driver that is gone holds it": {
			func(f *PVFacts) { f.PV.Finalizers = []string{attacher}; f.uninstall(); f.terminate(time.Hour) },
			[]string{"no program removes " + attacher + ", because driver " + driver + " is gone"},
		},
		"an unknown finalizer": {func(f *PVFacts) {
			f.PV.Finalizers = []string{"example.com/keep"}
			f.PV.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "backup",
				FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{"v:\"example.com/keep\"":{}}}}`)}}
			f.terminate(time.Hour)
		}, []string{"example.com/keep: its owner is unknown (added by backup)",
			"the owner of finalizer example.com/keep to remove it (added by backup)", "only if that program is gone"}},
		"an in-tree plugin that no longer exists": {
			func(f *PVFacts) { inTree(f); f.PV.Spec.Glusterfs = &v1.GlusterfsPersistentVolumeSource{} },
			[]string{"is stuck: no program removes " + intree.Finalizer +
				", because Kubernetes removed the in-tree plugin glusterfs", "!Install the driver"},
		},
		"an in-tree plugin that is still there in this version": {func(f *PVFacts) {
			inTree(f)
			f.PV.Spec.RBD, f.Minor = &v1.RBDPersistentVolumeSource{RBDImage: "x"}, 30
		}, []string{"!is stuck"}},
		"an in-tree plugin that this version has no more": {func(f *PVFacts) {
			inTree(f)
			f.PV.Spec.RBD, f.Minor = &v1.RBDPersistentVolumeSource{RBDImage: "x"}, 31
		}, []string{"Kubernetes removed the in-tree plugin rbd"}},
		"a plugin that the PV controller does not find": {func(f *PVFacts) {
			inTree(f)
			f.PV.Spec.HostPath = &v1.HostPathVolumeSource{Path: "/x"}
			f.PV.Status.Phase, f.PV.Status.Message = v1.VolumeFailed,
				"error getting deleter volume plugin for volume: no deletable volume plugin matched"
		}, []string{"kube-controller-manager finds no plugin for the volume"}},
		"no known provisioner": {func(f *PVFacts) {
			f.PV.Annotations = nil
			f.PV.Spec.CSI = nil
			f.PV.Spec.HostPath = &v1.HostPathVolumeSource{Path: "/x"}
		},
			[]string{"(NotOurs)", "none: a person created the PV", "(by kube-controller-manager)",
				"!csi-reclaimer beside"}},
		"a CSI PV whose annotation names an in-tree plugin": {func(f *PVFacts) { ofForeignPlugin(f) },
			[]string{"(NotOurs)", "No program deletes the volume: the annotation pv.kubernetes.io/provisioned-by names " +
				"the in-tree plugin kubernetes.io/rbd, and the source of the PV is a volume of driver " + driver + "."}},
		"an in-tree PV that volume-guard is to delete": {withTwin,
			[]string{"CreateTwin", "(by volume-guard)", "no replica holds its Lease"}},
		"and volume-guard leads": {func(f *PVFacts) { withTwin(f); f.lease("volume-guard", "pod-1", time.Second) },
			[]string{"CreateTwin", "!no replica holds its Lease"}},
		"and who leads may not be read": {func(f *PVFacts) { withTwin(f); explained.Forbid(&f.Leases) },
			[]string{"CreateTwin", "!no replica holds its Lease"}},
		"an in-tree PV that kube-controller-manager is to delete": {func(f *PVFacts) {
			withTwin(f)
			f.PV.ManagedFields[0].Manager = "kube-controller-manager"
		}, []string{"(by kube-controller-manager)", "!no replica holds its Lease", "and waits"}},
		"an in-tree PV whose claim lives": {func(f *PVFacts) {
			withTwin(f)
			f.bound()
			f.PV.Status.Phase = v1.VolumeReleased
		},
			[]string{"waits (ClaimStillExists)", "!no replica holds its Lease"}},
		"an in-tree PV in use": {func(f *PVFacts) { withTwin(f); f.bound(); f.PV.DeletionTimestamp = nil },
			[]string{"PV pv is bound", "!waits"}},
		"an in-tree PV that has its twin": {func(f *PVFacts) {
			withTwin(f)
			f.sibling(volume.TwinName("pv"), func(o *v1.PersistentVolume) {
				o.Labels = map[string]string{volume.TwinLabel: string(f.PV.UID)}
				o.Annotations["csi-reclaimer.io/twin-of"] = "pv"
				o.Finalizers, o.DeletionTimestamp = nil, nil
			})
		}, []string{"waits (TwinDeleting)", "PV pv-reclaim, policy Delete"}},
		"a twin": {func(f *PVFacts) { f.PV.Labels = map[string]string{volume.TwinLabel: "other"} },
			[]string{"(Twin)", "a second name of another PV's volume"}},
		"the last report of the driver": {func(f *PVFacts) {
			f.Events = explain.Found([]v1.Event{{Source: v1.EventSource{Component: "csi-reclaimer"},
				Reason:  "VolumeFailedDelete",
				Message: "in use", LastTimestamp: ago(time.Minute)}})
		}, []string{"60s ago, csi-reclaimer: VolumeFailedDelete: in use"}},
		"the role is guessed from the companion's finalizer": {func(f *PVFacts) { f.companion(); f.relist() },
			[]string{"role companion", "(LeftToPeer)", "guessed from the driver's finalizers"}},
		"the role is set": {func(f *PVFacts) { f.Role = volume.RoleObserver },
			[]string{"role observer", "!guessed"}},
	})
}

func (f *PVFacts) now() *metav1.Time { at := ago(time.Minute); return &at }

// inTree turns the PV into a terminating one of an in-tree plugin.
func inTree(f *PVFacts) {
	f.PV.Spec.CSI = nil
	f.PV.Annotations["pv.kubernetes.io/provisioned-by"] = "kubernetes.io/plugin"
	f.PV.Finalizers = []string{intree.Finalizer}
	f.terminate(time.Hour)
}

const ebsDriver = "ebs.csi.aws.com"

// ofEBSDriver turns the PV into a static one of the driver to which the plugin aws-ebs is migrated, in use.
func ofEBSDriver(o *v1.PersistentVolume) {
	o.Annotations, o.Spec.CSI.Driver, o.Status.Phase = nil, ebsDriver, v1.VolumeBound
}

// ofEBS gives the PV the volume "vol" of the in-tree plugin aws-ebs.
func ofEBS(o *v1.PersistentVolume) {
	o.Annotations = map[string]string{volume.AnnProvisionedBy: "kubernetes.io/aws-ebs"}
	o.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{
		AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol"}}
}

// ofForeignPlugin has the annotation of a CSI PV name an in-tree plugin.
func ofForeignPlugin(f *PVFacts) {
	f.PV.Annotations = map[string]string{volume.AnnProvisionedBy: "kubernetes.io/rbd"}
}

func TestExplainPVOfProvisionerWithoutCSI(t *testing.T) {
	f := released()
	f.uninstall()
	ofLocalPath(&f)
	f.terminate(time.Hour)
	f.relist()
	expect(t, pvText(f), "Provisioner rancher.io/local-path, which is not a CSI driver, decides",
		volume.Finalizer+": provisioner rancher.io/local-path removes it", "!is gone", "!stuck", "!by hand",
		"!csi-reclaimer of")
	s := StatusOf(StatusFacts{ClusterFacts: f.ClusterFacts}, "")
	if d := s.Drivers[0]; d.Role != "other" || d.Protected+d.Unprotected != 0 || len(s.Warnings) > 0 {
		t.Errorf("%+v", s)
	}
	StatusFacts{ClusterFacts: f.ClusterFacts}.VisitPVs(func(_ explain.PV, s Standing) {
		if s.Attention {
			t.Errorf("a person is called: %+v", s)
		}
	})
}

func TestCSIPVOfInTreePluginInStatus(t *testing.T) {
	f := released()
	ofForeignPlugin(&f)
	f.relist()
	visited := 0
	StatusFacts{ClusterFacts: f.ClusterFacts}.VisitPVs(func(_ explain.PV, s Standing) {
		visited++
		expect(t, s.Text, "No program deletes the volume")
	})
	if visited != 1 {
		t.Errorf("%d PVs are decided on", visited)
	}
}

// No decision deletes a volume while a fact that it depends on is unread.
func TestUnreadFactsPreventDeletion(t *testing.T) {
	for sentence, hide := range map[string]func(*PVFacts){
		"the claim may not be read":              func(f *PVFacts) { explained.Forbid(&f.Claim) },
		"the claim was not read":                 func(f *PVFacts) { explained.Skip(&f.Claim) },
		"the claim of another PV of the volume":  func(f *PVFacts) { f.siblingClaim(nil); f.SiblingClaims = nil },
		"the attachments may not be read":        func(f *PVFacts) { explained.Forbid(&f.Attachments) },
		"the attachments were not read":          func(f *PVFacts) { explained.Skip(&f.Attachments) },
		"the list of PVs may not be read":        func(f *PVFacts) { explained.Forbid(&f.PVs) },
		"an in-tree PV, and not the list of PVs": func(f *PVFacts) { withTwin(f); explained.Forbid(&f.PVs) },
		"an in-tree PV's claim is not read":      func(f *PVFacts) { withTwin(f); explained.Skip(&f.Claim) },
		"an in-tree PV, the claim of another": func(f *PVFacts) {
			withTwin(f)
			f.siblingClaim(nil)
			f.SiblingClaims = nil
		},
		"an in-tree PV's attachments are not": func(f *PVFacts) { withTwin(f); explained.Skip(&f.Attachments) },
	} {
		f := released()
		hide(&f)
		d := ExplainPV(f).Decision
		if d.Action != "" || d.Reason != string(engine.ReasonAPIReadFailed) {
			t.Errorf("%s: %+v", sentence, d)
		}
		its := []string{"the claim may not be read", "the claim was not read", "an in-tree PV's claim is not read"}
		needsClaim := f.Indexed().decide(explain.PVOf(f.PV), f.Claim).needsClaim
		if needsClaim != slices.Contains(its, sentence) {
			t.Errorf("%s: the claim is to be read: %t", sentence, needsClaim)
		}
	}
	f := released()
	if d := ExplainPV(f).Decision; d.Action != engine.DeleteVolume.String() {
		t.Errorf("with everything read: %+v, so this test shows nothing", d)
	}
	withTwin(&f)
	if d := ExplainPV(f).Decision; d.Action != intree.CreateTwin.String() {
		t.Errorf("in-tree, with everything read: %+v, so this test shows nothing", d)
	}
}

// withTwin turns the PV into an in-tree one whose volume is deleted by way of a twin.
func withTwin(f *PVFacts) {
	inTree(f)
	f.PV.Spec.HostPath = &v1.HostPathVolumeSource{Path: "/x"}
	f.PV.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: intree.FieldManager,
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{"v:\"` + intree.Finalizer + `\"":{}}}}`)}}
	f.relist()
}

// TestExplainPVOfGoneDriver says nowhere that a step is taken.
func TestExplainPVOfGoneDriver(t *testing.T) {
	f := released()
	f.terminate(time.Hour)
	f.uninstall()
	expect(t, pvText(f), "!is being deleted", "DeleteVolume, Reclaim (by csi-reclaimer beside "+driver+
		", role owner, when the driver is installed again)",
		"Driver "+driver+" is gone: nothing happens to the PV until it is installed again.")
	facts := StatusFacts{ClusterFacts: f.ClusterFacts}
	facts.PVs = explain.Found([]explain.PV{explain.PVOf(f.PV)})
	facts.Claims = map[volume.ClaimRef]explain.Read[*v1.PersistentVolumeClaim]{facts.PVs.Value[0].Claim: f.Claim}
	facts.VisitPVs(func(_ explain.PV, s Standing) { expect(t, s.Text, "!is being deleted", "is gone: nothing happens") })

	f = released()
	f.hold("why")
	f.uninstall()
	expect(t, pvText(f), "Wait, Held (by csi-reclaimer beside "+driver+", role owner)\n")
}

func TestExplainTerminatingBoundNamesPods(t *testing.T) {
	f := released()
	f.bound()
	f.terminate(time.Hour)
	uses := func(name, claim string, ended bool) pvc.Pod {
		return pvc.Pod{Namespace: "ns", Name: name, Scheduled: true, Ended: ended, Claims: []string{claim}}
	}
	f.Pods = explain.Found([]pvc.Pod{uses("db-0", "data", false), uses("other", "x", false), uses("backup", "data", true)})
	expect(t, pvText(f), "Used by      pods db-0, backup\n", "Waits for    claim ns/data to be deleted\n",
		"             pod db-0 to end, which uses the claim\n", "!other")
	explained.Forbid(&f.Pods)
	expect(t, pvText(f), "!Used by", "Pods: forbidden. So it is not known which pods use the claim.")
}
