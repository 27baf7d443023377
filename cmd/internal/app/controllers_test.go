package app

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/health"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/leader"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
)

func TestMain(m *testing.M) { os.Exit(goroutines.Run(m)) }

// fake is a Controller whose work in progress takes as long as the test requires.
type fake struct {
	synced bool
	fails  error
	// inHand ends the work in progress after a stop.
	inHand chan struct{}

	once    sync.Once
	stopped chan struct{}
	// cutOff: the work in progress was canceled.
	cutOff bool
}

func newFake() *fake {
	return &fake{synced: true, inHand: make(chan struct{}), stopped: make(chan struct{})}
}

func (*fake) Watch(ctx context.Context) { <-ctx.Done() }

func (c *fake) Run(ctx context.Context) error {
	if c.fails != nil {
		return c.fails
	}
	select {
	case <-ctx.Done():
		c.cutOff = true
		return ctx.Err()
	case <-c.stopped:
	}
	select {
	case <-ctx.Done():
		c.cutOff = true
	case <-c.inHand:
	}
	return nil
}

func (c *fake) Stop()        { c.once.Do(func() { close(c.stopped) }) }
func (c *fake) Synced() bool { return c.synced }

func processOf(grace time.Duration, controllers ...Controller) Process[Controller] {
	return Process[Controller]{Controllers: controllers, Election: (*leader.Elector)(nil), Grace: grace}
}

// election is one that this replica wins, without the permission to renew its Lease.
type election struct{ unhealthy error }

var update = permission.Permission{Verb: "update", Resource: "leases", Unsafe: true}

func (election) MissingPermissions(context.Context) ([]permission.Permission, error) {
	return []permission.Permission{update}, nil
}
func (e election) Check() error { return e.unhealthy }
func (election) Run(ctx context.Context, lead func(ctx context.Context) error) error {
	return lead(ctx)
}

// The health endpoints and the log show the state of the election.
func TestElectionIsWatched(t *testing.T) {
	unhealthy, get := errors.New("the Lease was not renewed"), permission.Permission{Verb: "get", Resource: "pods"}
	state := health.NewState(func() error { return nil })
	p := processOf(time.Minute)
	lacking := make(chan []permission.Permission, 1)
	p.Election, p.State, p.Checkers = election{unhealthy}, state, []PermissionChecker{lacks{get}}
	p.Lacking = func(missing []permission.Permission) { lacking <- missing }
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx, ctx, &running) })
	if missing := <-lacking; !slices.Equal(missing, []permission.Permission{get, update}) {
		t.Errorf("missing permissions %v", missing)
	}
	if err := state.Alive(); !errors.Is(err, unhealthy) {
		t.Errorf("Alive = %v, want %v", err, unhealthy)
	}
	cancel()
	running.Wait()
}

func TestRunControllersGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick, slow, starting := newFake(), newFake(), newFake()
		close(quick.inHand)
		starting.synced = false
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := processOf(50*time.Millisecond, quick, slow, starting).runControllers(ctx); err != nil {
			t.Errorf("the end that was asked for: %v", err)
		}
		if quick.cutOff || !slow.cutOff || !starting.cutOff {
			t.Errorf("cut off: within the grace %v, beyond it %v, not begun %v", quick.cutOff, slow.cutOff, starting.cutOff)
		}
	})
}

func TestFailedControllerEndsOthers(t *testing.T) {
	fails, other := newFake(), newFake()
	fails.fails = errors.New("broken")
	if err := processOf(time.Minute, other, fails).runControllers(t.Context()); !errors.Is(err, fails.fails) {
		t.Errorf("Run = %v, want %v", err, fails.fails)
	}
	if !other.cutOff {
		t.Error("the other continues")
	}
}

func TestRunWithoutControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- processOf(time.Minute).runControllers(ctx) }()
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("ended before its context")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
