package podsafety

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestNodeOf(t *testing.T) {
	node := func(status v1.ConditionStatus, taints ...v1.Taint) *v1.Node {
		return &v1.Node{
			Spec: v1.NodeSpec{Taints: taints},
			Status: v1.NodeStatus{Conditions: []v1.NodeCondition{
				{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue}, {Type: v1.NodeReady, Status: status},
				{Type: v1.NodeNetworkUnavailable, Status: v1.ConditionTrue}}},
		}
	}
	others := v1.Taint{Key: v1.TaintNodeOutOfService, Value: "nodeshutdown"}
	ours := v1.Taint{Key: v1.TaintNodeOutOfService, Value: OwnTaintValue}
	for name, c := range map[string]struct {
		node *v1.Node
		want NodeFacts
		seen NodeSeen
	}{
		"Ready":        {node(v1.ConditionTrue), NodeFacts{Found: true, Ready: ReadyTrue}, NodeReady},
		"not Ready":    {node(v1.ConditionFalse), NodeFacts{Found: true, Ready: ReadyFalse}, NodeNotReady},
		"not heard of": {node(v1.ConditionUnknown), NodeFacts{Found: true, Ready: ReadyUnknown}, NodeNotReady},
		"a new word":   {node("Perhaps"), NodeFacts{Found: true}, NodeNotReady},
		"no condition": {&v1.Node{}, NodeFacts{Found: true}, NodeNotReady},
		"out of service": {node(v1.ConditionFalse, others), NodeFacts{Found: true, Ready: ReadyFalse, OutOfService: true},
			NodeTainted},
		"out of service, Ready": {node(v1.ConditionTrue, others),
			NodeFacts{Found: true, Ready: ReadyTrue, OutOfService: true}, NodeTaintedReady},
		"out of service by us, Ready": {node(v1.ConditionTrue, ours),
			NodeFacts{Found: true, Ready: ReadyTrue, OwnTaint: true}, NodeTaintedReady},
		"out of service by us": {node(v1.ConditionUnknown, ours),
			NodeFacts{Found: true, Ready: ReadyUnknown, OwnTaint: true}, NodeTainted},
		"by both": {node(v1.ConditionUnknown, ours, others),
			NodeFacts{Found: true, Ready: ReadyUnknown, OwnTaint: true, OutOfService: true}, NodeTainted},
		"another taint": {node(v1.ConditionTrue, v1.Taint{Key: v1.TaintNodeUnreachable}),
			NodeFacts{Found: true, Ready: ReadyTrue}, NodeReady},
	} {
		got := NodeOf(c.node)
		if got != c.want || got.Seen() != c.seen {
			t.Errorf("%s: %+v, seen %d", name, got, got.Seen())
		}
	}
	if got := (NodeFacts{}).Seen(); got != NodeAbsent {
		t.Errorf("no node: %d", got)
	}
}

func TestModeOf(t *testing.T) {
	for value, want := range map[string]Mode{"enforce": ModeEnforce, "warn": ModeWarn, "Enforce": ModeOff, "": ModeOff} {
		if got := ModeOf(map[string]string{NamespaceLabel: value}); got != want {
			t.Errorf("%q: %d", value, got)
		}
	}
	if got := ModeOf(nil); got != ModeOff {
		t.Errorf("no label: %d", got)
	}
}
