package reclaim

import (
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func TestDeletionSecret(t *testing.T) {
	const name, namespace = "csi.storage.k8s.io/provisioner-secret-name", "csi.storage.k8s.io/provisioner-secret-namespace"
	ofClass := func(pv *volume.PV) { pv.StorageClass = "class" }
	secret := func(name string) func(*volume.PV) {
		return func(pv *volume.PV) {
			pv.SecretKnown, pv.DeletionSecret = true, volume.SecretRef{Namespace: "ns", Name: name}
		}
	}
	cases := map[string]struct {
		pv    func(*volume.PV)
		class map[string]string
		want  []string // the reads before the claim's, or nil if the driver must not be called
	}{
		"both annotations are empty: none": {func(pv *volume.PV) { pv.SecretKnown, pv.StorageClass = true, "class" }, nil,
			[]string{}},
		"no annotation, no class: none":    {func(*volume.PV) {}, nil, []string{}},
		"the annotations name it":          {secret("s"), nil, []string{"read secret"}},
		"one annotation is empty: unclear": {secret(""), nil, nil},
		"the class is gone: none":          {ofClass, nil, []string{"read class"}},
		"the class names none":             {ofClass, map[string]string{}, []string{"read class"}},
		"the class names it by templates": {ofClass,
			map[string]string{name: "${pvc.name}-${pv.name}", namespace: "${pvc.namespace}"},
			[]string{"read class", "read secret"}},
		"the class names only half of it: unclear": {ofClass, map[string]string{name: "s"}, nil},
		"the class asks for the claim's annotations, and the claim is gone: unclear": {ofClass,
			map[string]string{name: "${pvc.annotations['x']}", namespace: "ns"}, nil},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			w, r := newWorld(t)
			c.pv(&w.pv)
			w.class = c.class
			w.store(r, w.pv)
			next := r.reconcile(t.Context(), "pv")
			if c.want == nil {
				if slices.Contains(w.diary, "delete volume") || next.Backoff.Max == 0 {
					t.Errorf("diary %q, back-off %+v: want no call, and another look", w.diary, next.Backoff)
				}
				return
			}
			w.expect(t, append(c.want, reclaims()...)...)
		})
	}
}

// csiClass returns a class that needs no translation.
func csiClass(parameters map[string]string) *storagev1.StorageClass {
	return &storagev1.StorageClass{Provisioner: "disk.csi.example.com", Parameters: parameters}
}

// TestSecretOfInTreeClass reads PVs and classes of in-tree plugins with the real translation library.
func TestSecretOfInTreeClass(t *testing.T) {
	const (
		portworx, portworxDriver = "kubernetes.io/portworx-volume", "pxd.portworx.com"
		name, namespace          = "openstorage.io/auth-secret-name", "openstorage.io/auth-secret-namespace"
		csi                      = "csi.storage.k8s.io/"
	)
	inTree := map[string]string{"repl": "2", name: "of-${pvc.name}", namespace: "${pvc.namespace}"}
	cases := map[string]struct {
		source      v1.PersistentVolumeSource
		provisioner string
		parameters  map[string]string
		want        volume.SecretRef
		unclear     bool
	}{
		"of the plugin": {px(), portworx, inTree, volume.SecretRef{Namespace: "ns", Name: "of-claim"},
			false},
		"of the plugin, in other letters": {px(), portworx, map[string]string{"OpenStorage.io/Auth-Secret-Name": "a",
			"OpenStorage.io/Auth-Secret-Namespace": "b"}, volume.SecretRef{Namespace: "b", Name: "a"}, false},
		"of the plugin, which names none": {px(), portworx, map[string]string{"repl": "2"}, volume.SecretRef{}, false},
		"of the plugin, half of the name": {px(), portworx, map[string]string{name: "a"}, volume.SecretRef{}, true},
		"of the plugin, with the keys of CSI": {px(), portworx, map[string]string{csi + "secret-name": "a",
			csi + "secret-namespace": "b"}, volume.SecretRef{Namespace: "b", Name: "a"}, false},
		"of the driver, the plugin's keys": {px(), portworxDriver, inTree, volume.SecretRef{}, false},
		"of another plugin":                {px(), "kubernetes.io/aws-ebs", inTree, volume.SecretRef{}, false},
		"of a plugin whose topologies have no translation": {
			v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d"}}, "kubernetes.io/gce-pd",
			map[string]string{"zone": "a", csi + "secret-name": "a", csi + "secret-namespace": "b"},
			volume.SecretRef{Namespace: "b", Name: "a"}, false},
		"of the plugin, the PV has the form of CSI": {
			v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: portworxDriver, VolumeHandle: "v"}}, portworx,
			inTree, volume.SecretRef{Namespace: "ns", Name: "of-claim"}, false},
		"of the plugin, the PV is of another driver": {
			v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "disk.csi.example.com", VolumeHandle: "v"}},
			portworx, inTree, volume.SecretRef{}, false},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			pv := volume.Of(&v1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "pv"},
				Spec: v1.PersistentVolumeSpec{
					PersistentVolumeSource: c.source, StorageClassName: "class", ClaimRef: &v1.ObjectReference{Namespace: "ns",
						Name: "claim", UID: "u"},
				},
			})
			// Topologies without translation, beside a zone, do not keep a volume.
			ref, err := secretOfClass(pv, &storagev1.StorageClass{Provisioner: c.provisioner, Parameters: c.parameters,
				AllowedTopologies: []v1.TopologySelectorTerm{{}}})
			if ref != c.want || errors.Is(err, errSecretUnclear) != c.unclear || (err != nil) != c.unclear {
				t.Errorf("secretOfClass = %+v, %v, want %+v", ref, err, c.want)
			}
		})
	}
}

func px() v1.PersistentVolumeSource {
	return v1.PersistentVolumeSource{PortworxVolume: &v1.PortworxVolumeSource{VolumeID: "px-1"}}
}
