package library

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
)

// TestLibraryWritesNoObjects covers PVs and Events.
func TestLibraryWritesNoObjects(t *testing.T) {
	client := fake.NewClientset()
	core := libraryClient{client}.CoreV1()
	if _, err := core.PersistentVolumes().Create(t.Context(), &v1.PersistentVolume{}, metav1.CreateOptions{}); err == nil {
		t.Error("a PV is created")
	}
	sink, event := &corev1.EventSinkImpl{Interface: core.Events("")}, &v1.Event{}
	if got, err := sink.Create(event); got != event || err != nil {
		t.Errorf("Create = %v, %v", got, err)
	}
	if got, err := sink.Patch(event, nil); got != event || err != nil {
		t.Errorf("Patch = %v, %v", got, err)
	}
	events := core.Events("")
	if got, err := events.CreateWithEventNamespaceWithContext(t.Context(), event); got != event || err != nil {
		t.Errorf("Create = %v, %v", got, err)
	}
	if got, err := events.PatchWithEventNamespaceWithContext(t.Context(), event, nil); got != event || err != nil {
		t.Errorf("Patch = %v, %v", got, err)
	}
	if actions := client.Actions(); len(actions) > 0 {
		t.Errorf("the API server was called: %v", actions)
	}
}

// TestEveryNodeIsFound: package provision reads nodes and handles missing ones, not the library.
func TestEveryNodeIsFound(t *testing.T) {
	if node, err := (nodeLister{}).Get("n1"); err != nil || node.Name != "n1" {
		t.Errorf("%v, %v", node, err)
	}
}

func TestLibraryGetsNoPVEvents(t *testing.T) {
	informer := newVolumeInformer()
	handler := cache.ResourceEventHandlerFuncs{AddFunc: func(any) { t.Error("the library got an event of a PV") }}
	if _, err := informer.AddEventHandlerWithResyncPeriod(handler, 0); err != nil {
		t.Fatal(err)
	}
	if !informer.HasSynced() {
		t.Error("it is not synced")
	}
}
