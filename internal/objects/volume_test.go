package objects

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

type attributes = map[string]v1alpha1.AttributeValue

// A fence of one storage system says nothing about the volumes of another one with the same driver.
func TestCoversVolume(t *testing.T) {
	volume := Volume{Driver: "rbd", Attributes: map[string]string{"clusterID": "one", "pool": "a", "empty": ""}}
	fence := func(driver string, which v1alpha1.FencedVolumes, has attributes) []v1alpha1.CoveredVolumes {
		return []v1alpha1.CoveredVolumes{{Driver: driver, Volumes: which, VolumeAttributes: has}}
	}
	const matching, all = v1alpha1.VolumesMatching, v1alpha1.VolumesAll
	for name, c := range map[string]struct {
		fenced []v1alpha1.CoveredVolumes
		volume Volume
		want   bool
	}{
		"an attribute":               {fence("rbd", matching, attributes{"clusterID": "one"}), volume, true},
		"two":                        {fence("rbd", matching, attributes{"clusterID": "one", "pool": "a"}), volume, true},
		"an empty attribute":         {fence("rbd", matching, attributes{"empty": ""}), volume, true},
		"another value":              {fence("rbd", matching, attributes{"clusterID": "two"}), volume, false},
		"one of two differs":         {fence("rbd", matching, attributes{"clusterID": "one", "pool": "b"}), volume, false},
		"an attribute not on the PV": {fence("rbd", matching, attributes{"array": ""}), volume, false},
		"no attribute":               {fence("rbd", matching, nil), volume, false},
		"all":                        {fence("rbd", all, nil), volume, true},
		"all, without attributes":    {fence("rbd", all, nil), Volume{Driver: "rbd"}, true},
		"all, and an attribute":      {fence("rbd", all, attributes{"clusterID": "one"}), volume, false},
		"neither":                    {fence("rbd", "", nil), volume, false},
		"an attribute, and neither":  {fence("rbd", "", attributes{"clusterID": "one"}), volume, false},
		"another driver":             {fence("nfs", all, nil), volume, false},
		"no driver":                  {fence("", all, nil), Volume{}, false},
		"nothing":                    {nil, volume, false},
		"several": {append(fence("rbd", matching, attributes{"clusterID": "two"}),
			fence("rbd", matching, attributes{"clusterID": "one"})...), volume, true},
		"together": {append(fence("rbd", matching, attributes{"clusterID": "one", "pool": "b"}),
			fence("rbd", matching, attributes{"clusterID": "two", "pool": "a"})...), volume, false},
	} {
		if got := CoversVolume(c.fenced, c.volume); got != c.want {
			t.Errorf("%s: covered: %t", name, got)
		}
	}
}

func TestVolumeOf(t *testing.T) {
	o := &v1.PersistentVolume{}
	if got := VolumeOf(o); got.Driver != "" || got.Attributes != nil {
		t.Errorf("%+v", got)
	}
	o.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "rbd", VolumeAttributes: map[string]string{"clusterID": "one"}}
	got := VolumeOf(o)
	o.Spec.CSI.VolumeAttributes["clusterID"] = "two"
	if got.Driver != "rbd" || got.Attributes["clusterID"] != "one" {
		t.Errorf("%+v", got)
	}
}

func TestShared(t *testing.T) {
	for mode, want := range map[v1.PersistentVolumeAccessMode]bool{v1.ReadWriteMany: true, v1.ReadOnlyMany: true,
		v1.ReadWriteOnce: false, v1.ReadWriteOncePod: false} {
		if got := Shared([]v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, mode}); got != want || Shared(nil) {
			t.Errorf("%s: %t", mode, got)
		}
	}
}
