package view

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// TestRowsOfFormerPlugins has volumes that no program can delete since Kubernetes removed their plugin.
func TestRowsOfFormerPlugins(t *testing.T) {
	const gone = "Kubernetes removed the in-tree plugin rbd"
	terminating := func(o *v1.PersistentVolume) { o.DeletionTimestamp = ptr.To(ago(time.Hour)) }
	for name, c := range map[string]struct {
		change    func(*v1.PersistentVolume)
		minor     int
		attention bool
	}{
		"terminating":               {terminating, 31, true},
		"released":                  {nil, 31, true},
		"terminating, plugin there": {terminating, 30, false},
		"version unknown":           {terminating, 0, false},
		"bound":                     {func(o *v1.PersistentVolume) { o.Status.Phase = v1.VolumeBound }, 31, false},
		"terminating, policy Retain": {func(o *v1.PersistentVolume) {
			terminating(o)
			o.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
		}, 31, false},
	} {
		f := cluster(newPV("pv", func(o *v1.PersistentVolume) {
			o.Annotations[volume.AnnProvisionedBy], o.Finalizers = "kubernetes.io/rbd", []string{intree.Finalizer}
			o.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{RBD: &v1.RBDPersistentVolumeSource{RBDImage: "x"}}
			if c.change != nil {
				c.change(o)
			}
		}))
		f.Minor = c.minor
		row := only(t, RowsOf(f), "pv/pv")
		if (row.Severity == SeverityAttention && strings.HasPrefix(row.Text, gone) && row.Waits &&
			row.WaitsFor == "a person, because "+gone) != c.attention {
			t.Errorf("%s: the row is %+v", name, row)
		}
	}
}
