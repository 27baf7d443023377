package fencing

import (
	"slices"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// lists counts the lists of a resource.
func lists(c *fake.Clientset, resource string) (n int) {
	for _, a := range c.Actions() {
		if a.Matches("list", resource) {
			n++
		}
	}
	return n
}

func TestVolumeAttachmentListsAreShared(t *testing.T) {
	at := metav1.Now()
	leaving := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "leaving", DeletionTimestamp: &at,
		Finalizers: []string{"example.com/attacher"}}, Spec: storagev1.VolumeAttachmentSpec{NodeName: "node-1"}}
	stays := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "stays"},
		Spec: storagev1.VolumeAttachmentSpec{NodeName: "node-2"}}
	api, clock := fake.NewClientset(leaving, stays), clocktesting.NewFakePassiveClock(time.Now())
	server := apiServer{clients: clients{Clients: kube.Clients{Core: api.CoreV1(), Storage: api.StorageV1()}},
		detaching: &detaching{clock: clock}}
	list := func(ask fencing.Ask, want fencing.RemainingFacts, all int) {
		t.Helper()
		got, err := server.listRemaining(t.Context(), ask)
		if err != nil || got.All != want.All || got.Leaving != want.Leaving || !slices.Equal(got.Held, want.Held) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
		if n := lists(api, "volumeattachments"); n != all {
			t.Errorf("%d lists of VolumeAttachments, want %d", n, all)
		}
	}
	one, two := fencing.Ask{Node: "node-1"}, fencing.Ask{Node: "node-2"}
	volume := fencing.Remains{VolumeAttachments: 1}
	list(fencing.Ask{Node: "node-1", PodsOnly: true}, fencing.RemainingFacts{}, 0)
	list(one, fencing.RemainingFacts{All: volume, Leaving: volume}, 1)
	list(two, fencing.RemainingFacts{All: volume}, 2)
	list(one, fencing.RemainingFacts{All: volume, Leaving: volume}, 2) // as the list for the other node has shown
	if err := api.StorageV1().VolumeAttachments().Delete(t.Context(), "leaving", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	list(one, fencing.RemainingFacts{All: volume, Leaving: volume}, 2)
	clock.SetTime(clock.Now().Add(shareFor))
	list(one, fencing.RemainingFacts{}, 3)
	list(one, fencing.RemainingFacts{}, 4) // an empty result is always live

	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "default", UID: "pod", DeletionTimestamp: &at,
		Finalizers: []string{objects.RunningFinalizer}}, Spec: v1.PodSpec{NodeName: "node-1"}}
	if err := api.Tracker().Add(pod); err != nil {
		t.Fatal(err)
	}
	held := fencing.Remains{Pods: 1}
	list(fencing.Ask{Node: "node-1", PodsOnly: true}, fencing.RemainingFacts{All: held, Leaving: held,
		Held: []types.UID{"pod"}}, 4)
	// The pod may wait for the end of the fence: it does not make the others unknown.
	list(one, fencing.RemainingFacts{All: held, Leaving: held, Held: []types.UID{"pod"}}, 5)
}
