package leadership

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

// term is a Holder whose remaining time the test sets.
type term struct{ nanoseconds atomic.Int64 }

func newTerm(d time.Duration) *term { t := &term{}; t.set(d); return t }

func (t *term) Left() time.Duration { return time.Duration(t.nanoseconds.Load()) }

func (t *term) set(d time.Duration) { t.nanoseconds.Store(int64(d)) }

func TestWhileHeldEndsWithLease(t *testing.T) {
	clock := testclock.NewFakeClock(time.Unix(1_000_000, 0))
	term := newTerm(time.Hour)
	ctx, stop := WhileHeld(t.Context(), term, clock)
	defer stop()
	term.set(3 * time.Second) // renewed once, and no more
	for range 3 {
		for !clock.HasWaiters() {
			if ctx.Err() != nil {
				t.Fatal("ended with the lease held")
			}
			time.Sleep(time.Millisecond)
		}
		if ctx.Err() != nil {
			t.Fatal("ended with the lease held")
		}
		term.set(term.Left() - time.Second)
		clock.Step(checkEvery)
	}
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, ErrExpired) {
		t.Errorf("ended by %v", err)
	}
}

func TestWhileHeldWithoutElection(t *testing.T) {
	ctx, stop := WhileHeld(t.Context(), nil, testclock.NewFakeClock(time.Unix(1_000_000, 0)))
	if ctx.Err() != nil {
		t.Error(context.Cause(ctx))
	}
	stop()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, ErrExpired) {
		t.Errorf("ended by %v", err)
	}
}

func TestProcessesOfOneHostHaveDifferentIdentities(t *testing.T) {
	one, other := NewIdentity("disk-0"), NewIdentity("disk-0")
	if one == other || HostOf(one) != "disk-0" || HostOf(other) != "disk-0" {
		t.Errorf("%q of %q, and %q of %q", one, HostOf(one), other, HostOf(other))
	}
	if got := HostOf("disk-0"); got != "disk-0" {
		t.Errorf("the host of a stock sidecar's identity is %q", got)
	}
}
