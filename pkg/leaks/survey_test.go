package leaks

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// An in-tree PV is clear only while the driver lists the volume under its translated name.
func TestInTreePVUnclear(t *testing.T) {
	const driver = "ebs.csi.aws.com"
	for id, unclear := range map[string]string{"aws://us-east-1a/vol-1": "", "aws://us-east-1a/vol-2": "PV pv"} {
		s := survey{listing: listing{volumes: map[string]Volume{"vol-1": {Handle: "vol-1"}}}, named: map[string]bool{},
			ofEntry: map[string]bool{}}
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"},
			Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{
				AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: id},
			}}}
		s.takePV(volume.Of(pv), driver)
		if s.unclear != unclear || s.named["vol-1"] != (unclear == "") || s.pvs != 1 {
			t.Errorf("%s: %+v", id, s)
		}
	}
}

// A CSI PV may name its volume otherwise than the driver lists it. The first check that does not list its volume proves
// nothing, because the volume may be newer than the list; the next one prevents suspicions.
func TestUnlistedCSIPVUnclear(t *testing.T) {
	const handle = "vol-1"
	local := &volume.Node{Name: "n1", Segments: map[string]string{"zone": "1"}}
	elsewhere := &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: "zone", Operator: v1.NodeSelectorOpIn,
			Values: []string{"2"}}}}}}}
	for name, c := range map[string]struct {
		node  *volume.Node
		at    *v1.VolumeNodeAffinity
		again bool
		want  Reason
	}{
		"the same PV":           {nil, nil, true, reasonPVUnclear},
		"another PV each time":  {nil, nil, false, ReasonLeakSuspected},
		"a PV of this node":     {local, nil, true, reasonPVUnclear},
		"a PV of another node":  {local, elsewhere, true, ReasonLeakSuspected},
		"the same, for a whole": {nil, elsewhere, true, reasonPVUnclear},
	} {
		w := newWorld(t)
		w.blind, w.volumes[handle], w.volumes["other"] = true, true, true
		w.addPV("another", "other")
		w.addPV("pv", "otherwise").Spec.NodeAffinity = c.at
		a := w.auditor(func(cfg *Config) { cfg.Grace, cfg.Node = -1, c.node })
		if got := w.check(a, handle); got != ReasonSeenTooSeldom {
			t.Errorf("%s: first %q", name, got)
		}
		if !c.again {
			w.removePV("pv")
			w.addPV("pv-2", "otherwise")
		}
		if got := w.check(a, handle); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
