package admission

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const driver, finalizer = "disk.csi.example.com", volume.Finalizer

var known = Drivers{
	volume.RoleOwner: {driver, "second.csi.example.com"}, volume.RoleCompanion: {"other.csi.example.com"},
	volume.RoleObserver: {"observed.csi.example.com"},
}

var deleted = &metav1.Time{Time: time.Unix(1, 0)}

// bound is a PV that needs protection and does not have it.
func bound() *v1.PersistentVolume {
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "u", Annotations: map[string]string{volume.AnnProvisionedBy: driver},
			Finalizers: []string{"kubernetes.io/pv-protection"}},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &v1.ObjectReference{Namespace: "ns", Name: "data", UID: "c"},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver,
				VolumeHandle: "h"}},
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound},
	}
}

// pvCases are the cases in which missingFinalizers, the webhook and the policy on a real API server must agree.
var pvCases = map[string]struct {
	change func(*v1.PersistentVolume)
	// want is the list of added finalizers, separated by spaces.
	want string
}{
	"claimed, policy Delete": {func(*v1.PersistentVolume) {}, finalizer},
	"without any finalizer":  {func(pv *v1.PersistentVolume) { pv.Finalizers = nil }, finalizer},
	"protected already": {func(pv *v1.PersistentVolume) { pv.Finalizers = append(pv.Finalizers, finalizer) },
		""},
	"not claimed":                  {func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef = nil }, ""},
	"reserved for a claim to come": {func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID = "" }, ""},
	"policy Retain": {func(pv *v1.PersistentVolume) {
		pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
	}, ""},
	"no policy": {func(pv *v1.PersistentVolume) { pv.Spec.PersistentVolumeReclaimPolicy = "" },
		""},
	"a twin": {func(pv *v1.PersistentVolume) { pv.Labels = map[string]string{volume.TwinLabel: "x"} }, ""},
	"other labels": {func(pv *v1.PersistentVolume) { pv.Labels = map[string]string{"a": "b"} },
		finalizer},
	"of a driver that is not listed": {
		func(pv *v1.PersistentVolume) { pv.Annotations[volume.AnnProvisionedBy] = "nobody.example.com" },
		"",
	},
	"of another driver that is listed": {
		func(pv *v1.PersistentVolume) { pv.Annotations[volume.AnnProvisionedBy] = "other.csi.example.com" },
		volume.CompanionFinalizer,
	},
	"of the second driver that is listed": {
		func(pv *v1.PersistentVolume) { pv.Annotations[volume.AnnProvisionedBy] = "second.csi.example.com" },
		finalizer,
	},
	"of a driver whose role adds none": {
		func(pv *v1.PersistentVolume) { pv.Annotations[volume.AnnProvisionedBy] = "observed.csi.example.com" },
		"",
	},
	"static": {func(pv *v1.PersistentVolume) { pv.Annotations = nil }, finalizer},
	"static, with other annotations": {
		func(pv *v1.PersistentVolume) { pv.Annotations = map[string]string{"a": "b"} },
		finalizer,
	},
	"static, of another driver": {func(pv *v1.PersistentVolume) {
		pv.Annotations, pv.Spec.CSI.Driver = nil,
			"nobody.example.com"
	}, ""},
	"static, of no CSI driver": {func(pv *v1.PersistentVolume) {
		pv.Annotations,
			pv.Spec.PersistentVolumeSource = nil, hostPath()
	}, ""},
	"migrated from an in-tree plugin":         {func(pv *v1.PersistentVolume) { migrate(pv, driver) }, finalizer},
	"migrated to a driver that is not listed": {func(pv *v1.PersistentVolume) { migrate(pv, "nobody.example.com") }, ""},
	"migrated to another than provisioned it": {
		func(pv *v1.PersistentVolume) { pv.Annotations[volume.AnnMigratedTo] = "other.csi.example.com" },
		finalizer + " " + volume.CompanionFinalizer,
	},
	"the same, and one of both is there": {func(pv *v1.PersistentVolume) {
		pv.Annotations[volume.AnnMigratedTo] = "other.csi.example.com"
		pv.Finalizers = append(pv.Finalizers, finalizer)
	}, volume.CompanionFinalizer},
	"in-tree and not migrated": {func(pv *v1.PersistentVolume) {
		migrate(pv, "")
		delete(pv.Annotations, volume.AnnMigratedTo)
	}, ""},
}

func hostPath() v1.PersistentVolumeSource {
	return v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/none"}}
}

func migrate(pv *v1.PersistentVolume, to string) {
	pv.Annotations = map[string]string{volume.AnnProvisionedBy: "kubernetes.io/host-path", volume.AnnMigratedTo: to}
	pv.Spec.PersistentVolumeSource = hostPath()
}

func TestMissingFinalizers(t *testing.T) {
	for sentence, c := range pvCases {
		t.Run(sentence, func(t *testing.T) {
			pv := bound()
			c.change(pv)
			if got := missingFinalizers(pv, known); !slices.Equal(got, strings.Fields(c.want)) {
				t.Errorf("Missing = %q, want %q", got, c.want)
			}
			if got := missingFinalizers(pv, nil); got != nil {
				t.Errorf("of no driver: %q", got)
			}
		})
	}
	pv := bound()
	pv.DeletionTimestamp = deleted // no API server accepts the creation of such a PV
	if got := missingFinalizers(pv, known); got != nil {
		t.Errorf("terminating: %q: the API server would refuse the write", got)
	}
}

// The test covers PVs of all kinds. The API server must add exactly the finalizers that the sidecar would add later, or
// each would undo the writes of the other.
func TestSameRuleAsSidecar(t *testing.T) {
	bools := []bool{false, true}
	wants := func(pv *v1.PersistentVolume) bool {
		d := reclaim.Decide(reclaim.Facts{Leading: true, Rules: reclaim.Rules{Driver: driver,
			Role: volume.RoleOwner},
			PV: volume.Of(pv)}, time.Unix(0, 0))
		return d.Action == reclaim.AddFinalizer
	}
	seen, wanted := 0, 0
	for _, policy := range []v1.PersistentVolumeReclaimPolicy{v1.PersistentVolumeReclaimDelete,
		v1.PersistentVolumeReclaimRetain, v1.PersistentVolumeReclaimRecycle} {
		for _, uid := range []types.UID{"", "c"} {
			for _, provisioner := range []string{"", driver, "kubernetes.io/host-path", "other"} {
				for _, migrated := range []string{"", driver, "other"} {
					for _, inTree := range bools {
						for _, named := range []string{driver, "other"} {
							for _, terminating := range bools {
								for _, twin := range bools {
									for _, protected := range bools {
										pv := bound()
										pv.Spec.PersistentVolumeReclaimPolicy = policy
										pv.Spec.ClaimRef.UID = uid
										annotate(pv, volume.AnnProvisionedBy, provisioner)
										annotate(pv, volume.AnnMigratedTo, migrated)
										pv.Spec.CSI.Driver = named
										if inTree {
											pv.Spec.PersistentVolumeSource = hostPath()
										}
										if terminating {
											pv.DeletionTimestamp = deleted
										}
										if twin {
											pv.Labels = map[string]string{volume.TwinLabel: "x"}
										}
										if protected {
											pv.Finalizers = append(pv.Finalizers, finalizer)
										}
										seen++
										want, got := wants(pv), len(missingFinalizers(pv, Drivers{volume.RoleOwner: {driver}})) == 1
										if want {
											wanted++
										}
										if want != got {
											t.Fatalf("the sidecar wants the finalizer: %v, the API server adds it: %v\n%+v", want, got, pv)
										}
									}
								}
							}
						}
					}
				}
			}
		}
	}
	if wanted == 0 || wanted == seen {
		t.Errorf("%d of %d wanted it: this test shows nothing", wanted, seen)
	}
}

func annotate(pv *v1.PersistentVolume, key, value string) {
	if value == "" {
		delete(pv.Annotations, key)
	} else {
		pv.Annotations[key] = value
	}
}

// pod is a pod that names the claim "data" and has a generic ephemeral volume "cache".
func pod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-0", UID: "pod"},
		Spec: v1.PodSpec{NodeName: "node", Volumes: []v1.Volume{
			{Name: "cache", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}},
			{
				Name:         "data",
				VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}},
			},
			{Name: "tmp", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		}},
	}
}

// terminating is a claim that is being deleted.
func terminating(name string) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "c",
		DeletionTimestamp: deleted}}
}

func ownedBy(uid string, c *v1.PersistentVolumeClaim) *v1.PersistentVolumeClaim {
	c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "web-0", UID: "pod", Controller: ptr.To(true)}}
	if uid != "pod" {
		c.OwnerReferences[0].UID = "earlier"
	}
	return c
}

func TestDenialReason(t *testing.T) {
	alive := terminating("data")
	alive.DeletionTimestamp = nil
	elsewhere := terminating("data")
	elsewhere.Namespace = "another"
	both := pod()
	both.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = "web-0-cache"
	cases := map[string]struct {
		pod   *v1.Pod
		claim *v1.PersistentVolumeClaim
		want  string
	}{
		"a claim that the pod names is being deleted": {pod(), terminating("data"),
			"PVC (data) is in scheduled for deletion state"},
		"it is not being deleted":     {pod(), alive, ""},
		"another claim is":            {pod(), terminating("another"), ""},
		"one of another namespace is": {pod(), elsewhere, ""},
		"the pod's own ephemeral volume is": {pod(), ownedBy("pod", terminating("web-0-cache")),
			"PVC (web-0-cache) is in scheduled for deletion state"},
		"an earlier pod's ephemeral volume is":                {pod(), ownedBy("earlier", terminating("web-0-cache")), ""},
		"a claim that only looks like an ephemeral volume is": {pod(), terminating("web-0-cache"), ""},
		"a claim that is also named, with any owner": {both, terminating("web-0-cache"),
			"PVC (web-0-cache) is in scheduled for deletion state"},
	}
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			if got := DenialReason(c.pod, c.claim); got != c.want {
				t.Errorf("Refusal = %q, want %q", got, c.want)
			}
		})
	}
	if names := claimsOf(pod()); len(names) != 2 || names["data"] || !names["web-0-cache"] {
		t.Errorf("ClaimsOf = %v", names)
	}
	if !slices.Equal(driversOf(&v1.PersistentVolume{}), nil) {
		t.Error("a PV that says nothing has a driver")
	}
}
