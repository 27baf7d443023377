package view

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

var errForbidden = errors.New("forbidden")

func unbound(o *v1.PersistentVolumeClaim) {
	o.Spec.VolumeName, o.Status = "", v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending}
}

func attachment(pv, node string) storagev1.VolumeAttachment {
	return storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a-" + pv, UID: "a"},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
		Status: storagev1.VolumeAttachmentStatus{Attached: true}}
}

func newNode(name string, ready bool) *v1.Node {
	status := v1.ConditionFalse
	if ready {
		status = v1.ConditionTrue
	}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "n"},
		Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: status,
			LastTransitionTime: ago(time.Hour)}}}}
}

// everything is a PV with every kind of related object.
func everything(change func(*v1.PersistentVolume)) Around {
	twin := newPV("twin", func(o *v1.PersistentVolume) {
		o.Spec.CSI.VolumeHandle, o.Finalizers, o.Spec.ClaimRef = "vol-pv", nil, nil
	})
	attached := attachment("pv", "down")
	return Around{Subject: Ref{Kind: KindPV, Name: "pv"}, Objects: []Related{OfPV(newPV("pv", change)), OfPV(twin),
		OfClaim(newClaim("data", nil)), OfNode(newNode("down", false)), OfMissingNode("lost"),
		OfPod(&explain.Pod{Pod: objects.Pod{Namespace: "ns", Name: "db", UID: "p", Node: "down", Claims: []string{"data"},
			Held: true}, Phase: v1.PodRunning}),
		OfAttachment(&attached), OfFence(&v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: "down"}})}}
}

func noRows(string) (Row, bool) { return Row{}, false }

func edges(g Graph) (all []string) {
	for _, e := range g.Edges {
		text := e.From + " " + e.Label + " " + e.To
		if e.Holds {
			text += " (holds)"
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

func TestGraphEdges(t *testing.T) {
	g := GraphOf(everything(nil), noRows)
	want := []string{
		"attachment/a-pv attaches pv/pv (holds)",
		"attachment/a-pv to node/down",
		"claim/ns/data is bound to pv/pv (holds)",
		"fence/down fences node/down",
		"pod/ns/db runs on node/down",
		"pod/ns/db uses claim/ns/data (holds)",
		"pv/pv names volume/" + driver + "/vol-pv (holds)",
		"pv/twin names volume/" + driver + "/vol-pv (holds)",
	}
	if got := edges(g); !slices.Equal(got, want) {
		t.Errorf("edges are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	ids := map[string]Node{}
	for _, n := range g.Nodes {
		if _, twice := ids[n.ID]; twice {
			t.Errorf("node %s is there twice", n.ID)
		}
		ids[n.ID] = n
	}
	if !ids["pv/pv"].Subject || ids["pv/twin"].Subject || !ids["pv/twin"].Open || ids["fence/down"].Open {
		t.Errorf("nodes are %+v", g.Nodes)
	}
	if ids["node/down"].Severity != SeverityAttention || ids["node/lost"].Severity != SeverityAttention {
		t.Errorf("lost nodes are %+v and %+v", ids["node/down"], ids["node/lost"])
	}
}

func TestGraphEdgesHaveBothEnds(t *testing.T) {
	for _, without := range []Kind{KindPV, KindClaim, KindPod, KindNode, KindAttach, ""} {
		a := everything(nil)
		a.Objects = slices.DeleteFunc(a.Objects, func(o Related) bool { return o.Kind == without || without == "" })
		g := GraphOf(a, noRows)
		known := map[string]bool{}
		for _, n := range g.Nodes {
			known[n.ID] = true
		}
		for _, e := range g.Edges {
			if !known[e.From] || !known[e.To] {
				t.Errorf("without %q: edge %+v has no end", without, e)
			}
		}
		if g.Nodes == nil || g.Edges == nil {
			t.Error("JSON has null for a list")
		}
	}
}

func TestGraphNodeSeverity(t *testing.T) {
	g := GraphOf(everything(nil), func(id string) (Row, bool) {
		return Row{Severity: SeverityAttention}, id == "pod/ns/db"
	})
	if !slices.ContainsFunc(g.Nodes, func(n Node) bool {
		return n.ID == "pod/ns/db" && n.Severity == SeverityAttention
	}) {
		t.Errorf("nodes %+v", g.Nodes)
	}
}

func TestFinalizersArePartOfTheirObject(t *testing.T) {
	for name, c := range map[string]struct {
		explained   explain.Finalizer
		terminating bool
		want        string
		severity    Severity
	}{
		"removed by a program": {explain.Finalizer{Owner: "csi-reclaimer", When: "soon"}, true,
			"csi-reclaimer removes it soon", SeverityNone},
		"of an unknown owner": {explain.Finalizer{}, true, "its owner is unknown", SeverityNone},
		"stuck": {explain.Finalizer{Stuck: "it is gone"}, true,
			"no program removes it: it is gone", SeverityAttention},
		"stuck, not being deleted": {explain.Finalizer{Stuck: "it is gone"}, false,
			"no program removes it: it is gone", SeverityNone},
	} {
		a := everything(func(o *v1.PersistentVolume) {
			if c.terminating {
				o.DeletionTimestamp = ptr.To(ago(time.Minute))
			}
		})
		c.explained.Name = volume.Finalizer
		a.Finalizers = map[string][]explain.Finalizer{"pv/pv": {c.explained}}
		want := []NodeFinalizer{{Name: volume.Finalizer, Text: c.want, Severity: c.severity}}
		if got := GraphOf(a, noRows).Nodes[0].Finalizers; !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func TestGraphCountsOmittedObjects(t *testing.T) {
	a := everything(nil)
	a.More = 7
	if details := fmt.Sprint(GraphOf(a, noRows).Nodes[0].Details); !strings.Contains(details, "7 more objects") {
		t.Errorf("details are %s", details)
	}
}
