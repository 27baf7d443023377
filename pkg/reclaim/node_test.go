package reclaim

import (
	"slices"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// onNode is a snapshot of a node's own process from which the volume is to be deleted at once.
func onNode(change func(*Snapshot)) Snapshot {
	return with(func(s *Snapshot) {
		s.Rules.Local, s.PV.Reach = true, volume.ReachHere
		s.NodesRead, s.Alone = read(1, 2*time.Second), true
		s.Claim.Read, s.PVRead = read(2, time.Second), read(3, 0)
		change(s)
	})
}

func TestDecideOnANode(t *testing.T) {
	elsewhere := func(s *Snapshot) { s.PV.Reach = volume.ReachElsewhere }
	unclear := func(s *Snapshot) { s.PV.Reach = volume.ReachUnclear }
	bound := func(s *Snapshot) { s.PV.Phase = volume.PhaseBound }
	unprotected := func(s *Snapshot) { s.PV.HasFinalizer = false }
	all := func(changes ...func(*Snapshot)) Snapshot {
		return onNode(func(s *Snapshot) {
			for _, change := range changes {
				change(s)
			}
		})
	}
	check(t, decisions{
		"its own volume: deleted":                   {all(), do(DeleteVolume, ReasonReclaim)},
		"its own volume: protected":                 {all(bound, unprotected), do(AddFinalizer, ReasonProtect)},
		"another node's: not deleted":               {all(elsewhere), waiting(ReasonOtherNode)},
		"another node's: not protected":             {all(elsewhere, bound, unprotected), waiting(ReasonOtherNode)},
		"another node's, to be kept: not let go":    {all(elsewhere, func(s *Snapshot) { s.PV.Policy = volume.PolicyRetain }), waiting(ReasonOtherNode)},
		"not clear whose: not deleted, and told of": {all(unclear), waiting(ReasonNodeUnclear)},
		"not clear whose, PV first: told of":        {all(unclear, bound, func(s *Snapshot) { s.PV.Terminating = true }), waiting(ReasonNodeUnclear)},
		"not clear whose, in use: left in peace":    {all(unclear, bound, unprotected), waiting(ReasonOtherNode)},
		"not clear whose, gone: told of once": {all(unclear, unprotected, func(s *Snapshot) {
			s.End = End{Gone: true, Final: true}
		}), ended(ReasonNodeUnclear)},
		"the finalizers go: those of its own PVs":        {all(func(s *Snapshot) { s.Rules.Mode = ModeRelease }), do(DropFinalizer, ReasonReleased)},
		"the finalizers go: not those of others":         {all(elsewhere, func(s *Snapshot) { s.Rules.Mode = ModeRelease }), waiting(ReasonOtherNode)},
		"the nodes were not looked at: looks":            {all(func(s *Snapshot) { s.NodesRead = Read{} }), do(ReadNodes, ReasonReclaim)},
		"looked at too long ago: looks again":            {all(func(s *Snapshot) { s.NodesRead = read(1, liveFor+1) }), do(ReadNodes, ReasonReclaim)},
		"another node in its place: not deleted":         {all(func(s *Snapshot) { s.Alone = false }), looking(ReasonNodeNotAlone)},
		"the nodes were looked at after the PV: again":   {all(func(s *Snapshot) { s.NodesRead.Order = 4 }), do(ReadPV, ReasonReclaim)},
		"a volume that it deleted: whatever it says now": {all(unclear, func(s *Snapshot) { s.Done = done(s.PV, false, false) }), do(DeletePV, ReasonVolumeDeleted)},
		"gone before it was protected, another node in its place": {all(unprotected, func(s *Snapshot) {
			s.End, s.History.SeenAlive, s.AttachmentsCurrent, s.Alone = End{Gone: true, Final: true}, true, true, false
		}), looking(ReasonNodeNotAlone)},
	})
}

func TestADeletionOnANode(t *testing.T) {
	here := &volume.Node{Name: "n1", Segments: map[string]string{"node": "n1"}}
	for name, c := range map[string]struct {
		nodes []string
		want  []string
	}{
		"alone in its place":          {[]string{"n1"}, []string{"list nodes", "read claim", "read pv", "delete volume", "delete PV", "release"}},
		"another in its place":        {[]string{"n1", "n2"}, []string{"list nodes"}},
		"another in its place, alone": {[]string{"n2"}, []string{"list nodes"}},
		"without its label":           {nil, []string{"list nodes"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := newWorldWith(t, Config{Node: here})
			w.nodes, w.pv.Reach = c.nodes, volume.ReachHere
			w.store(r, w.pv)
			r.reclaim(t.Context(), "pv")
			w.expect(t, c.want...)
		})
	}
}

// TestAPVThatMovesBeforeTheLastReadIsLeft has the live read show that the volume is another node's.
func TestAPVThatMovesBeforeTheLastReadIsLeft(t *testing.T) {
	w, r := newWorldWith(t, Config{Node: &volume.Node{Name: "n1", Segments: map[string]string{"node": "n1"}}})
	w.nodes, w.pv.Reach = []string{"n1"}, volume.ReachHere
	w.store(r, w.pv)
	w.before = func(what string) {
		if what == "read pv" {
			w.pv.Reach = volume.ReachElsewhere
		}
	}
	r.reclaim(t.Context(), "pv")
	w.expect(t, "list nodes", "read claim", "read pv")
}

func TestWhatANodeKeepsInMemory(t *testing.T) {
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
	}{{"its own", "n1", false}, {"another's", "n2", false}, {"nobody's", "", false}, {"that moved away", "n2", true}} {
		api.Spec.NodeAffinity = onlyOn(c.node)
		pv, keep, err := r.observer.recordPV(api, c.known)
		if err != nil {
			t.Fatal(err)
		}
		if keep {
			kept = append(kept, c.name)
		}
		if c.known && (r.observer.owns(pv) || pv.Handle != "") {
			t.Errorf("a PV that moved away still counts: %+v", pv)
		}
	}
	if want := []string{"its own", "nobody's", "that moved away"}; !slices.Equal(kept, want) {
		t.Errorf("keeps %q, want %q", kept, want)
	}
}

// onlyOn is the affinity of a volume that this node alone reaches; nil for no node.
func onlyOn(node string) *v1.VolumeNodeAffinity {
	if node == "" {
		return nil
	}
	return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: "node", Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
	}}}}
}
