package podsafety

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRecordOfTaintedNodeShowsReady expects a change of Ready to wake the pods of a tainted node, because the taint
// becomes evidence when the node is no longer Ready.
func TestRecordOfTaintedNodeShowsReady(t *testing.T) {
	tainted := func(ready v1.ConditionStatus) node {
		n, _, err := recordNode(&v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: v1.TaintNodeOutOfService}}},
			Status:     v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: ready}}},
		}, false)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if tainted(v1.ConditionTrue) == tainted(v1.ConditionFalse) {
		t.Error("a tainted node has the same record, Ready and not Ready")
	}
}

func TestCandidateIsDroppedByUID(t *testing.T) {
	w := newWorld(t, Config{})
	w.observer.candidates["ns/db"] = podOf(held(unheld)).facts()
	w.observer.drop("ns/db", "uid-of-before")
	if len(w.observer.candidates) != 1 {
		t.Error("a pod that was offered meanwhile is dropped")
	}
	w.observer.drop("ns/db", "uid")
	if len(w.observer.candidates) != 0 {
		t.Error("the pod is not dropped")
	}
}
