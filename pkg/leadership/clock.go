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

// Clock measures how long one replica holds its Lease without another renewal. A new one is that of a
// replica that does not lead; a nil one is that of a program without an election, which always acts. It is safe
// for concurrent use.
type Clock struct {
	// now is boottime.Now outside of tests.
	now func() time.Duration
	// lost is closed when another holder was seen in a term of this replica.
	lost chan struct{}

	mu sync.Mutex
	// held: a request of this replica took the Lease, and it was not given up since.
	held bool
	// renewed is when the last renewal that succeeded was requested, until when it ends.
	renewed, until time.Duration
	// other is the holder that was seen in a term of this replica; seen: there was one.
	seen  bool
	other string
}

// NewClock returns the clock of a replica that does not lead yet, for one election.
func NewClock() *Clock { return newClock(boottime.Now) }

func newClock(now func() time.Duration) *Clock {
	return &Clock{now: now, lost: make(chan struct{})}
}

// Left returns how long this replica may act without another renewal: the duration that the Lease says,
// less the time since the last renewal that succeeded was requested. Time counts in which the process or
// the machine stood still. It is zero or less before the Lease is taken, after it was given up, when it
// was not renewed in time, and for good once another holder was seen after this replica had led.
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

// Lost is closed once the API server named another holder, or none, after this replica had taken the
// Lease and before it gave it up.
func (c *Clock) Lost() <-chan struct{} { return c.lost }

// String says what is known of the Lease, for a log or an error: how long ago the last renewal was
// requested, and who holds it now where that was seen.
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

// Lock returns a lock for the election that does as the given one does, and whose renewals c sees.
func (c *Clock) Lock(lock resourcelock.Interface) resourcelock.Interface {
	return observed{lock, c}
}

// renew notes that the Lease was taken or renewed by a request that was sent at a time.
func (c *Clock) renew(sent, duration time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held, c.renewed, c.until = true, sent, sent+duration
}

// giveUp notes that the Lease is about to be released.
func (c *Clock) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = false
}

// see notes whom the API server names as the Lease's holder, and reports whether this replica lost it.
func (c *Clock) see(holder, self string) (lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held && !c.seen && holder != self {
		c.seen, c.other = true, holder
		close(c.lost)
	}
	return c.seen
}

// observed is a lock whose clock sees each renewal where it is sent.
type observed struct {
	resourcelock.Interface
	clock *Clock
}

// Get shows who holds the Lease. In one term no other replica does: what another leader has done meanwhile, this
// one does not know, so it is not to take the Lease back.
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

// write counts a renewal from the moment of its request: the others wait from when they see it, which is
// later. A request whose answer is lost counts for nothing, though the others may see it.
func (o observed) write(record resourcelock.LeaderElectionRecord, send func() error) error {
	if record.HolderIdentity != o.Identity() {
		// From here on another replica may lead, whether or not the answer comes.
		o.clock.giveUp()
		return send()
	}
	sent := o.clock.now()
	if err := send(); err != nil {
		return err
	}
	// The others go by what the Lease says, in whole seconds, and compare it so, too (client-go reads renewTime into a
	// metav1.Time): a second renewal within one second is none to them, so that both end with the first.
	late := time.Duration(record.RenewTime.Nanosecond())
	o.clock.renew(sent, time.Duration(record.LeaseDurationSeconds)*time.Second-late)
	return nil
}
