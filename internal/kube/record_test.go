package kube

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRecordAll(t *testing.T) {
	record := RecordAll(func(o *v1.Node) string { return o.Name })
	name, keep, err := record(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, false)
	if name != "a" || !keep || err != nil {
		t.Errorf("%q, kept %t: %v", name, keep, err)
	}
	if _, _, err := record(&v1.Pod{}, false); err == nil {
		t.Error("a pod is recorded as a node")
	}
}
