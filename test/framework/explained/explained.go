// Package explained has the common parts of tests about explanations.
package explained

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
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

// JSON formats a value as -o json does.
func JSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Row is a case of a table: a change of the base facts, and the words of the resulting text, see Expect.
type Row[F any] = struct {
	Change func(*F)
	Want   []string
}

// Table checks, for each row, the text about the base facts after the change of the row.
func Table[F any](t *testing.T, base func() F, text func(F) string, rows map[string]Row[F]) {
	t.Helper()
	for sentence, row := range rows {
		t.Run(sentence, func(t *testing.T) {
			f := base()
			row.Change(&f)
			Expect(t, text(f), row.Want...)
		})
	}
}

// Forbid makes the API server refuse a read.
func Forbid[T any](r *explain.Read[T]) { *r = explain.Failed[T](ErrForbidden) }

// Skip makes a read one that was not made.
func Skip[T any](r *explain.Read[T]) { *r = explain.Read[T]{} }

// Remove makes a read find no object, and Clear makes it find an empty list.
func Remove[T any](r *explain.Read[*T]) { *r = explain.Found[*T](nil) }
func Clear[T any](r *explain.Read[[]T]) { *r = explain.Found[[]T](nil) }

// Lease is a Lease of 15 seconds that its holder renewed last this long ago.
func Lease(name, holder string, renewed time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, ResourceVersion: "1",
		Annotations: map[string]string{}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(holder), LeaseDurationSeconds: ptr.To[int32](15),
			RenewTime: ptr.To(metav1.NewMicroTime(Now().Add(-renewed)))}}
}

// Pod is a pod with these claims.
func Pod(namespace, name string, claims ...string) *v1.Pod {
	o := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("pod-" + name)}}
	for _, claim := range claims {
		o.Spec.Volumes = append(o.Spec.Volumes, v1.Volume{Name: claim, VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	return o
}

// Attachment is an attachment of a PV of a driver to a node.
func Attachment(name, node, pv, driver string) storagev1.VolumeAttachment {
	return storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
		Status: storagev1.VolumeAttachmentStatus{Attached: true}}
}

// Node is a node whose condition Ready changed 10 minutes ago.
func Node(name string, ready v1.ConditionStatus) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{BootID: "boot-1"}, Conditions: []v1.NodeCondition{{
			Type: v1.NodeReady, Status: ready, LastTransitionTime: Ago(10 * time.Minute),
			Message: "Kubelet stopped posting node status."}}}}
}
