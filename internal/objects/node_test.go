package objects

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func node(status v1.ConditionStatus, taints ...v1.Taint) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1.NodeSpec{Taints: taints},
		Status: v1.NodeStatus{Conditions: []v1.NodeCondition{
			{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue}, {Type: v1.NodeReady, Status: status},
			{Type: v1.NodeNetworkUnavailable, Status: v1.ConditionTrue}}},
	}
}

func TestNodeOf(t *testing.T) {
	others := v1.Taint{Key: v1.TaintNodeOutOfService, Value: "nodeshutdown"}
	ours := v1.Taint{Key: v1.TaintNodeOutOfService, Value: OwnTaintValue}
	fenced := v1.Taint{Key: "csi-reclaimer.io/volumes-fenced", Effect: v1.TaintEffectNoSchedule}
	for name, c := range map[string]struct {
		node *v1.Node
		want Node
		seen NodeSeen
	}{
		"Ready":        {node(v1.ConditionTrue), Node{Found: true, Ready: ReadyTrue}, NodeReady},
		"not Ready":    {node(v1.ConditionFalse), Node{Found: true, Ready: ReadyFalse}, NodeNotReady},
		"not heard of": {node(v1.ConditionUnknown), Node{Found: true, Ready: ReadyUnknown}, NodeNotReady},
		"a new word":   {node("Perhaps"), Node{Found: true}, NodeNotReady},
		"no condition": {&v1.Node{}, Node{Found: true}, NodeNotReady},
		"out of service": {node(v1.ConditionFalse, others), Node{Found: true, Ready: ReadyFalse, OutOfService: true},
			NodeTainted},
		"out of service, Ready": {node(v1.ConditionTrue, others),
			Node{Found: true, Ready: ReadyTrue, OutOfService: true}, NodeTaintedReady},
		"out of service by us, Ready": {node(v1.ConditionTrue, ours),
			Node{Found: true, Ready: ReadyTrue, OwnTaint: true}, NodeTaintedReady},
		"out of service by us": {node(v1.ConditionUnknown, ours),
			Node{Found: true, Ready: ReadyUnknown, OwnTaint: true}, NodeTainted},
		"by both": {node(v1.ConditionUnknown, ours, others),
			Node{Found: true, Ready: ReadyUnknown, OwnTaint: true, OutOfService: true}, NodeTainted},
		"fenced from volumes": {node(v1.ConditionTrue, fenced),
			Node{Found: true, Ready: ReadyTrue, VolumesFenced: true}, NodeReady},
		"fenced from volumes, with another effect": {
			node(v1.ConditionTrue, v1.Taint{Key: fenced.Key, Effect: v1.TaintEffectNoExecute}),
			Node{Found: true, Ready: ReadyTrue, OtherEffect: true}, NodeReady},
		"fenced from volumes, with each effect": {
			node(v1.ConditionTrue, v1.Taint{Key: fenced.Key, Effect: v1.TaintEffectPreferNoSchedule}, fenced),
			Node{Found: true, Ready: ReadyTrue, VolumesFenced: true, OtherEffect: true}, NodeReady},
		"another taint": {node(v1.ConditionTrue, v1.Taint{Key: v1.TaintNodeUnreachable}),
			Node{Found: true, Ready: ReadyTrue}, NodeReady},
		"another taint with our value and effect": {node(v1.ConditionTrue, v1.Taint{Key: v1.TaintNodeUnschedulable,
			Value: OwnTaintValue, Effect: v1.TaintEffectNoSchedule}), Node{Found: true, Ready: ReadyTrue}, NodeReady},
	} {
		got := NodeOf(c.node)
		notReady := c.want.Ready == ReadyFalse || c.want.Ready == ReadyUnknown
		if got.Tainted() != (got.OwnTaint || got.VolumesFenced || got.OtherEffect) ||
			got.Tainted() != slices.ContainsFunc(c.node.Spec.Taints, IsOwnTaint) {
			t.Errorf("%s: it is tainted by us: %t", name, got.Tainted())
		}
		if got != c.want || got.Seen() != c.seen || got.NotReady() != notReady {
			t.Errorf("%s: %+v, seen %d", name, got, got.Seen())
		}
	}
	if got := (Node{}).Seen(); got != NodeAbsent {
		t.Errorf("no node: %d", got)
	}
}

// The heartbeat of another condition is no heartbeat of the kubelet.
func TestHeartbeatAndMachine(t *testing.T) {
	t.Parallel()
	o := node(v1.ConditionTrue)
	for i := range o.Status.Conditions {
		o.Status.Conditions[i].LastHeartbeatTime = metav1.Unix(int64(100+i), 0)
	}
	o.Status.NodeInfo = v1.NodeSystemInfo{MachineID: "m", SystemUUID: "uuid"}
	if n := NodeOf(o); n.Heartbeat != 101 || n.Machine != (Machine{"m", "uuid"}) || WatchedNodeOf(o).Machine != n.Machine {
		t.Errorf("%+v", n)
	}
}

// TestRecordOfTaintedNodeShowsReady expects a change of Ready to wake the pods of a tainted node, because the taint
// becomes evidence when the node is no longer Ready.
func TestRecordOfTaintedNodeShowsReady(t *testing.T) {
	taint := v1.Taint{Key: v1.TaintNodeOutOfService}
	if WatchedNodeOf(node(v1.ConditionTrue, taint)) == WatchedNodeOf(node(v1.ConditionFalse, taint)) {
		t.Error("a tainted node has the same record, Ready and not Ready")
	}
}

func TestNodeIdentity(t *testing.T) {
	o := &v1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Labels: map[string]string{ControlPlaneLabel: ""}}}
	o.Status.NodeInfo = v1.NodeSystemInfo{BootID: "boot", MachineID: "id", SystemUUID: "uuid"}
	want := Node{Found: true, ResourceVersion: "7", ControlPlane: true, BootID: "boot", Machine: Machine{"id", "uuid"}}
	if got := NodeOf(o); got != want {
		t.Errorf("%+v", got)
	}
	for other, want := range map[Machine]bool{
		{"id", "uuid"}: false, {"id2", "uuid"}: true, {"id", "uuid2"}: true, {}: true,
	} {
		if (Machine{"id", "uuid"}).IsOther(other) != want {
			t.Errorf("%v", other)
		}
	}
	if (Machine{}).IsOther(Machine{"id", "uuid"}) {
		t.Error("an unknown machine is told from another")
	}
}

type watched map[string]WatchedNode

func (w watched) Get(name string) (n WatchedNode, found bool) {
	n, found = w[name]
	return n, found
}

func TestSeenOf(t *testing.T) {
	n := WatchedNodeOf(node(v1.ConditionUnknown))
	if want := (WatchedNode{"a", NodeNotReady, true, Machine{}, ""}); n != want {
		t.Fatalf("%+v", n)
	}
	for name, want := range map[string]NodeSeen{"": NodeUnseen, "a": NodeNotReady, "b": NodeAbsent} {
		if got := SeenOf(watched{"a": n}, name); got != want {
			t.Errorf("%q: %d", name, got)
		}
	}
}

func TestStateOfWatchedNode(t *testing.T) {
	for want, n := range map[NodeSeen]WatchedNode{
		NodeAbsent: {}, NodeUnseen: {Name: "a"}, NodeReady: {Name: "a", Seen: NodeReady},
	} {
		if got := n.State(); got != want {
			t.Errorf("%+v: %d", n, got)
		}
	}
}

func TestLabeledNode(t *testing.T) {
	at := metav1.NewTime(time.Unix(1_800_000_000, 0))
	o := node(v1.ConditionUnknown, v1.Taint{Key: VolumesFencedTaint, Effect: v1.TaintEffectNoSchedule})
	o.Labels = map[string]string{"c": "3", v1.LabelTopologyZone: "z", ControlPlaneLabel: "", "a": "1"}
	for i := range o.Status.Conditions {
		o.Status.Conditions[i].LastTransitionTime = metav1.NewTime(at.Add(time.Duration(i-1) * time.Hour))
	}
	n := LabeledNodeOf(o)
	if n.Name != "a" || n.Zone != "z" || !n.Unreachable || !n.Since.Equal(at.Time) || !n.Tainted || !n.ControlPlane ||
		len(n.Labels) != 4 || n.Labels.Get("c") != "3" || n.Labels.Get("b") != "" || !n.Labels.Has("a") ||
		n.Labels.Has("b") {
		t.Errorf("%+v", n)
	}
	if again := LabeledNodeOf(o); !n.Same(again) {
		t.Errorf("the order of labels matters: %+v, %+v", n, again)
	}
	for sentence, o := range map[string]*v1.Node{"Ready": node(v1.ConditionTrue), "not Ready": node(v1.ConditionFalse),
		"of an unknown network": {Status: v1.NodeStatus{Conditions: []v1.NodeCondition{
			{Type: v1.NodeNetworkUnavailable, Status: v1.ConditionUnknown}}}}} {
		if n := LabeledNodeOf(o); n.Unreachable || !n.Since.IsZero() || n.Tainted || n.ControlPlane || n.Zone != "" {
			t.Errorf("%s: %+v", sentence, n)
		}
	}
}

// Each fact that a decision depends on makes another record.
func TestSameLabeledNode(t *testing.T) {
	for sentence, other := range map[string]*LabeledNode{
		"zone": {Zone: "z"}, "reach": {Unreachable: true}, "since": {Since: time.Unix(1, 0)}, "taint": {Tainted: true},
		"role": {ControlPlane: true}, "labels": {Labels: NodeLabels{{"a", "b"}}},
	} {
		if other.Same(&LabeledNode{}) || !other.Same(other) {
			t.Errorf("the %s of a node does not matter", sentence)
		}
	}
}
