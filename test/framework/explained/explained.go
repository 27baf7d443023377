// Package explained has the common parts of tests about explanations.
package explained

import (
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// ErrForbidden is the error of a read that the API server refuses.
var ErrForbidden = errors.New("forbidden")

// Now is the time of all reads.
func Now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// Ago is a time before Now.
func Ago(d time.Duration) metav1.Time { return metav1.NewTime(Now().Add(-d)) }

// Expect checks that text contains each of the words, and does not contain words that begin with "!".
func Expect(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, words := range want {
		words, not := strings.CutPrefix(words, "!")
		if strings.Contains(text, words) == not {
			t.Errorf("%q is said: %v, in\n%s", words, !not, text)
		}
	}
}

// Lease is a Lease of 15 seconds that its holder renewed last this long ago.
func Lease(name, holder string, renewed time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, ResourceVersion: "1",
		Annotations: map[string]string{}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(holder), LeaseDurationSeconds: ptr.To[int32](15),
			RenewTime: ptr.To(metav1.NewMicroTime(Now().Add(-renewed)))}}
}

// Node is a node whose condition Ready changed 10 minutes ago.
func Node(name string, ready v1.ConditionStatus) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{BootID: "boot-1"}, Conditions: []v1.NodeCondition{{
			Type: v1.NodeReady, Status: ready, LastTransitionTime: Ago(10 * time.Minute),
			Message: "Kubelet stopped posting node status."}}}}
}
