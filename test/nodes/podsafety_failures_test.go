//go:build linux

package nodes

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// waitKilling waits until the kubelet has begun to end the pod.
func (d *database) waitKilling() {
	d.T.Helper()
	d.waitSaid("Killing")
}

// waitDriver waits until a kubelet has registered the driver.
func (s *safety) waitDriver(ctx context.Context, node string) {
	s.T.Helper()
	for {
		now, err := s.Client.StorageV1().CSINodes().Get(ctx, node, metav1.GetOptions{})
		if err == nil && len(now.Spec.Drivers) > 0 {
			return
		}
		select {
		case <-ctx.Done():
			s.T.Fatalf("node %s has no driver: %v", node, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// testKubeletCrash crashes a kubelet while it ends a pod, which continues to write, and starts the kubelet again.
func testKubeletCrash(s *safety) {
	d := s.startDatabase("db", node1, node2, stubborn(longEnd))
	d.delete()
	d.waitKilling()
	s.Must(s.pool.Node(node1).Crash())
	s.T.Cleanup(func() {
		if s.T.Failed() {
			s.Must(s.pool.Node(node1).Restart(s.CleanupContext()))
		}
	})
	s.until("the grace period has passed", func() bool { return time.Now().After(d.now().DeletionTimestamp.Time) })
	d.expectHeld()
	s.Must(s.pool.Node(node1).Restart(s.Ctx))
	d.waitReplaced("Finished")
}

// outage is how long the API server is away at least.
const outage = 20 * time.Second

// testOutage kills volume-guard while a kubelet ends a pod, and starts it again while the API server is away.
func testOutage(s *safety) {
	d := s.startDatabase("db", node1, node2, stubborn(longEnd))
	d.delete()
	d.waitKilling()
	s.guard.Kill()
	restarted := false
	s.T.Cleanup(func() {
		if !restarted {
			s.Must(s.guard.Restart())
		}
	})
	s.waitEnded(node1, d.first.UID)
	s.until("the kubelet deletes the pod", func() bool {
		now := d.now()
		return now == nil || ptr.Deref(now.DeletionGracePeriodSeconds, -1) == 0
	})
	if now := d.now(); now == nil || now.UID != d.first.UID || !isHeld(now) {
		s.T.Errorf("the pod was released while volume-guard is away: %+v", now)
	}
	api := s.Plane.APIServer
	api.Kill()
	away := time.NewTimer(outage)
	s.Must(s.guard.Restart())
	restarted = true
	s.Must(s.guard.WaitLog(s.WithTimeout(), "connection refused"))
	<-away.C
	s.Must(api.Restart(s.Ctx))
	s.Must(s.guard.WaitReady(s.WithTimeout()))
	back := time.Now()
	s.until("the pod is released", func() bool { return s.released(d.name) != "" })
	s.T.Logf("released %s after volume-guard was ready", time.Since(back).Round(100*time.Millisecond))
	d.waitReplaced("Finished")
	s.waitHeard(node1, node2)
}

// waitHeard waits until the kubelets of the nodes renew their Leases.
func (s *safety) waitHeard(names ...string) {
	s.T.Helper()
	since := time.Now()
	for _, name := range names {
		s.until("node "+name+" is heard of", func() bool {
			lease, err := s.Client.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(s.Ctx, name, metav1.GetOptions{})
			return err == nil && lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(since)
		})
	}
}
