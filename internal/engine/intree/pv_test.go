package intree

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const (
	inUseFinalizer = "kubernetes.io/pv-protection"
	kcm            = "kube-controller-manager"
)

// fields is an entry of managedFields.
func fields(manager, set string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(set)}
}

func TestFinalizerWriter(t *testing.T) {
	const (
		onlyG   = `{"f:metadata":{"f:finalizers":{"v:\"kubernetes.io/pv-controller\"":{}}}}`
		another = `{"f:metadata":{"f:finalizers":{".":{},"v:\"kubernetes.io/pv-protection\"":{}}}}`
	)
	cases := map[string]struct {
		on      bool
		entries []metav1.ManagedFieldsEntry
		want    Writer
		manager string
	}{
		"off, despite entries": {entries: []metav1.ManagedFieldsEntry{fields(kcm, onlyG)},
			want: WriterNone},
		"we did": {on: true, entries: []metav1.ManagedFieldsEntry{fields(kcm, another),
			fields(FieldManager, onlyG)}, want: WriterSelf},
		"the controller manager did": {on: true, entries: []metav1.ManagedFieldsEntry{fields(FieldManager, another),
			fields(kcm, onlyG)},
			want: WriterOther, manager: kcm},
		"a person did": {on: true, entries: []metav1.ManagedFieldsEntry{fields("kubectl-edit", onlyG)},
			want: WriterOther, manager: "kubectl-edit"},
		"we did, and another too": {on: true, entries: []metav1.ManagedFieldsEntry{fields("kubectl", onlyG),
			fields(FieldManager, onlyG)}, want: WriterSelf},
		"not declared": {on: true, want: WriterUnknown},
		"others wrote other fields": {on: true, entries: []metav1.ManagedFieldsEntry{fields(kcm, another)},
			want: WriterUnknown},
		"too many wrote since": {on: true, entries: []metav1.ManagedFieldsEntry{fields(ancientChanges, onlyG)},
			want: WriterUnknown},
		"before any apply": {on: true, entries: []metav1.ManagedFieldsEntry{fields(beforeApply, onlyG)},
			want: WriterUnknown},
		"the fields are no JSON": {on: true, entries: []metav1.ManagedFieldsEntry{fields(kcm, onlyG[:60])},
			want: WriterUnknown},
		"the word is elsewhere": {on: true, entries: []metav1.ManagedFieldsEntry{
			fields(kcm, `{"f:metadata":{"f:annotations":{"f:kubernetes.io/pv-controller":{}}}}`)}, want: WriterUnknown},
		"there are no fields": {on: true, entries: []metav1.ManagedFieldsEntry{{Manager: kcm}}, want: WriterUnknown},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{ManagedFields: c.entries}}
			if c.on {
				o.Finalizers = []string{inUseFinalizer, Finalizer}
			}
			if got := Of(o); got.Writer != c.want || got.Manager != c.manager {
				t.Errorf("guard %v by %q, want %v by %q", got.Writer, got.Manager, c.want, c.manager)
			}
		})
	}
}

func TestSourceEquality(t *testing.T) {
	hostPath := func(path string) v1.PersistentVolumeSource {
		return v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path}}
	}
	kind := v1.HostPathDirectory
	rbd := func(image, user string, readOnly bool) v1.PersistentVolumeSource {
		return v1.PersistentVolumeSource{RBD: &v1.RBDPersistentVolumeSource{CephMonitors: []string{"m"}, RBDPool: "p",
			RBDImage: image, RadosUser: user, ReadOnly: readOnly}}
	}
	reached := func(image string, monitors ...string) v1.PersistentVolumeSource {
		return v1.PersistentVolumeSource{RBD: &v1.RBDPersistentVolumeSource{CephMonitors: monitors, RBDPool: "p",
			RBDImage: image}}
	}
	share := func(path string, monitors ...string) v1.PersistentVolumeSource {
		return v1.PersistentVolumeSource{CephFS: &v1.CephFSPersistentVolumeSource{Monitors: monitors, Path: path}}
	}
	scsi := func(lun int32, portal string, portals ...string) v1.PersistentVolumeSource {
		return v1.PersistentVolumeSource{ISCSI: &v1.ISCSIPersistentVolumeSource{TargetPortal: portal, Portals: portals,
			IQN: "iqn.2026-01.com.example:t", Lun: lun, ISCSIInterface: portal}}
	}
	fiber := func(names ...string) v1.PersistentVolumeSource {
		lun := int32(1)
		return v1.PersistentVolumeSource{FC: &v1.FCVolumeSource{TargetWWNs: names, Lun: &lun}}
	}
	otherPool := reached("i", "m1")
	otherPool.RBD.RBDPool = "q"
	cases := map[string]struct {
		a, b v1.PersistentVolumeSource
		same bool
	}{
		"one path":                {hostPath("/a"), hostPath("/a"), true},
		"one path in other words": {hostPath("/a"), hostPath("/b/../a/"), true},
		"another path":            {hostPath("/a"), hostPath("/a/b"), false},
		"one path, one of a given type": {hostPath("/a"),
			v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/a", Type: &kind}}, true},
		"one image, one of them readOnly": {rbd("i", "u", false), rbd("i", "v", true), true},
		"one image, other monitors":       {reached("i", "m1", "m2"), reached("i", "m3"), true},
		"one image, another order":        {reached("i", "m1", "m2"), reached("i", "m2", "m1"), true},
		"one image, fewer monitors":       {reached("i", "m1", "m2"), reached("i", "m2"), true},
		"another image, same monitors":    {reached("i", "m1"), reached("j", "m1"), false},
		"another pool, same monitors":     {reached("i", "m1"), otherPool, false},
		"one share, other monitors":       {share("/a", "m1"), share("/a", "m2"), true},
		"another share":                   {share("/a", "m1"), share("/b", "m1"), false},
		"one LUN, other portals":          {scsi(1, "a", "b"), scsi(1, "b"), true},
		"another LUN":                     {scsi(1, "a"), scsi(2, "a"), false},
		"one disk of Fibre Channel":       {fiber("a", "b"), fiber("b", "a"), true},
		"another disk of Fibre Channel":   {fiber("a", "b"), fiber("a", "c"), false},
		"another image":                   {rbd("i", "u", false), rbd("j", "u", false), false},
		"another plugin, the same word": {hostPath("/a"),
			v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: "/a"}}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a := sourceOf(&v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: c.a}})
			b := sourceOf(&v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: c.b}})
			if !a.Known() || !b.Known() || (a == b) != c.same {
				t.Errorf("known: %v and %v, one volume: %v, want %v", a.Known(), b.Known(), a == b, c.same)
			}
		})
	}
	for name, spec := range map[string]v1.PersistentVolumeSource{
		"none":      {},
		"of CSI":    {CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "v"}},
		"of CSI, 2": {CSI: &v1.CSIPersistentVolumeSource{}, HostPath: &v1.HostPathVolumeSource{Path: "/a"}},
	} {
		if sourceOf(&v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: spec}}).Known() {
			t.Errorf("a source that is %s is known", name)
		}
	}
}

func TestPluginGoneFromStatusMessage(t *testing.T) {
	for message, want := range map[string]bool{
		"no volume plugin matched name: kubernetes.io/glusterfs":                                   true,
		"error getting deleter volume plugin for volume \"a\": no deletable volume plugin matched": true,
		"device or resource busy": false,
	} {
		o := &v1.PersistentVolume{Status: v1.PersistentVolumeStatus{Phase: v1.VolumeFailed, Message: message}}
		if got := Of(o).PluginGone; got != want {
			t.Errorf("%q: plugin gone: %v, want %v", message, got, want)
		}
		o.Status.Phase = v1.VolumeBound
		if Of(o).PluginGone {
			t.Errorf("%q of a PV that has not failed: the plugin is gone", message)
		}
	}
}

// original is a PV that a plugin provisioned.
func original() *v1.PersistentVolume {
	mode := v1.PersistentVolumeFilesystem
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pv", UID: "pv-uid", ResourceVersion: "7", Finalizers: []string{Finalizer},
			Labels: map[string]string{"mine": "yes"},
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "kubernetes.io/host-path",
				annBoundByController: "yes", annLastApplied: "{}", "plugin.example.com/key": "word"},
		},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete, StorageClassName: "class", VolumeMode: &mode,
			ClaimRef:               &v1.ObjectReference{Namespace: "ns", Name: "claim", UID: "claim-uid"},
			PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/a"}},
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeReleased},
	}
}

func TestNewTwinKeepsVolume(t *testing.T) {
	o := original()
	twin := NewTwin(o)
	switch {
	case twin.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimRetain:
		t.Error("a twin is born with another policy than Retain: with Delete it would cost the volume of a claim that " +
			"lives after all")
	case len(twin.Finalizers) > 0 || twin.UID != "" || twin.ResourceVersion != "" || twin.Status.Phase != "":
		t.Errorf("a twin takes over what is the original's own: %+v", twin)
	case twin.Annotations[annBoundByController] != "" || twin.Annotations[annLastApplied] != "" || len(twin.Labels) != 1:
		t.Errorf("a twin takes over %v %v", twin.Annotations, twin.Labels)
	case twin.Annotations["plugin.example.com/key"] != "word" || twin.Spec.StorageClassName != "class" ||
		*twin.Spec.ClaimRef != *o.Spec.ClaimRef:
		t.Errorf("a twin is not a second name of the volume: %+v", twin)
	}
	twin.UID, twin.Spec.ClaimRef.Name = "twin-uid", "another"
	if o.Spec.ClaimRef.Name != "claim" || o.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete ||
		len(o.Annotations) != 4 {
		t.Error("making a twin changes the original")
	}
	if !isTwinOf(Of(twin), Of(o)) {
		t.Error("a twin is not known again")
	}
}

func TestPVIsNeverItsOwnTwin(t *testing.T) {
	pv := made()
	pv.TwinOf, pv.Original = pv.UID, pv.Name
	if isTwinOf(pv, pv) || isTwinOf(PV{}, PV{}) {
		t.Error("a PV is its own twin")
	}
}

func FuzzRecords(f *testing.F) {
	f.Add("kubernetes.io/host-path", "/a", "volume-guard",
		`{"f:metadata":{"f:finalizers":{"v:\"kubernetes.io/pv-controller\"":{}}}}`, "Delete", "Failed",
		"no volume plugin matched", "pv-uid", "pv")
	f.Add("", "", "", `{"f:metadata":[]}`, "", "", "", "", "")
	f.Add("kubernetes.io/", "\xff", "kube-controller-manager", `{"f:metadata":{"f:finalizers":null}}`, "Recycle",
		"Bound", "\xff", "\xff", "\xff")
	f.Fuzz(func(t *testing.T, provisioner, path, manager, set, policy, phase, message, twinOfUID, twinOfName string) {
		o := original()
		o.Annotations["pv.kubernetes.io/provisioned-by"], o.Annotations[twinOfAnnotation] = provisioner, twinOfName
		o.Labels[volume.TwinLabel] = twinOfUID
		o.Spec.HostPath.Path = path
		o.ManagedFields = []metav1.ManagedFieldsEntry{fields(manager, set)}
		o.Spec.PersistentVolumeReclaimPolicy, o.Status.Phase, o.Status.Message = v1.PersistentVolumeReclaimPolicy(policy),
			v1.PersistentVolumePhase(phase), message
		pv := Of(o)
		pv.Intern()
		if pv.Writer == WriterSelf && manager != FieldManager || pv.Writer == WriterNone {
			t.Errorf("the finalizer that %q added is taken for %v", manager, pv.Writer)
		}
		if !strings.HasPrefix(provisioner, "kubernetes.io/") && (pv.Provisioned() || pv.LooksLikeTwin()) {
			t.Errorf("a PV of provisioner %q is taken for one of an in-tree plugin", provisioner)
		}
		if len(pv.Message) > maxMessage {
			t.Errorf("%d bytes of a message are kept", len(pv.Message))
		}
		twin := NewTwin(o)
		if twin.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimRetain || len(twin.Finalizers) > 0 {
			t.Error("a twin is born set to Delete, or with finalizers")
		}
		d := Decide(Facts{Other: OtherAbsent, PV: pv, Twin: Of(twin), TwinFound: true}, now())
		if d.Action == SetTwinDelete || d.Action == CreateTwin || d.Action == RemoveFinalizerByUID {
			t.Errorf("%v without a look at the claim", d.Action)
		}
	})
}
