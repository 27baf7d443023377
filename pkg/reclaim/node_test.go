package reclaim

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// affinityTo reads terms such as "node In n1,zone In a" and "@metadata.name In n1", one each; nil
// for none of them.
func affinityTo(terms ...string) *v1.VolumeNodeAffinity {
	if terms == nil {
		return nil
	}
	selector := &v1.NodeSelector{}
	for _, text := range terms {
		var term v1.NodeSelectorTerm
		for _, part := range strings.Split(text, ",") {
			words := strings.Fields(part)
			if len(words) < 2 {
				continue
			}
			key, field := strings.CutPrefix(words[0], "@")
			r := v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOperator(words[1]), Values: words[2:]}
			if field {
				term.MatchFields = append(term.MatchFields, r)
			} else {
				term.MatchExpressions = append(term.MatchExpressions, r)
			}
		}
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, term)
	}
	return &v1.VolumeNodeAffinity{Required: selector}
}

func TestReach(t *testing.T) {
	one := Node{Name: "n1", Segments: map[string]string{"node": "n1"}}
	two := Node{Name: "n1", Segments: map[string]string{"zone": "a", "node": "n1"}}
	cases := map[string]struct {
		node  Node
		terms []string
		want  Reach
	}{
		"the driver's segment":                              {one, []string{"node In n1"}, ReachHere},
		"all of its segments":                               {two, []string{"node In n1,zone In a"}, ReachHere},
		"the same place twice":                              {one, []string{"node In n1", "node In n1"}, ReachHere},
		"another node":                                      {one, []string{"node In n2"}, ReachElsewhere},
		"one of the segments is another":                    {two, []string{"node In n2,zone In a"}, ReachElsewhere},
		"several other nodes":                               {one, []string{"node In n2 n3", "node In n4"}, ReachElsewhere},
		"another node, and a label that nobody knows of":    {one, []string{"node In n2,disk In ssd"}, ReachElsewhere},
		"not on this node":                                  {one, []string{"node NotIn n1"}, ReachElsewhere},
		"only where the driver is not":                      {one, []string{"node DoesNotExist"}, ReachElsewhere},
		"another node, by its name":                         {one, []string{"@metadata.name In n2"}, ReachElsewhere},
		"a term that selects nothing":                       {one, []string{""}, ReachElsewhere},
		"no affinity":                                       {one, nil, ReachUnclear},
		"an affinity without terms":                         {one, []string{}, ReachUnclear},
		"this node and another, in one term":                {one, []string{"node In n1 n2"}, ReachUnclear},
		"this node and another, in two terms":               {one, []string{"node In n1", "node In n2"}, ReachUnclear},
		"fewer segments than the driver has":                {two, []string{"zone In a"}, ReachUnclear},
		"more than the driver's segments":                   {one, []string{"node In n1,disk In ssd"}, ReachUnclear},
		"in words that are not the driver's":                {one, []string{"kubernetes.io/hostname In n1"}, ReachUnclear},
		"this node's name in words that are not the driver": {one, []string{"@metadata.name In n1"}, ReachUnclear},
		"the driver's segment and the node's name":          {one, []string{"node In n1,@metadata.name In n1"}, ReachUnclear},
		"another than one that is not this":                 {one, []string{"node NotIn n2"}, ReachUnclear},
		"wherever the driver is":                            {one, []string{"node Exists"}, ReachUnclear},
		"an operator that nobody knows":                     {one, []string{"node Gt 1"}, ReachUnclear},
		"a node without segments has nothing for itself":    {Node{Name: "n1"}, []string{"node In n1"}, ReachUnclear},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := c.node.Reach(affinityTo(c.terms...)); got != c.want {
				t.Errorf("Reach = %d, want %d", got, c.want)
			}
		})
	}
}

// onNode is a snapshot of a node's own process from which the volume is to be deleted at once.
func onNode(change func(*Snapshot)) Snapshot {
	return with(func(s *Snapshot) {
		s.Rules.Local, s.PV.Reach = true, ReachHere
		s.NodesRead, s.Alone = read(1, 2*time.Second), true
		s.Claim.Read, s.PVRead = read(2, time.Second), read(3, 0)
		change(s)
	})
}

func TestDecideOnANode(t *testing.T) {
	elsewhere := func(s *Snapshot) { s.PV.Reach = ReachElsewhere }
	unclear := func(s *Snapshot) { s.PV.Reach = ReachUnclear }
	bound := func(s *Snapshot) { s.PV.Phase = PhaseBound }
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
		"another node's, to be kept: not let go":    {all(elsewhere, func(s *Snapshot) { s.PV.Policy = PolicyRetain }), waiting(ReasonOtherNode)},
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
	here := &Node{Name: "n1", Segments: map[string]string{"node": "n1"}}
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
			w.nodes, w.pv.Reach = c.nodes, ReachHere
			w.store(r, w.pv)
			r.reclaim(t.Context(), "pv")
			w.expect(t, c.want...)
		})
	}
}

// TestAPVThatMovesBeforeTheLastReadIsLeft has the live read show that the volume is another node's.
func TestAPVThatMovesBeforeTheLastReadIsLeft(t *testing.T) {
	w, r := newWorldWith(t, Config{Node: &Node{Name: "n1", Segments: map[string]string{"node": "n1"}}})
	w.nodes, w.pv.Reach = []string{"n1"}, ReachHere
	w.store(r, w.pv)
	w.before = func(what string) {
		if what == "read pv" {
			w.pv.Reach = ReachElsewhere
		}
	}
	r.reclaim(t.Context(), "pv")
	w.expect(t, "list nodes", "read claim", "read pv")
}

func TestWhatANodeKeepsInMemory(t *testing.T) {
	_, r := newWorldWith(t, Config{Node: &Node{Name: "n1", Segments: map[string]string{"node": "n1"}}})
	api := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "pv-uid", ResourceVersion: "10"},
		Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{
			CSI: &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "vol-1"}}},
	}
	var kept []string
	for _, c := range []struct {
		name  string
		terms []string
		known bool
	}{{"its own", []string{"node In n1"}, false}, {"another's", []string{"node In n2"}, false}, {"nobody's", nil, false}, {"that moved away", []string{"node In n2"}, true}} {
		api.Spec.NodeAffinity = affinityTo(c.terms...)
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
