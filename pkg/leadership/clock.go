package leadership

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/boottime"
)

// Clock measures how long one replica holds its Lease without another renewal. A new Clock belongs to a replica that
// does not lead; a nil Clock belongs to a program without an election, which may always act. It is safe for concurrent
// use.
type Clock struct {
	// now is boottime.Now, except in tests.
	now func() time.Duration
	// lost is closed when another holder was seen during this replica's term.
	lost chan struct{}

	mu sync.Mutex
	// held is true if a request of this replica took the Lease and did not give it up since.
	held bool
	// renewed is when the last successful renewal was requested, and until when it expires.
	renewed, until time.Duration
	// other is the holder that was seen during this replica's term, if seen is set.
	seen  bool
	other string
}

// NewClock returns the Clock of a replica that does not lead yet, for one election.
func NewClock() *Clock { return newClock(boottime.Now) }

func newClock(now func() time.Duration) *Clock {
	return &Clock{now: now, lost: make(chan struct{})}
}

// Left returns how long this replica may act without another renewal: the Lease's duration, less the time since the
// last successful renewal was requested. The time in which the process or the machine was suspended counts. The result
// is zero or less before the Lease is taken, after it was given up or was not renewed in time, and for good once
// another holder was seen after this replica had led.
func (c *Clock) Left() time.Duration {
	if c == nil {
		return math.MaxInt64
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.held || c.seen {
		return 0
	}
	return c.until - c.now()
}

// Lost returns a channel that is closed once the API server names another holder, or none, after this replica has
// taken the Lease and before it gave it up.
func (c *Clock) Lost() <-chan struct{} { return c.lost }

// String describes the Lease for a log or an error: how long ago the last renewal was requested, and who holds the
// Lease now if another holder was seen.
func (c *Clock) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until == 0 {
		return "never held"
	}
	text := fmt.Sprintf("renewed %v ago", (c.now() - c.renewed).Round(time.Millisecond))
	switch {
	case !c.seen:
		return text
	case c.other == "":
		return text + ", without a holder now"
	}
	return text + ", held by " + c.other + " now"
}

// Lock wraps the lock of an election so that c observes its renewals.
func (c *Clock) Lock(lock resourcelock.Interface) resourcelock.Interface {
	return observed{lock, c}
}

// renew records that a request sent at this time took or renewed the Lease.
func (c *Clock) renew(sent, duration time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held, c.renewed, c.until = true, sent, sent+duration
}

// giveUp records that the Lease is about to be released.
func (c *Clock) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = false
}

// see records the Lease's holder as the API server names it, and reports whether this replica lost the Lease.
func (c *Clock) see(holder, self string) (lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held && !c.seen && holder != self {
		c.seen, c.other = true, holder
		close(c.lost)
	}
	return c.seen
}

// observed is a lock whose clock records each renewal at the time of its request.
type observed struct {
	resourcelock.Interface
	clock *Clock
}

// Get fails once another replica has held the Lease during this replica's term. This replica must not take the Lease
// back, because it does not know the other leader's actions.
func (o observed) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := o.Interface.Get(ctx)
	if err == nil && o.clock.see(record.HolderIdentity, o.Identity()) {
		return nil, nil, fmt.Errorf("renew the Lease %s: %w", o.Describe(), ErrExpired)
	}
	return record, raw, err
}

func (o observed) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return o.write(record, func() error { return o.Interface.Create(ctx, record) })
}

func (o observed) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return o.write(record, func() error { return o.Interface.Update(ctx, record) })
}

// write counts a renewal from its request, because the other replicas count from the later moment when they see it. A
// request without an answer counts for nothing, although the others may see it.
func (o observed) write(record resourcelock.LeaderElectionRecord, send func() error) error {
	if record.HolderIdentity != o.Identity() {
		// From here on another replica may lead, even if no answer comes.
		o.clock.giveUp()
		return send()
	}
	sent := o.clock.now()
	if err := send(); err != nil {
		return err
	}
	// The others measure by the Lease's times in whole seconds, and also compare them so (client-go reads renewTime into
	// a metav1.Time). A second renewal within one second is none to them, so both renewals must expire with the first.
	late := time.Duration(record.RenewTime.Nanosecond())
	o.clock.renew(sent, time.Duration(record.LeaseDurationSeconds)*time.Second-late)
	return nil
}
