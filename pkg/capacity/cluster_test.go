package capacity

import (
	"errors"
	"fmt"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

var zoneA = WorkItem{"late", "zone=a"}

func TestDeletePreconditions(t *testing.T) {
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

func TestObjectsAtOmitsDeletedObject(t *testing.T) {
	m, o := newTracker(), Object{Name: "a", UID: "u1", ResourceVersion: "7", Item: zoneA}
	m.wrote(o)
	behind := &lagging{shown: map[string]Object{"a": o}, version: 1}
	behind.Each(m.show)
	if there := m.objectsAt(o.Item, behind, "ns"); len(there) != 1 {
		t.Fatalf("what was written is %v", there)
	}
	m.deleting(o.UID)
	if there := m.objectsAt(o.Item, behind, "ns"); len(there) > 0 {
		t.Errorf("what was deleted is %v", there)
	}
}

// The cache may still lack one written object while it shows the others.
func TestObjectsAtMergesCacheAndWrites(t *testing.T) {
	m, item := newTracker(), zoneA
	own := Object{Name: "b", UID: "u2", ResourceVersion: "7", Item: item}
	m.wrote(own)
	older, other := own, Object{Name: "a", UID: "u1", Item: item}
	older.ResourceVersion = "6"
	behind := &lagging{shown: map[string]Object{"a": other, "b": older}, version: 6}
	behind.Each(m.show)
	there := m.objectsAt(item, behind, "ns")
	if len(there) != 2 || there[0].UID != "u1" || there[1].ResourceVersion != "7" {
		t.Errorf("there are %v", there)
	}
	behind.version = 7
	if m.objectsAt(item, behind, "ns"); len(m.written) > 0 {
		t.Errorf("remembered although the cache shows it: %v", m.written)
	}
}

// The cache changes before the tracker hears of that.
func TestObjectsAtOmitsObjectsThatCacheLacks(t *testing.T) {
	m, item := newTracker(), zoneA
	m.show(Object{Name: "gone", Item: item})
	m.show(Object{Name: "moved", Item: item})
	cache := &lagging{shown: map[string]Object{"moved": {Name: "moved", Item: WorkItem{"late", "zone=b"}}}}
	if there := m.objectsAt(item, cache, "ns"); len(there) > 0 {
		t.Errorf("%+v", there)
	}
}

// A decision reads the objects of its own item, however many the cluster has, and each change of the cache is known.
func TestDecisionReadsOnlyObjectsOfItsItem(t *testing.T) {
	t.Parallel()
	const own = 2
	for _, n := range []int{100, 1_000, 5_000} {
		w := newWorld(t)
		changes := objectChanges{w.c}
		add := func(name string, item WorkItem) Object {
			o := Object{Name: name, UID: types.UID(name), Item: item, Ours: true}
			w.objects.shown[name] = o
			changes.Added(o)
			return o
		}
		for i := range n {
			add(fmt.Sprint("other-", i), WorkItem{"late", Segment(fmt.Sprint("host=", i))})
		}
		item, moved := zoneA, WorkItem{"late", "zone=b"}
		first, second := add("a", item), add("b", item)
		w.objects.read = 0
		if f := w.c.observe(item); len(f.Objects) != own || w.objects.read != own {
			t.Errorf("%d objects: found %v, read %d", n, f.Objects, w.objects.read)
		}
		again := second
		again.UID, again.Item = "b2", moved // deleted, and created again with that name, between two lists
		w.objects.shown["b"] = again
		changes.Updated(second, again)
		delete(w.objects.shown, "a")
		changes.Deleted(first, true)
		if is, at := w.c.observe(item).Objects, w.c.observe(moved).Objects; len(is) > 0 || len(at) != 1 {
			t.Errorf("%d objects: %v are found although they are gone, and %v at the other item", n, is, at)
		}
		if names, found := w.c.tracker.shown[item]; found || len(w.c.tracker.shown[moved]) != 1 {
			t.Errorf("%d objects: %v are remembered", n, names)
		}
	}
}

// The cache still shows an object for a while after its deletion by another client.
func TestRemoveOfMissingObject(t *testing.T) {
	w := newWorld(t)
	gone := Object{Name: "gone", UID: "u1"}
	if err := w.c.remove(t.Context(), gone); err != nil || !w.c.tracker.deleted["u1"] {
		t.Errorf("%v, remembered %v", err, w.c.tracker.deleted)
	}
}

func TestWroteIgnoresOtherItems(t *testing.T) {
	w := newWorld(t)
	stored := newObject(WorkItem{"late", "zone=b"}, Capacity{}, w.c.labels, nil)
	if w.c.wrote(zoneA, stored); len(w.c.tracker.written) > 0 {
		t.Errorf("noted: %v", w.c.tracker.written)
	}
	if w.c.wrote(WorkItem{"late", "zone=b"}, stored); len(w.c.tracker.written) != 1 {
		t.Error("its own is not noted")
	}
}

func TestOwnerUnknownBeforeSurvey(t *testing.T) {
	w := newWorld(t)
	if f := w.c.observe(zoneA); f.OwnerKnown {
		t.Errorf("known from the start: %+v", f)
	}
	w.look()
	if f := w.c.observe(zoneA); !f.OwnerKnown {
		t.Errorf("not known after the survey: %+v", f)
	}
}
