package kube

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// retryAfter is the wait after a 429 without Retry-After, and retryAfterMax the longest wait.
	retryAfter    = time.Second
	retryAfterMax = 30 * time.Second
)

// Pace limits the calls in flight of deferrable work to the spare capacity of an API server. Each 429 halves the limit
// and stops new calls for the time that the server asks for, and successful calls raise the limit again, one by one.
// Pace is safe for concurrent use.
type Pace struct {
	clock clock.WithTicker
	most  int
	busy  func() bool

	mu sync.Mutex
	// allowed is the current limit, and inFlight counts the calls against it.
	allowed, inFlight int
	// good counts the successful calls since the limit was changed.
	good int
	// round numbers the cuts of the limit, because calls that began before the last cut do not raise the limit.
	round int
	// until is the time from which calls may begin again.
	until time.Time
	// freed is closed, and replaced, whenever a waiting call may have room.
	freed chan struct{}
}

// yieldEvery is the interval at which a call that waits for more urgent work checks whether that work has ended.
const yieldEvery = 50 * time.Millisecond

// NewPace returns a limit that begins at most calls in flight, and never exceeds it. While busy, if not nil, returns
// true, the limit is one. A nil clock means the real clock.
func NewPace(most int, busy func() bool, c clock.WithTicker) *Pace {
	if c == nil {
		c = clock.RealClock{}
	}
	return &Pace{clock: c, most: most, busy: busy, allowed: most, freed: make(chan struct{})}
}

// Acquire waits for room for one call. The caller calls release when the call has ended; further calls of release do
// nothing. An error means that ctx ended first.
func (p *Pace) Acquire(ctx context.Context) (release func(), err error) {
	for {
		round, again, ok := p.take()
		if ok {
			var once sync.Once
			return func() { once.Do(func() { p.release(round) }) }, nil
		}
		timer := p.clock.NewTimer(again.after)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-again.freed:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// again specifies when to look for room again: when a call ends, or after a time.
type again struct {
	freed <-chan struct{}
	after time.Duration
}

func (p *Pace) take() (round int, _ again, ok bool) {
	urgent := p.busy != nil && p.busy()
	p.mu.Lock()
	defer p.mu.Unlock()
	limit := p.allowed
	if urgent {
		limit = 1
	}
	pause := p.until.Sub(p.clock.Now())
	switch {
	case pause > 0:
		return 0, again{p.freed, pause}, false
	case p.inFlight >= limit && urgent:
		// No event reports the end of the more urgent work.
		return 0, again{p.freed, yieldEvery}, false
	case p.inFlight >= limit:
		return 0, again{p.freed, retryAfterMax}, false
	}
	p.inFlight++
	return p.round, again{}, true
}

// release ends a call that began in a round.
func (p *Pace) release(round int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight--
	if round == p.round {
		p.good++
	}
	if p.good >= p.allowed && p.allowed < p.most {
		p.good = 0
		p.allowed++
	}
	close(p.freed)
	p.freed = make(chan struct{})
}

// slower handles a 429 that asks to wait. All 429s during one pause count as one, so the limit is halved once for the
// calls in flight.
func (p *Pace) slower(wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	if !p.until.After(now) {
		p.allowed = max(1, p.allowed/2)
		p.round++
		p.good = 0
	}
	if until := now.Add(wait); until.After(p.until) {
		p.until = until
	}
}

// Limit returns the current limit of calls in flight.
func (p *Pace) Limit() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.allowed
}

// Transport observes the API server's 429s on their way to a client, which obeys them silently. It belongs in the
// rest.Config of the client that makes the calls (Wrap).
func (p *Pace) Transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err == nil && response.StatusCode == http.StatusTooManyRequests {
			p.slower(waitOf(response.Header.Get("Retry-After")))
		}
		return response, err
	})
}

func waitOf(header string) time.Duration {
	seconds, err := strconv.Atoi(header)
	if err != nil || seconds < 0 {
		return retryAfter
	}
	return min(time.Duration(seconds)*time.Second, retryAfterMax)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
