package reclaim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// hanging is a storage system that answers calls for volumes named "slow…" late, and with an error.
type hanging struct{ deleted atomic.Int64 }

func (h *hanging) DeleteVolume(ctx context.Context, handle string, _ map[string]string) error {
	if !strings.HasPrefix(handle, "slow") {
		h.deleted.Add(1)
		return nil
	}
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
	}
	return errors.New("no answer")
}

// A replica whose second Run returned nil at once would look healthy.
func TestSecondRunFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := NewForClient(fake.NewClientset(), driver, &hanging{}, Config{NeverAttached: true})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- r.Run(t.Context()) }()
		synctest.Wait()
		if err := r.Run(t.Context()); err == nil || !r.leads() {
			t.Errorf("beside the first: %v, leads %t", err, r.leads())
		}
		r.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestRunAfterStopEnds(t *testing.T) {
	r, err := NewForClient(fake.NewClientset(), driver, &hanging{}, Config{NeverAttached: true})
	if err != nil {
		t.Fatal(err)
	}
	r.Stop()
	if err := r.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestHangingDeletionsLeaveWorkersToOthers: a second after its PV appears, a volume of another storage system is gone.
func TestHangingDeletionsLeaveWorkersToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := fake.NewClientset(), &hanging{}
		makePV := func(name string) {
			pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "1",
				Finalizers: []string{volume.Finalizer}, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": driver}}}
			pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}
			pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimDelete
			pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: name, UID: "claim-uid"}
			pv.Status.Phase = v1.VolumeReleased
			if _, err := client.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for n := range 6 {
			makePV(fmt.Sprint("slow", n))
		}
		r, err := NewForClient(client, driver, store, Config{Workers: 2, NeverAttached: true, RetryStart: time.Second,
			RetryMax: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		time.Sleep(time.Minute) // each slow volume was tried
		makePV("other")
		time.Sleep(time.Second)
		if store.deleted.Load() != 1 {
			t.Error("the volume waits for volumes whose calls hang")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
