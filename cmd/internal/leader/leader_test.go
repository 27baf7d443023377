package leader

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestLeaseName(t *testing.T) {
	for driver, want := range map[string]string{
		"disk.csi.example.com": "disk-csi-example-com",
		"example.com/disk":     "example-com-disk",
		"disk":                 "disk",
		"Disk.CSI.Example":     "disk-csi-example",
		"disk-":                "disk-x",
		"disk.":                "disk-x",
	} {
		if got := LeaseName(driver); got != want {
			t.Errorf("LeaseName(%q) = %q, want %q", driver, got, want)
		}
	}
}

func TestNilElector(t *testing.T) {
	var none *Elector
	if err := none.Check(); err != nil {
		t.Error(err)
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

// A replica that may not use its Lease never leads, and names the reason.
func TestMissingPermissions(t *testing.T) {
	var none *Elector
	if missing, err := none.MissingPermissions(t.Context()); len(missing) > 0 || err != nil {
		t.Errorf("without an election: %v, %v", missing, err)
	}
	client := fake.NewClientset()
	client.PrependReactor("create", "selfsubjectaccessreviews",
		func(a clienttesting.Action) (bool, runtime.Object, error) {
			review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
			of := review.Spec.ResourceAttributes
			review.Status.Allowed = of.Verb != "update" || of.Namespace != "n" || of.Resource != "leases"
			return true, review, nil
		})
	e := newElector(time.Minute, client)
	e.cfg.Namespace = "n"
	missing, err := e.MissingPermissions(t.Context())
	if err != nil || len(missing) != 1 || missing[0].Verb != "update" || !missing[0].Unsafe {
		t.Errorf("%v, %v", missing, err)
	}
}

func TestInvalidElection(t *testing.T) {
	e := newElector(time.Minute, fake.NewClientset())
	e.cfg.RenewDeadline = 2 * e.cfg.LeaseDuration
	err := e.Run(t.Context(), func(context.Context) error { t.Error("leads without an election"); return nil })
	if err == nil {
		t.Error("Run = nil")
	}
	if _, err := new(Options).Elector(&rest.Config{Host: "http://:x"}, "disk", leadership.NewClock()); err == nil {
		t.Error("an API server without address is taken")
	}
}

func TestNewIdentityAndNamespace(t *testing.T) {
	host := must.Get(os.Hostname())(t)
	t.Setenv("POD_NAMESPACE", "here")
	given := Config{Namespace: "there", Identity: "me"}
	for want, cfg := range map[[2]string]Config{{"here", host}: {}, {"there", "me"}: given} {
		clock := leadership.NewClock()
		e, err := (&Options{Settings: cfg}).Elector(&rest.Config{}, "disk", clock)
		if err != nil || e.cfg.Namespace != want[0] || leadership.HostOf(e.cfg.Identity) != want[1] || e.cfg.Clock != clock {
			t.Errorf("%+v, %v", e, err)
		}
	}
	if !new(Options).KnowsNamespace() {
		t.Error("the namespace of the pod is unknown")
	}
	if t.Setenv("POD_NAMESPACE", ""); new(Options).Namespace() == "" {
		t.Error("a program outside of a cluster has no namespace")
	}
	if !(&Options{Settings: given}).KnowsNamespace() {
		t.Error("the flag's namespace is unknown")
	}
}

func TestClosedTermDoesNotRun(t *testing.T) {
	var over term
	must.OK(t, over.close())
	over.run(func() error { t.Error("leads after the election is over"); return nil })
}

func TestTermClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	})
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
		o := Options{Settings: Config{Namespace: "ns", LeaseDuration: leaseDuration, RenewDeadline: leaseDuration / 2,
			RetryPeriod: 10 * time.Millisecond}}
		e := must.Get(o.Elector(&rest.Config{}, "disk", leadership.NewClock()))(t)
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
	one := must.Get(o.Identity())(t)
	e, err := o.Elector(&rest.Config{}, "disk", leadership.NewClock())
	if err != nil || one == "" || e.cfg.Identity != one {
		t.Errorf("%q, %+v, %v", one, e, err)
	}
}
