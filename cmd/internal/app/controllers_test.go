package app

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

func TestRunControllersGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick, slow, starting := newFake(), newFake(), newFake()
		close(quick.inHand)
		starting.synced = false
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := RunControllers(ctx, []Controller{quick, slow, starting}, 50*time.Millisecond, nil); err != nil {
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
	if err := RunControllers(t.Context(), []Controller{other, fails}, time.Minute, nil); !errors.Is(err, fails.fails) {
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
		go func() { ended <- RunControllers[Controller](ctx, nil, time.Minute, nil) }()
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
