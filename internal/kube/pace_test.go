package kube

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestPace(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	acquire := func(t *testing.T, p *Pace) func() {
		t.Helper()
		release := must.Get(p.Acquire(t.Context()))(t)
		return release
	}
	// full reports whether no further call may begin now.
	full := func(p *Pace) bool {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		release, err := p.Acquire(ctx)
		if err == nil {
			release()
		}
		return err != nil
	}
	t.Run("lets so many calls begin and no more", func(t *testing.T) {
		p := NewPace(2, nil, testclock.NewFakeClock(begin))
		first := acquire(t, p)
		acquire(t, p)
		if !full(p) {
			t.Error("a third call begins")
		}
		first()
		first() // twice is once
		acquire(t, p)
		if !full(p) {
			t.Error("one release made room for two")
		}
	})
	t.Run("halves its limit at a 429 and obeys Retry-After", func(t *testing.T) {
		clock := testclock.NewFakeClock(begin)
		p := NewPace(8, nil, clock)
		p.slower(3 * time.Second)
		if p.Limit() != 4 || !full(p) {
			t.Errorf("limit %d, want 4, and a pause", p.Limit())
		}
		clock.Step(3 * time.Second)
		if full(p) {
			t.Error("still waits when the time is over")
		}
	})
	t.Run("takes the answers of one moment for one", func(t *testing.T) {
		p := NewPace(8, nil, testclock.NewFakeClock(begin))
		for range 8 {
			p.slower(time.Second)
		}
		if p.Limit() != 4 {
			t.Errorf("limit %d, want 4", p.Limit())
		}
	})
	t.Run("never goes below one, and grows again one by one, up to the most", func(t *testing.T) {
		clock := testclock.NewFakeClock(begin)
		p := NewPace(3, nil, clock)
		for range 5 {
			p.slower(time.Second)
			clock.Step(time.Second)
		}
		if p.Limit() != 1 {
			t.Fatalf("limit %d, want 1", p.Limit())
		}
		for i, want := range []int{2, 2, 3, 3, 3, 3, 3} {
			acquire(t, p)()
			if p.Limit() != want {
				t.Errorf("limit %d after %d good calls, want %d", p.Limit(), i+1, want)
			}
		}
	})
	t.Run("calls that began before the cut do not raise the limit", func(t *testing.T) {
		clock := testclock.NewFakeClock(begin)
		p := NewPace(4, nil, clock)
		var before []func()
		for range 4 {
			before = append(before, acquire(t, p))
		}
		p.slower(time.Second)
		clock.Step(time.Second)
		for _, release := range before {
			release()
		}
		if p.Limit() != 2 {
			t.Errorf("limit %d, want 2", p.Limit())
		}
	})
	t.Run("is one while there is more urgent work", func(t *testing.T) {
		urgent := true
		p := NewPace(8, func() bool { return urgent }, testclock.NewFakeClock(begin))
		acquire(t, p)
		if !full(p) {
			t.Error("a second call begins beside urgent work")
		}
		urgent = false
		if full(p) {
			t.Error("still one when the urgent work has ended")
		}
	})
	t.Run("a wait ends with its context", func(t *testing.T) {
		p := NewPace(1, nil, testclock.NewFakeClock(begin))
		acquire(t, p)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := p.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire = %v", err)
		}
	})
}

// TestPaceLosesNoWaiter has many callers, 429s and urgent work that comes and goes.
func TestPaceLosesNoWaiter(t *testing.T) {
	var urgent atomic.Bool
	p := NewPace(4, urgent.Load, clock.RealClock{})
	var inFlight, most atomic.Int32
	var callers sync.WaitGroup
	for i := range 400 {
		callers.Go(func() {
			release, err := p.Acquire(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer release()
			now := inFlight.Add(1)
			for {
				before := most.Load()
				if now <= before || most.CompareAndSwap(before, now) {
					break
				}
			}
			if i%100 == 50 {
				p.slower(5 * time.Millisecond)
			}
			urgent.Store(i%3 == 0)
			inFlight.Add(-1)
		})
	}
	callers.Wait()
	if most.Load() > 4 {
		t.Errorf("%d calls at once, want at most 4", most.Load())
	}
}

func TestPaceObserves429(t *testing.T) {
	cases := map[string]struct {
		status int
		header string
		limit  int
		wait   time.Duration
	}{
		"200":                       {http.StatusOK, "", 8, 0},
		"429 with a time":           {http.StatusTooManyRequests, "7", 4, 7 * time.Second},
		"429 without":               {http.StatusTooManyRequests, "", 4, retryAfter},
		"429 with an absurd time":   {http.StatusTooManyRequests, "86400", 4, retryAfterMax},
		"429 with no number at all": {http.StatusTooManyRequests, "soon", 4, retryAfter},
		"500":                       {http.StatusInternalServerError, "5", 8, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			clock := testclock.NewFakeClock(time.Unix(1_000_000, 0))
			p := NewPace(8, nil, clock)
			transport := p.Transport(roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: c.status, Header: http.Header{"Retry-After": {c.header}}, Body: http.NoBody}, nil
			}))
			response, err := transport.RoundTrip(&http.Request{})
			if err != nil {
				t.Fatal(err)
			}
			must.OK(t, response.Body.Close())
			if p.Limit() != c.limit || p.until.Sub(clock.Now()) > c.wait || (c.wait > 0 && p.until.Sub(clock.Now()) != c.wait) {
				t.Errorf("limit %d and a pause of %v, want %d and %v", p.Limit(), p.until.Sub(clock.Now()), c.limit, c.wait)
			}
		})
	}
}
