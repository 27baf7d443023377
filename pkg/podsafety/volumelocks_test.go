package podsafety

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
)

// Volumes of one namespace leave room in a VolumeLock for those of others, and the lock stays below the limit of etcd.
func TestVolumeLockHasShares(t *testing.T) {
	of := func(namespace string, volumes map[string]holder, n int) {
		for i := range n {
			volumes[fmt.Sprintf("pv-%s-%d", namespace, i)] = holder{namespace, strings.Repeat("n", 253), "u"}
		}
	}
	before, volumes := map[string]holder{}, map[string]holder{}
	of("many", volumes, 10000)
	refused := admit(before, volumes)
	if refused == 0 || len(volumes)+refused != 10000 {
		t.Fatalf("%d refused, %d left", refused, len(volumes))
	}
	kept := len(volumes)
	for pv, by := range volumes {
		before[pv] = by
	}
	of("many", volumes, 10000)
	of("few", volumes, 100)
	if refused := admit(before, volumes); refused != 10000-kept || len(volumes) != kept+100 {
		t.Errorf("%d refused, %d left, want %d and %d", refused, len(volumes), 10000-kept, kept+100)
	}
	lock := volumeLock{node: "node", volumes: volumes}
	if text, err := json.Marshal(lock.unstructured()); err != nil || len(text) > maxLockBytes {
		t.Errorf("the lock has %d bytes: %v", len(text), err)
	}
	before, volumes = map[string]holder{}, map[string]holder{}
	for n := range 100 {
		of(fmt.Sprintf("ns-%d", n), volumes, 100)
	}
	lock.volumes = volumes
	if refused := admit(before, volumes); refused == 0 {
		t.Error("the namespaces together have more room than there is")
	}
	if text, err := json.Marshal(lock.unstructured()); err != nil || len(text) > maxLockBytes {
		t.Errorf("the lock of many namespaces has %d bytes: %v", len(text), err)
	}
	before, volumes = map[string]holder{}, map[string]holder{}
	of("old", volumes, 10000)
	of("old", before, 10000)
	if refused := admit(before, volumes); refused > 0 || len(volumes) != 10000 {
		t.Errorf("%d volumes that were locked lose it", refused)
	}
}

// The minutes until a volume is detached by force may be over when its node is lost.
func TestLockOfOverdueUnmount(t *testing.T) {
	w := newWorld(t, Config{VolumeLocks: true})
	w.pvs["pv-data"] = false
	w.show(held(terminating, finished, func(o *v1.Pod) { *o.DeletionGracePeriodSeconds = 30 }))
	begin := w.reconcilePod()
	w.lock(t.Context(), "a")
	w.expectCalls() // an unmount takes a moment
	w.clock.Step(begin.Backoff.First)
	if got := w.reconcilePod(); got != controller.Done() {
		t.Errorf("an overdue unmount waits %+v", got)
	}
	w.lock(t.Context(), "a")
	w.expectCalls("get volume", "create lock")
	w.show(held(terminating, finished, unheld))
	w.lock(t.Context(), "a")
	w.expectCalls("get pod", "delete lock")
}
