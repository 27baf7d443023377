package volume

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const driver = "disk.csi.example.com"

// source returns a PV with this source.
func source(of v1.PersistentVolumeSource) *v1.PersistentVolume {
	return &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: of}}
}

func TestOf(t *testing.T) {
	csi := func(change func(*v1.PersistentVolume)) *v1.PersistentVolume {
		o := source(v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "vol-1"}})
		o.Annotations = map[string]string{}
		change(o)
		return o
	}
	with := func(annotations map[string]string) *v1.PersistentVolume {
		return csi(func(o *v1.PersistentVolume) { o.Annotations = annotations })
	}
	finalized := func(finalizer string) *v1.PersistentVolume {
		return csi(func(o *v1.PersistentVolume) { o.Finalizers = []string{finalizer} })
	}
	claimed := func(uid types.UID) *v1.PersistentVolume {
		return csi(func(o *v1.PersistentVolume) {
			o.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: "claim", UID: uid}
		})
	}
	at := func(terms ...string) *v1.PersistentVolume {
		return csi(func(o *v1.PersistentVolume) { o.Spec.NodeAffinity = affinityTo(terms...) })
	}
	cases := map[string]struct {
		o    *v1.PersistentVolume
		want func(PV) bool
	}{
		"a volume of the driver": {with(nil),
			func(pv PV) bool { return pv.Driver == driver && pv.Handle == "vol-1" && !pv.InTree }},
		"attached once: the attacher's finalizer has dashes for dots": {finalized("external-attacher/disk-csi-example-com"),
			func(pv PV) bool { return pv.WasAttached }},
		"never attached": {finalized("kubernetes.io/pv-protection"), func(pv PV) bool { return !pv.WasAttached }},
		"claimed": {claimed("uid"), func(pv PV) bool {
			return pv.Claimed() && pv.Claim == ClaimRef{Namespace: "ns", Name: "claim", UID: "uid"}
		}},
		"reserved for a claim to come": {claimed(""), func(pv PV) bool { return !pv.Claimed() }},
		"an affinity that requires nothing": {csi(func(o *v1.PersistentVolume) {
			o.Spec.NodeAffinity = &v1.VolumeNodeAffinity{}
		}), func(pv PV) bool { return pv.Affinity == "" }},
		"reachable from either of two places of one term": {at("zone In a b"),
			func(pv PV) bool { return pv.Affinity == "" }},
		"only the other of the annotations that name the Secret": {with(map[string]string{AnnDeletionSecretNamespace: "ns"}),
			func(pv PV) bool { return !pv.SecretKnown }},
		"held without a reason": {with(map[string]string{HoldAnnotation: ""}),
			func(pv PV) bool { return pv.Held && pv.HeldBecause == "" }},
		"only one of the annotations that name the Secret": {with(map[string]string{AnnDeletionSecretName: "s"}),
			func(pv PV) bool { return !pv.SecretKnown }},
		"both annotations, empty": {with(map[string]string{AnnDeletionSecretName: "", AnnDeletionSecretNamespace: ""}),
			func(pv PV) bool { return pv.SecretKnown && pv.DeletionSecret == (SecretRef{}) }},
		"the class by its old annotation": {csi(func(o *v1.PersistentVolume) {
			o.Spec.StorageClassName, o.Annotations[annStorageClass] = "new", "old"
		}), func(pv PV) bool { return pv.StorageClass == "old" }},
		"reachable from two places": {at("zone In a,rack In 1", "zone In b"), func(pv PV) bool {
			at := pv.Segments()
			return len(at) == 2 && len(at[0]) == 2 && at[0]["zone"] == "a" && at[0]["rack"] == "1" && at[1]["zone"] == "b"
		}},
		"reachable in a way that labels do not tell": {at("zone NotIn a"),
			func(pv PV) bool { return pv.Affinity == "" && pv.Segments() == nil }},
		"reachable from more places than are kept": {at("zone In " + strings.Repeat("a", maxAffinity)),
			func(pv PV) bool { return pv.Segments() == nil }},
		"terminating": {csi(func(o *v1.PersistentVolume) { now := metav1.Unix(7, 0); o.DeletionTimestamp = &now }),
			func(pv PV) bool { return pv.Terminating && pv.TerminatingSince == 7 }},
		"a migrated volume": {source(v1.PersistentVolumeSource{
			AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://us-east-1a/vol-0123456789abcdef0"}}),
			func(pv PV) bool {
				return pv.InTree && pv.Driver == "ebs.csi.aws.com" && pv.Handle == "vol-0123456789abcdef0"
			}},
		"a volume that no driver has": {source(v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/x"}}),
			func(pv PV) bool { return pv.InTree && pv.Driver == "" && pv.Handle == "" }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if pv := Of(c.o); !c.want(pv) {
				t.Errorf("Of = %+v", pv)
			}
		})
	}
}

func TestHoldKeepsVolume(t *testing.T) {
	pv := PV{Policy: PolicyDelete, Phase: PhaseReleased, Claim: ClaimRef{UID: "uid"}}
	if pv.Keeps() {
		t.Errorf("a deletable PV keeps its volume: %+v", pv)
	}
	if pv.Held = true; !pv.Keeps() {
		t.Errorf("a hold does not keep the volume: %+v", pv)
	}
}

// An unknown policy or phase permits no deletion.
func TestDeletable(t *testing.T) {
	policies := map[v1.PersistentVolumeReclaimPolicy]Policy{"Delete": PolicyDelete, "Retain": PolicyRetain,
		"Recycle": PolicyRecycle, "": PolicyUnknown, "delete": PolicyUnknown}
	phases := map[v1.PersistentVolumePhase]Phase{"Pending": PhasePending, "Available": PhaseAvailable, "Bound": PhaseBound,
		"Released": PhaseReleased, "Failed": PhaseFailed, "": PhaseUnknown, "released": PhaseUnknown}
	for policy, wantPolicy := range policies {
		for phase, wantPhase := range phases {
			for _, uid := range []types.UID{"", "uid"} {
				o := &v1.PersistentVolume{}
				o.Spec.PersistentVolumeReclaimPolicy, o.Status.Phase = policy, phase
				o.Spec.ClaimRef = &v1.ObjectReference{UID: uid}
				pv, released := Of(o), phase == v1.VolumeReleased || phase == v1.VolumeFailed
				if pv.Policy != wantPolicy || pv.Phase != wantPhase || pv.Released() != released ||
					pv.Deletable() != (policy == "Delete" && released && uid != "") || pv.Keeps() == pv.Deletable() {
					t.Errorf("policy %q, phase %q, claim %q: deletable %t: %+v", policy, phase, uid, pv.Deletable(), pv)
				}
			}
		}
	}
}

func TestOwner(t *testing.T) {
	for sentence, c := range map[string]struct {
		pv   PV
		want string
	}{
		"nothing is known":                 {PV{}, ""},
		"static: the driver that it names": {PV{Driver: driver}, driver},
		"provisioned: the provisioner":     {PV{Driver: driver, ProvisionedBy: "other"}, "other"},
		"migrated: the CSI driver": {PV{Driver: driver, ProvisionedBy: "kubernetes.io/x", MigratedTo: driver,
			InTree: true}, driver},
		"not migrated yet: the in-tree plugin": {PV{Driver: driver, ProvisionedBy: "kubernetes.io/x", InTree: true},
			"kubernetes.io/x"},
		"static, of an in-tree plugin: no provisioner": {PV{Driver: driver, InTree: true}, ""},
		"a twin: only its maker":                       {PV{Driver: driver, TwinOf: "u"}, ""},
	} {
		if got := c.pv.Owner(); got != c.want {
			t.Errorf("%s: %q, want %q", sentence, got, c.want)
		}
	}
}

// FuzzOf reads PVs with any content: without a panic or an endless loop, and without ownership of another driver's PV.
func FuzzOf(f *testing.F) {
	f.Add([]byte(`{"metadata":{"annotations":{"csi-reclaimer.io/hold":"x"}},"spec":{"csi":{"driver":"a","volumeHandle":"b"}}}`))
	f.Add([]byte(`{"spec":{"awsElasticBlockStore":{"volumeID":"aws:///"}}}`))
	f.Add([]byte(`{"spec":{"azureFile":{"secretName":""}},"metadata":{"annotations":{"pv.kubernetes.io/migrated-to":"x"}}}`))
	f.Add([]byte(`{"spec":{"vsphereVolume":{"volumePath":"[a] b"}}}`))
	f.Add([]byte(`{"spec":{"gcePersistentDisk":{"pdName":"p"},"nodeAffinity":{"required":{"nodeSelectorTerms":[{}]}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var o v1.PersistentVolume
		if json.Unmarshal(data, &o) != nil {
			return
		}
		pv := Of(&o)
		if len(pv.HeldBecause) > MaxHoldReason+len("…") || !utf8.ValidString(pv.HeldBecause) &&
			utf8.ValidString(o.Annotations[HoldAnnotation]) {
			t.Errorf("held because %q", pv.HeldBecause)
		}
		if pv.OwnedBy(driver) && pv.ProvisionedBy != driver && pv.MigratedTo != driver && pv.Driver != driver {
			t.Errorf("ours: %+v", pv)
		}
	})
}

func TestHandleKey(t *testing.T) {
	const one, same = "/subscriptions/s/resourceGroups/mc_x/disks/d", "/subscriptions/s/resourcegroups/MC_X/disks/d"
	if HandleKey(one) != HandleKey(same) || HandleKey("vol-1") == HandleKey("vol-2") {
		t.Errorf("keys %q, %q, %q", HandleKey(one), HandleKey(same), HandleKey("vol-1"))
	}
}
