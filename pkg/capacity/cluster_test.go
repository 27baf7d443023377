package capacity

import (
	"errors"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
)

func TestADeletionIsBoundToWhatWasRead(t *testing.T) {
	resource := schema.GroupResource{Group: "storage.k8s.io", Resource: "csistoragecapacities"}
	for name, c := range map[string]struct{ answer, want error }{
		"it is as it was": {nil, nil},
		"it changed":      {apierrors.NewConflict(resource, "a", errors.New("precondition failed")), kube.ErrChanged},
		"it is gone":      {apierrors.NewNotFound(resource, "a"), kube.ErrGone},
	} {
		t.Run(name, func(t *testing.T) {
			var only *metav1.Preconditions
			client := fake.NewClientset(&storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}})
			client.PrependReactor("delete", "csistoragecapacities", func(a k8stesting.Action) (bool, runtime.Object, error) {
				if d, ok := a.(k8stesting.DeleteActionImpl); ok {
					only = d.DeleteOptions.Preconditions
				}
				return true, nil, c.answer
			})
			server := apiServer{objects: client.StorageV1().CSIStorageCapacities("ns")}
			if err := server.remove(t.Context(), Object{Name: "a", UID: "u1", ResourceVersion: "7"}); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if only == nil || only.UID == nil || *only.UID != "u1" || only.ResourceVersion == nil ||
				*only.ResourceVersion != "7" {
				t.Errorf("preconditions %+v", only)
			}
		})
	}
}

func TestWhatWasWrittenAndDeletedIsNotThere(t *testing.T) {
	m, o := newTracker(), Object{Name: "a", UID: "u1", ResourceVersion: "7", Item: WorkItem{"late", "zone=a"}}
	m.wrote(o)
	behind := &lagging{shown: map[string]Object{"a": o}, version: 1}
	if there := m.objectsAt(o.Item, behind); len(there) != 1 {
		t.Fatalf("what was written is %v", there)
	}
	m.deleting(o.UID)
	if there := m.objectsAt(o.Item, behind); len(there) > 0 {
		t.Errorf("what was deleted is %v", there)
	}
}
