package leader

import (
	"context"
	"errors"
	"math"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
)

func TestLeaseName(t *testing.T) {
	for driver, want := range map[string]string{
		"disk.csi.example.com": "disk-csi-example-com",
		"example.com/disk":     "example-com-disk",
		"disk":                 "disk",
		"Disk.CSI.Example":     "disk-csi-example",
		"disk-":                "disk-X",
		"disk.":                "disk-X",
	} {
		if got := LeaseName(driver); got != want {
			t.Errorf("LeaseName(%q) = %q, want %q", driver, got, want)
		}
	}
}

func TestNilElector(t *testing.T) {
	var none *Elector
	if err := none.Check(); err != nil || none.Left() != math.MaxInt64 {
		t.Errorf("%v, %v left", err, none.Left())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wrong := errors.New("wrong")
	err := none.Run(ctx, func(leading context.Context) error {
		if leading.Err() != nil {
			t.Errorf("what is under way is cut off: %v", leading.Err())
		}
		return wrong
	})
	if !errors.Is(err, wrong) {
		t.Errorf("Run = %v", err)
	}
}

func TestInvalidElection(t *testing.T) {
	e := newElector(time.Minute, fake.NewClientset())
	e.cfg.RenewDeadline = 2 * e.cfg.LeaseDuration
	err := e.Run(t.Context(), func(context.Context) error { t.Error("leads without an election"); return nil })
	if err == nil {
		t.Error("Run = nil")
	}
	if _, err := New(&rest.Config{Host: "http://:x"}, Config{}); err == nil {
		t.Error("an API server without address is taken")
	}
}

func TestNewIdentityAndNamespace(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("POD_NAMESPACE", "here")
	clock := leadership.NewClock()
	given := Config{Namespace: "there", Identity: "me", Clock: clock}
	for want, cfg := range map[[2]string]Config{{"here", host}: {}, {"there", "me"}: given} {
		e, err := New(&rest.Config{}, cfg)
		if err != nil || e.cfg.Namespace != want[0] || leadership.HostOf(e.cfg.Identity) != want[1] || e.cfg.Clock == nil ||
			(e.cfg.Clock == clock) != (cfg.Clock == clock) {
			t.Errorf("%+v, %v", e, err)
		}
	}
	if !new(Options).KnowsNamespace() {
		t.Error("the namespace of the pod is unknown")
	}
	if t.Setenv("POD_NAMESPACE", ""); PodNamespace() == "" {
		t.Error("a program outside of a cluster has no namespace")
	}
	if !(&Options{Settings: given}).KnowsNamespace() {
		t.Error("the flag's namespace is unknown")
	}
}

func TestClosedTermDoesNotRun(t *testing.T) {
	var over term
	if err := over.close(); err != nil {
		t.Fatal(err)
	}
	over.run(func() error { t.Error("leads after the election is over"); return nil })
}

func TestTermClose(t *testing.T) { synctest.Test(t, testTermClose) }

func testTermClose(t *testing.T) {
	wrong := errors.New("wrong")
	var now term
	begun, end := make(chan struct{}), make(chan struct{})
	go now.run(func() error { close(begun); <-end; return wrong })
	<-begun
	if !now.begun() {
		t.Error("does not say that it has begun")
	}
	closed := make(chan error, 1)
	go func() { closed <- now.close() }()
	synctest.Wait()
	if len(closed) > 0 {
		t.Error("closed while the term went on")
	}
	close(end)
	if err := <-closed; !errors.Is(err, wrong) {
		t.Errorf("close = %v, want %v", err, wrong)
	}
}

// Two pods with the host's network on one node have the same host name.
func TestReplicasOnSameHost(t *testing.T) {
	client := fake.NewClientset()
	var second atomic.Bool
	refused, asked := 0, make(chan struct{}, 1)
	client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		if second.Load() {
			if refused++; refused == 10 { // a fake API server serves one request at a time
				asked <- struct{}{}
			}
		}
		return false, nil, nil
	})
	replica := func() *Elector {
		e, err := New(&rest.Config{}, Config{Name: "disk", Namespace: "ns", LeaseDuration: leaseDuration,
			RenewDeadline: leaseDuration / 2, RetryPeriod: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		e.client = client
		return e
	}
	ctx, cancel := context.WithCancel(t.Context())
	leads, ended := make(chan struct{}), make(chan error, 2)
	go func() {
		ended <- replica().Run(ctx, func(context.Context) error {
			close(leads)
			<-ctx.Done()
			return nil
		})
	}()
	<-leads
	other := replica()
	second.Store(true)
	both := make(chan struct{})
	go func() {
		ended <- other.Run(ctx, func(context.Context) error { close(both); return nil })
	}()
	select {
	case <-asked:
	case <-both:
		t.Error("a second replica of the host leads while the first does")
	}
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestIdentityIsStable(t *testing.T) {
	var o Options
	one, err := o.Identity()
	if err != nil {
		t.Fatal(err)
	}
	e, err := o.Elector(&rest.Config{}, "disk", leadership.NewClock())
	if err != nil || one == "" || e.cfg.Identity != one {
		t.Errorf("%q, %+v, %v", one, e, err)
	}
}
