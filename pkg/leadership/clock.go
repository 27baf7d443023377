package leadership

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/boottime"
)

// Clock measures how long one replica holds its Lease without another renewal. A new Clock belongs to a replica that
// does not lead; a nil Clock belongs to a program without an election, which may always act. It is safe for concurrent
// use.
type Clock struct {
	// now is boottime.Now, except in tests.
	now func() time.Duration
	// lost is closed when another holder was seen during this replica's term, and back when the Lease went back.
	lost, back chan struct{}

	mu sync.Mutex
	// held is true if a request of this replica took the Lease and did not give it up since.
	held bool
	// renewed is when the last successful renewal was requested, and until when it expires.
	renewed, until time.Duration
	// other is the holder that was seen during this replica's term, if seen is set.
	seen  bool
	other string
	// last is the state of the Lease in the last answer, nil if there is none or the Lease did not exist.
	last *resourcelock.LeaderElectionRecord
}

// NewClock returns the Clock of a replica that does not lead yet, for one election.
func NewClock() *Clock { return newClock(boottime.Now) }

func newClock(now func() time.Duration) *Clock {
	return &Clock{now: now, lost: make(chan struct{}), back: make(chan struct{})}
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
// taken the Lease and before it gave it up, or that the Lease went back in that time.
func (c *Clock) Lost() <-chan struct{} { return c.lost }

// Back returns a channel that is closed once the Lease goes back to an earlier state, as after a restore of etcd: the
// watch caches of the process may then be ahead of the cluster, and miss changes. A replica that waits for the Lease
// must end, too, because its lock takes no Lease that went back. A state that another replica has written since hides
// the earlier one.
func (c *Clock) Back() <-chan struct{} { return c.back }

// wentBack reports whether the Lease went back.
func (c *Clock) wentBack() bool {
	select {
	case <-c.back:
		return true
	default:
		return false
	}
}

// String describes the Lease for a log or an error: how long ago the last renewal was requested, and who holds the
// Lease now if another holder was seen.
func (c *Clock) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.wentBack():
		return "in an earlier state than before, as after a restore of etcd"
	case c.until == 0:
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

// Lock wraps the lock of an election so that c observes its renewals. The wrapped lock's Get, Create and Update fail
// with ErrExpired once another replica has held the Lease during this replica's term, or the Lease went back. This
// replica must not take it then, because it does not know the other leader's actions, or the cluster's state: its
// process ends, and starts anew.
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

// see records the state of the Lease in an answer of the API server, and reports whether this replica may take it.
func (c *Clock) see(now resourcelock.LeaderElectionRecord, self string) (free bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil && precedes(now, *c.last) && !c.wentBack() {
		close(c.back)
	}
	c.last = &now
	if c.held && !c.seen && (c.wentBack() || now.HolderIdentity != self) {
		c.seen, c.other = true, now.HolderIdentity
		close(c.lost)
	}
	return c.free()
}

// free reports whether this replica may take or renew the Lease. The caller holds the mutex.
func (c *Clock) free() bool { return !c.seen && !c.wentBack() }

// wrote records the state of the Lease after a write, or that it does not exist, for nil.
func (c *Clock) wrote(now *resourcelock.LeaderElectionRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = now
}

// maxClockStep is how far the clock of a holder may be set back without an effect on other replicas.
const maxClockStep = time.Minute

// precedes reports whether a state of the Lease is earlier than another one. A Lease that was deleted and made anew
// counts as earlier for a replica that did not see its absence, which costs a restart.
func precedes(a, b resourcelock.LeaderElectionRecord) bool {
	return a.LeaderTransitions < b.LeaderTransitions ||
		a.LeaderTransitions == b.LeaderTransitions && b.RenewTime.Sub(a.RenewTime.Time) > maxClockStep
}

// observed is a lock whose clock records each renewal at the time of its request.
type observed struct {
	resourcelock.Interface
	clock *Clock
}

// Get fails if this replica must not take the Lease; see Clock.Lock.
func (o observed) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := o.Interface.Get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		o.clock.wrote(nil)
	case err == nil && !o.clock.see(*record, o.Identity()):
		return nil, nil, fmt.Errorf("take the Lease %s, which was %v: %w", o.Describe(), o.clock, ErrExpired)
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
	o.clock.mu.Lock()
	free := o.clock.free()
	o.clock.mu.Unlock()
	if !free { // the lock may know the other holder's resourceVersion, so that a renewal would take the Lease
		return fmt.Errorf("renew the Lease %s, which was %v: %w", o.Describe(), o.clock, ErrExpired)
	}
	sent := o.clock.now()
	if err := send(); err != nil {
		return err
	}
	o.clock.wrote(&record)
	// The others measure by the Lease's times in whole seconds, and also compare them so (client-go reads renewTime into
	// a metav1.Time). A second renewal within one second is none to them, so both renewals must expire with the first.
	late := time.Duration(record.RenewTime.Nanosecond())
	o.clock.renew(sent, time.Duration(record.LeaseDurationSeconds)*time.Second-late)
	return nil
}
