package web

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/view"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/watch"
)

const (
	// gap is the minimum interval between two computations of the tables, which allows two a second.
	gap = 500 * time.Millisecond
	// idle is the interval after which unchanged tables are computed anew, because Leases expire without an event.
	idle = 10 * time.Second
	// afterPanic is the interval after a computation that ended in a panic, because the next one most likely does too.
	afterPanic = time.Minute
	// linger is the time for which the cluster is still read after the last client has left.
	linger = 5 * time.Minute
)

// tables is an immutable snapshot of the tables.
type tables struct {
	state   view.State
	summary view.Summary
	rows    map[string]*view.Row
	// known is view.Facts.Known of the rows.
	known []bool
	// next is closed when a newer snapshot exists.
	next chan struct{}
}

func (t *tables) row(id string) (view.Row, bool) {
	if row := t.rows[id]; row != nil {
		return *row, true
	}
	return view.Row{}, false
}

// source provides the facts for tables; in production it is a *watch.Cluster.
type source interface {
	Run(ctx context.Context)
	Facts(ctx context.Context) view.Facts
	State(ctx context.Context) view.State
	Changed() <-chan struct{}
	Open(ctx context.Context, ref view.Ref) (*watch.Page, error)
}

// hub reads the cluster and computes the tables once for all clients, and only while clients are connected.
type hub struct {
	// begin returns a source that does not read yet.
	begin func() (source, error)
	clock clock.WithTicker
	about view.State // Cluster, Version and Docs
	// wake receives when a client connects.
	wake chan struct{}

	mu sync.Mutex
	// cluster is nil if no client has been connected for linger.
	cluster source
	current *tables
	looking int
	left    time.Time
	closed  bool
}

func newHub(begin func() (source, error), clock clock.WithTicker, about view.State) *hub {
	about.Connected = true // nothing else is known yet
	h := &hub{begin: begin, clock: clock, about: about, wake: make(chan struct{}, 1)}
	h.current = h.nothing()
	return h
}

func (h *hub) nothing() *tables {
	return &tables{state: h.about, rows: map[string]*view.Row{}, next: make(chan struct{})}
}

// run reads the cluster while clients are connected, until ctx ends. It returns when all goroutines that it started
// have ended.
func (h *hub) run(ctx context.Context) {
	defer h.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		}
		if cluster := h.source(); cluster != nil {
			h.follow(ctx, cluster)
		}
	}
}

// follow reads the cluster and computes the tables, until no client has been connected for linger.
func (h *hub) follow(ctx context.Context, cluster source) {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	reading.Go(func() { cluster.Run(ctx) })
	for ctx.Err() == nil && !h.leave() {
		rest := gap
		if h.watched() {
			err := panics.Contain(ctx, func() { h.compute(ctx, cluster) }, "part", "tables of the page")
			if err != nil {
				rest = afterPanic
				h.failed(err)
			}
		}
		if !h.pause(ctx, rest) {
			return
		}
		select {
		case <-ctx.Done():
		case <-cluster.Changed():
		case <-h.wake:
		case <-h.clock.After(idle):
		}
	}
}

// leave drops the cluster and its tables, and returns true, if no client has been connected for linger.
func (h *hub) leave() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.looking > 0 || h.clock.Since(h.left) < linger {
		return false
	}
	h.cluster, h.current = nil, h.nothing() // no client waits for the next snapshot
	return true
}

func (h *hub) source() source {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cluster
}

func (h *hub) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-h.clock.After(d):
		return true
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	close(h.current.next)
}

func (h *hub) watched() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.looking > 0
}

// errFull means that the maximum number of clients is connected.
var errFull = errors.New("close another tab of the page")

// look adds a client of the cluster, up to most. The caller calls done when the client leaves.
func (h *hub) look(most int) (cluster source, done func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.looking >= most {
		return nil, nil, errFull
	}
	if h.cluster == nil {
		if h.cluster, err = h.begin(); err != nil {
			h.cluster = nil
			return nil, nil, err
		}
	}
	h.looking++
	select {
	case h.wake <- struct{}{}:
	default:
	}
	return h.cluster, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.looking--
		h.left = h.clock.Now()
	}, nil
}

// get returns the current tables, and closed if no newer ones will follow.
func (h *hub) get() (t *tables, closed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current, h.closed
}

// compute makes the tables from the caches, and keeps the pointer of an unchanged row, which makes comparisons of two
// tables cheap.
func (h *hub) compute(ctx context.Context, cluster source) {
	facts := cluster.Facts(ctx)
	state := cluster.State(ctx)
	state.Cluster, state.Version, state.Docs = h.about.Cluster, h.about.Version, h.about.Docs
	all := view.RowsOf(facts)
	now := &tables{state: state, summary: view.SummaryOf(facts, all), known: facts.Known(), next: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.current
	now.rows = make(map[string]*view.Row, len(all))
	for i := range all {
		row := &all[i]
		if old := before.rows[row.ID]; old != nil && sameRow(*old, *row) {
			row = old
		} else {
			copied := *row // a copy, so that the slice can be freed
			row = &copied
		}
		now.rows[row.ID] = row
	}
	switch earlier := before.summary.Changes; {
	case earlier != nil && !slices.Equal(before.known, now.known):
		// The rows differ by what could be read, which is no change of the objects.
		now.summary.Changes = view.Changes(earlier, nil, nil, h.clock.Now())
	case earlier != nil:
		now.summary.Changes = view.Changes(earlier, before.rows, now.rows, h.clock.Now())
	case state.Synced:
		now.summary.Changes = view.Began(all, h.clock.Now())
	}
	h.current = now
	close(before.next)
}

// failed has the page say that its tables are out of date.
func (h *hub) failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := *h.current
	text := fmt.Sprintf("The tables: %v. So they are out of date; the log of this program has the stack.", err)
	if slices.Contains(now.state.Unread, text) {
		return
	}
	now.state.Unread, now.next = append(slices.Clone(now.state.Unread), text), make(chan struct{})
	close(h.current.next)
	h.current = &now
}

// sameRow compares two rows, including the values behind their pointers.
func sameRow(a, b view.Row) bool {
	if !a.Terminating.Equal(b.Terminating) || !a.Since.Equal(b.Since) {
		return false
	}
	a.Terminating, a.Since = b.Terminating, b.Since
	return a == b
}

// diff returns the changes from the rows that a client has to the present rows, by ID.
func diff(before, now map[string]*view.Row) (d view.Rows) {
	for id, row := range now {
		if before[id] != row {
			d.Set = append(d.Set, *row)
		}
	}
	for id := range before {
		if now[id] == nil {
			d.Remove = append(d.Remove, id)
		}
	}
	return d
}
