package leader

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// leaseDuration is far above the duration of any test here, so that no lease expires in them.
const leaseDuration = 5 * time.Minute

// newElector returns an Elector with the identity "former", for a Lease of a fake API server with this duration.
func newElector(duration time.Duration, client *fake.Clientset) *Elector {
	return &Elector{
		cfg: Config{
			Name: "disk", Namespace: "ns", Identity: "former", Clock: leadership.NewClock(),
			LeaseDuration: duration, RenewDeadline: duration * 2 / 3, RetryPeriod: 100 * time.Millisecond,
		},
		client: client, health: leaderelection.NewLeaderHealthzAdaptor(healthTimeout),
	}
}

// held returns the current Lease.
func held(ctx context.Context, t *testing.T, client *fake.Clientset) *coordinationv1.Lease {
	t.Helper()
	o := must.Get(client.CoordinationV1().Leases("ns").Get(ctx, "disk", metav1.GetOptions{}))(t)
	return o
}

func TestLeaderEndsAtOtherHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var taken atomic.Bool
		// A fake API server accepts every write, while a real one rejects an outdated resourceVersion.
		client.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			update, _ := a.(clienttesting.UpdateAction)
			o, ok := update.GetObject().(*coordinationv1.Lease)
			stale := taken.Load() && ok && *o.Spec.HolderIdentity != "next"
			return stale, nil, apierrors.NewConflict(coordinationv1.Resource("leases"), "disk", errors.New("changed"))
		})
		e := newElector(leaseDuration, client)
		leads := make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			ended <- e.Run(t.Context(), func(ctx context.Context) error {
				close(leads)
				<-ctx.Done()
				return nil
			})
		}()
		<-leads
		if e.cfg.Clock.Left() <= 0 {
			t.Fatalf("leads, and %v of the lease are left", e.cfg.Clock.Left())
		}
		begun := time.Now()
		taken.Store(true)
		o := held(t.Context(), t, client)
		o.Spec.HolderIdentity = ptr.To("next")
		must.Get(client.CoordinationV1().Leases("ns").Update(t.Context(), o, metav1.UpdateOptions{}))(t)
		err := <-ended
		for _, want := range []string{"ns/disk", "renewed", "held by next now"} {
			if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), want) {
				t.Errorf("Run = %v, want %v with %q", err, ErrLost, want)
			}
		}
		if late := time.Since(begun); late > 2*e.cfg.RetryPeriod {
			t.Errorf("continues for %v although another replica leads", late)
		}
		if e.cfg.Clock.Left() > 0 {
			t.Errorf("%v of the lease are left", e.cfg.Clock.Left())
		}
	})
}

// A restored etcd has an earlier Lease. The watch caches of a replica that waits may be ahead of the cluster.
func TestWaitingReplicaEndsIfLeaseGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		now := metav1.NewMicroTime(time.Now())
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk"},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("other"), LeaseDurationSeconds: ptr.To[int32](15),
				RenewTime: &now, AcquireTime: &now, LeaseTransitions: ptr.To[int32](5)}}
		must.Get(client.CoordinationV1().Leases("ns").Create(t.Context(), lease, metav1.CreateOptions{}))(t)
		e := newElector(leaseDuration, client)
		ended := make(chan error, 1)
		go func() {
			ended <- e.Run(t.Context(), func(context.Context) error { return errors.New("it leads") })
		}()
		time.Sleep(5 * e.cfg.RetryPeriod) // by the clock of the bubble: it has read the Lease
		lease.Spec.LeaseTransitions = ptr.To[int32](4)
		must.Get(client.CoordinationV1().Leases("ns").Update(t.Context(), lease, metav1.UpdateOptions{}))(t)
		if err := <-ended; !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "restore of etcd") {
			t.Errorf("Run = %v, want %v with its cause", err, ErrLost)
		}
	})
}

// client-go notices nothing here, as while the process is paused.
func TestLeaderEndsAtLeaseExpiry(t *testing.T) {
	client := fake.NewClientset()
	e := newElector(time.Second, client)
	lock := must.Get(e.lock(nil, &term{}))(t)
	// The clock counts the lease's second from a whole one, so a tenth of it is left.
	must.OK(t, lock.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "former",
		LeaseDurationSeconds: 1, RenewTime: metav1.NewTime(time.Unix(0, int64(900*time.Millisecond)))}))
	wrong := errors.New("wrong")
	err := e.lead(t.Context(), t.Context(), func(leading context.Context) error {
		<-leading.Done()
		if e.cfg.Clock.Left() > 0 {
			t.Errorf("it ended with %v of the lease left", e.cfg.Clock.Left())
		}
		return errors.Join(wrong, context.Canceled)
	})
	if !errors.Is(err, ErrLost) || errors.Is(err, context.Canceled) {
		t.Errorf("lead = %v, want %v alone", err, ErrLost)
	}
	if err = e.lead(t.Context(), t.Context(), func(context.Context) error { return nil }); !errors.Is(err, ErrLost) {
		t.Errorf("lead = %v, want %v", err, ErrLost)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err = e.lead(ended, t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Errorf("a program that was told to end: lead = %v", err)
	}
	err = e.lead(t.Context(), t.Context(), func(context.Context) error {
		return fmt.Errorf("reclaim: %w",
			leadership.ErrExpired)
	})
	if !errors.Is(err, ErrLost) || errors.Is(err, leadership.ErrExpired) {
		t.Errorf("lead = %v, want %v alone", err, ErrLost)
	}
	err = e.lead(t.Context(), t.Context(), func(context.Context) error { return wrong })
	if !errors.Is(err, ErrLost) || !errors.Is(err, wrong) {
		t.Errorf("lead = %v, want %v and %v", err, ErrLost, wrong)
	}
}

func TestLeaseHeldWhileWorkInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		e := newElector(2*time.Second, client)
		var begun atomic.Bool
		client.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			update, ok := a.(clienttesting.UpdateAction)
			if !ok {
				return false, nil, nil
			}
			o, ok := update.GetObject().(*coordinationv1.Lease)
			// Renewals fail until the deadline, but a release would succeed.
			return ok && begun.Load() && ptr.Deref(o.Spec.HolderIdentity, "") != "", nil, errors.New("no answer")
		})
		err := e.Run(t.Context(), func(ctx context.Context) error {
			begun.Store(true)
			<-ctx.Done()
			ctx = context.WithoutCancel(ctx)
			synctest.Wait() // client-go has tried to release the Lease
			if holder := ptr.Deref(held(ctx, t, client).Spec.HolderIdentity, ""); holder != "former" {
				t.Errorf("while work is under way, the Lease is held by %q", holder)
			}
			return nil
		})
		if !errors.Is(err, ErrLost) {
			t.Errorf("Run = %v, want %v", err, ErrLost)
		}
	})
}

// A replica that lost its Lease, and whose work does not end, can only be restarted.
func TestUnhealthyWhileLostWorkGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		e := newElector(2*time.Second, client)
		client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("no answer")
		})
		leads, hung := make(chan struct{}), make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			ended <- e.Run(t.Context(), func(context.Context) error {
				close(leads)
				<-hung
				return nil
			})
		}()
		<-leads
		time.Sleep(2*time.Second + healthTimeout - time.Millisecond) // by the clock of the bubble
		if err := e.Check(); err != nil {
			t.Errorf("within the timeout: %v", err)
		}
		time.Sleep(2 * time.Millisecond)
		if e.Check() == nil {
			t.Error("the health check succeeds after the timeout")
		}
		close(hung)
		if err := <-ended; !errors.Is(err, ErrLost) {
			t.Errorf("Run = %v, want %v", err, ErrLost)
		}
	})
}

func TestLeaseReleasedAfterWork(t *testing.T) {
	client := fake.NewClientset()
	e := newElector(leaseDuration, client)
	wrong := errors.New("wrong")
	if err := e.Run(t.Context(), func(context.Context) error { return wrong }); !errors.Is(err, wrong) ||
		errors.Is(err, ErrLost) {
		t.Errorf("Run = %v, want %v", err, wrong)
	}
	if holder := ptr.Deref(held(t.Context(), t, client).Spec.HolderIdentity, ""); holder != "" {
		t.Errorf("the Lease is held by %q", holder)
	}
	if e.cfg.Clock.Left() > 0 {
		t.Errorf("%v of the lease are left", e.cfg.Clock.Left())
	}
}

func TestCancelWhileLeading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		e := newElector(leaseDuration, client)
		ctx, cancel := context.WithCancel(t.Context())
		err := e.Run(ctx, func(leading context.Context) error {
			cancel()
			synctest.Wait()
			if leading.Err() != nil {
				t.Errorf("what is under way is cut off: %v, %v of the lease left", leading.Err(), e.cfg.Clock.Left())
			}
			return nil
		})
		if err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

func TestCancelWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := metav1.NowMicro()
		client := fake.NewClientset(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "disk"},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("another"), LeaseDurationSeconds: ptr.To[int32](300),
				AcquireTime: &now, RenewTime: &now}})
		ctx, cancel := context.WithCancel(t.Context())
		asked := make(chan struct{}, 100)
		client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			select {
			case asked <- struct{}{}:
			default:
			}
			return false, nil, nil
		})
		ended := make(chan error, 1)
		go func() {
			ended <- newElector(leaseDuration, client).Run(ctx, func(context.Context) error {
				t.Error("leads while another does")
				return nil
			})
		}()
		<-asked
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

func TestReleaseOnlyWithoutWork(t *testing.T) {
	e := newElector(leaseDuration, fake.NewClientset())
	var now term
	if !now.over() {
		t.Error("work is in progress before it has begun")
	}
	lock := must.Get(e.lock(nil, &now))(t)
	by := func(identity string) resourcelock.LeaderElectionRecord {
		return resourcelock.LeaderElectionRecord{HolderIdentity: identity, LeaseDurationSeconds: 300}
	}
	must.OK(t, lock.Create(t.Context(), by("former")))
	now.run(func() error {
		if err := lock.Update(t.Context(), by("")); err == nil {
			t.Error("it is released while work is in progress")
		}
		if err := lock.Update(t.Context(), by("former")); err != nil {
			t.Errorf("it is not renewed while work is in progress: %v", err)
		}
		return nil
	})
	if err := lock.Update(t.Context(), by("")); err != nil {
		t.Errorf("it is not released after the work: %v", err)
	}
}
