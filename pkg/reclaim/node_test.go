package reclaim

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func TestDeletionOnNode(t *testing.T) {
	here := &volume.Node{Name: "n1", Segments: map[string]string{"node": "n1"}}
	for name, c := range map[string]struct {
		nodes []string
		want  []string
	}{
		"alone in its place": {[]string{"n1"}, []string{"list nodes", "read claim", "read pv", "delete volume",
			"delete PV", "release"}},
		"another in its place":        {[]string{"n1", "n2"}, []string{"list nodes"}},
		"another in its place, alone": {[]string{"n2"}, []string{"list nodes"}},
		"without its label":           {nil, []string{"list nodes"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := newWorldWith(t, Config{Node: here})
			w.nodes, w.pv.Reach = c.nodes, volume.ReachHere
			w.store(r, w.pv)
			r.reconcile(t.Context(), "pv")
			w.expect(t, c.want...)
		})
	}
}

// The last read shows that the volume is another node's.
func TestPVMovedBeforeLastReadIsKept(t *testing.T) {
	w, r := newWorldWith(t, Config{Node: &volume.Node{Name: "n1", Segments: map[string]string{"node": "n1"}}})
	w.nodes, w.pv.Reach = []string{"n1"}, volume.ReachHere
	w.store(r, w.pv)
	w.at("read pv", func() { w.pv.Reach = volume.ReachElsewhere })
	r.reconcile(t.Context(), "pv")
	w.expect(t, "list nodes", "read claim", "read pv")
}

func TestRecordPVOnNode(t *testing.T) {
	_, r := newWorldWith(t, Config{Node: &volume.Node{Name: "n1", Segments: map[string]string{"node": "n1"}}})
	api := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "pv-uid", ResourceVersion: "10"},
		Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{
			CSI: &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "vol-1"}}},
	}
	var kept []string
	for _, c := range []struct {
		name  string
		node  string
		known bool
	}{{"its own", "n1", false}, {"another's", "n2", false}, {"of no node", "", false}, {"that moved away", "n2", true}} {
		api.Spec.NodeAffinity = onlyOn(c.node)
		pv, keep := r.recordPV(api, c.known)
		if keep {
			kept = append(kept, c.name)
		}
		if c.known && (r.engine.Owns(pv) || pv.Handle != "") {
			t.Errorf("a PV that moved away still counts: %+v", pv)
		}
	}
	if want := []string{"its own", "of no node", "that moved away"}; !slices.Equal(kept, want) {
		t.Errorf("keeps %q, want %q", kept, want)
	}
}

// onlyOn returns the affinity of a volume that this node alone reaches, nil for no node.
func onlyOn(node string) *v1.VolumeNodeAffinity {
	if node == "" {
		return nil
	}
	return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: "node", Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
	}}}}
}

// The PV of a node's volume has another name than the volume if another node's PV has that name.
func TestSettledVolumeWakesPVApart(t *testing.T) {
	log := &followed{}
	here := &volume.Node{Name: "n1", Segments: map[string]string{"node": "n1"}}
	_, r := newWorldWith(t, Config{InFlight: log, Node: here})
	var woken []string
	r.enqueue = func(pv string) { woken = append(woken, pv) }
	log.changed("pvc-1")
	if want := []string{"pvc-1", volume.ApartName("pvc-1", "n1")}; !slices.Equal(woken, want) {
		t.Errorf("woken: %q, want %q", woken, want)
	}
}

// followed is a log that a test changes.
type followed struct{ changed func(volume string) }

func (*followed) InFlight(string) (volume.InFlight, string) { return volume.InFlightSettled, "" }

func (l *followed) Follow(changed func(volume string)) { l.changed = changed }
