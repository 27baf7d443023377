package provision_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// calls is a worker whose call in flight ends when it is allowed to.
type calls struct {
	began, stopped, finish chan struct{}
	err                    error
	// cut is the error of the context at the end of the call.
	cut error
}

func newCalls() *calls {
	return &calls{began: make(chan struct{}), stopped: make(chan struct{}), finish: make(chan struct{})}
}

func (c *calls) run(ctx context.Context) error {
	close(c.began)
	<-c.finish
	c.cut = ctx.Err()
	return c.err
}

func (c *calls) stop() { close(c.stopped) }

// leads has a worker compete for a Lease until ctx ends.
func leads(ctx context.Context, t *testing.T, client kubernetes.Interface, w worker) (ended chan error) {
	t.Helper()
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "default", "example", client.CoreV1(),
		client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: "a"})
	if err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	health := leaderelection.NewLeaderHealthzAdaptor(time.Second)
	go func() { ended <- lead(ctx, leadership.NewClock(), lock, health, w) }()
	return ended
}

func TestProductionReplicaFinishesItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, signal := context.WithCancel(t.Context())
		w := newCalls()
		ended := leads(ctx, t, newClientset(), w)
		<-w.began
		signal()
		<-w.stopped
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("ended with a call in flight")
		}
		close(w.finish)
		if err := <-ended; err != nil || w.cut != nil {
			t.Errorf("ended with %v; the context of the call in flight: %v", err, w.cut)
		}
	})
}

func TestProductionReplicaEndsWithItsWork(t *testing.T) {
	w := newCalls()
	w.err = errors.New("the log was taken over")
	close(w.finish)
	if err := <-leads(t.Context(), t, newClientset(), w); !errors.Is(err, w.err) {
		t.Errorf("ended with %v", err)
	}
	lost := newCalls()
	close(lost.finish)
	if err := <-leads(t.Context(), t, newClientset(), lost); err == nil {
		t.Error("a replica that works no more goes on")
	}
}

// A restored etcd has an earlier Lease. The caches of a replica that waits may be ahead of the cluster.
func TestWaitingProductionReplicaEndsIfLeaseGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClientset()
		leases, now := client.CoordinationV1().Leases("default"), metav1.NewMicroTime(time.Now())
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "example"},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("other"), LeaseDurationSeconds: ptr.To[int32](15),
				RenewTime: &now, AcquireTime: &now, LeaseTransitions: ptr.To[int32](5)}}
		must.Get(leases.Create(t.Context(), lease, metav1.CreateOptions{}))(t)
		w := newCalls()
		ended := leads(t.Context(), t, client, w)
		time.Sleep(time.Second) // by the clock of the bubble: it has read the Lease
		lease.Spec.LeaseTransitions = ptr.To[int32](4)
		must.Get(leases.Update(t.Context(), lease, metav1.UpdateOptions{}))(t)
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "restore of etcd") {
				t.Errorf("ended with %v", err)
			}
		case <-w.began:
			close(w.finish)
			t.Error("it leads")
		case <-time.After(time.Minute): // by the clock of the bubble
			t.Error("it waits for ever")
		}
	})
}

func TestProductionEndpoints(t *testing.T) {
	synced := false
	handler := endpoints(prometheus.NewRegistry(), leaderelection.NewLeaderHealthzAdaptor(time.Second),
		func() bool { return synced })
	status := func(path string) int {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return answer.Code
	}
	if got := status("/readyz"); got != http.StatusServiceUnavailable {
		t.Errorf("before the first lists it is %d", got)
	}
	synced = true
	for _, path := range []string{"/readyz", "/healthz/leader-election", "/metrics"} {
		if got := status(path); got != http.StatusOK {
			t.Errorf("%s: %d", path, got)
		}
	}
}

// The error that a replica ends with is the first one of its goroutines.
func TestClosedServerHidesNoError(t *testing.T) {
	server := &http.Server{Addr: "no address", ReadHeaderTimeout: time.Second}
	if err := serve(server); err == nil {
		t.Error("it serves nowhere, without an error")
	}
	must.OK(t, server.Close())
	if err := serve(server); err != nil {
		t.Errorf("after its end: %v", err)
	}
}
