package provision_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// calls is a worker whose call in flight ends when it is allowed to.
type calls struct {
	began, stopped, finish chan struct{}
	err                    error
}

func newCalls() calls {
	return calls{began: make(chan struct{}), stopped: make(chan struct{}), finish: make(chan struct{})}
}

func (c calls) run(context.Context) error { close(c.began); <-c.finish; return c.err }
func (c calls) stop()                     { close(c.stopped) }

// leads has a worker compete for a free Lease until ctx ends.
func leads(ctx context.Context, t *testing.T, w worker) (ended chan error) {
	t.Helper()
	client := newClientset()
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "default", "example", client.CoreV1(),
		client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: "a"})
	if err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() { ended <- lead(ctx, lock, leaderelection.NewLeaderHealthzAdaptor(time.Second), w) }()
	return ended
}

func TestProductionReplicaFinishesItsCalls(t *testing.T) {
	ctx, signal := context.WithCancel(t.Context())
	w := newCalls()
	ended := leads(ctx, t, w)
	<-w.began
	signal()
	<-w.stopped
	select {
	case err := <-ended:
		t.Fatalf("ended with a call in flight: %v", err)
	default:
	}
	close(w.finish)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestProductionReplicaEndsWithItsWork(t *testing.T) {
	w := newCalls()
	w.err = errors.New("the log was taken over")
	close(w.finish)
	if err := <-leads(t.Context(), t, w); !errors.Is(err, w.err) {
		t.Errorf("ended with %v", err)
	}
	lost := newCalls()
	close(lost.finish)
	if err := <-leads(t.Context(), t, lost); err == nil {
		t.Error("a replica that works no more goes on")
	}
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
