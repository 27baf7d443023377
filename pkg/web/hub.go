package web

import (
	"context"
	"reflect"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/web/view"
)

const (
	// gap is at least between two computations of the tables: two a second.
	gap = 500 * time.Millisecond
	// idle is after how long they are computed anew although nothing changed: Leases expire without an event.
	idle = 10 * time.Second
)

// tables is what the tables show at one moment. It is not changed.
type tables struct {
	state   view.State
	summary view.Summary
	rows    map[string]*view.Row
	// next is closed when there are newer ones.
	next chan struct{}
}

// row returns the row of that ID.
func (t *tables) row(id string) (view.Row, bool) {
	if row := t.rows[id]; row != nil {
		return *row, true
	}
	return view.Row{}, false
}

// source is where tables come from: a *watch.Cluster.
type source interface {
	Facts(ctx context.Context) view.Facts
	State() view.State
	Changed() <-chan struct{}
}

// hub computes the tables while somebody looks at them, once for all who do.
type hub struct {
	cluster source
	clock   clock.WithTicker
	about   view.State // Cluster and Version
	// wake receives when the first begins to look.
	wake chan struct{}

	mu      sync.Mutex
	current *tables
	looking int
	closed  bool
}

func newHub(cluster source, clock clock.WithTicker, about view.State) *hub {
	about.Connected = true // nothing else is known yet
	return &hub{cluster: cluster, clock: clock, about: about, wake: make(chan struct{}, 1),
		current: &tables{state: about, rows: map[string]*view.Row{}, next: make(chan struct{})}}
}

// run computes the tables until ctx ends.
func (h *hub) run(ctx context.Context) {
	defer h.close()
	for ctx.Err() == nil {
		if h.watched() {
			h.compute(ctx)
		}
		if !h.pause(ctx, gap) {
			return
		}
		select {
		case <-ctx.Done():
		case <-h.cluster.Changed():
		case <-h.wake:
		case <-h.clock.After(idle):
		}
	}
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

// look counts one more who looks, up to most. Done is called when that ends.
func (h *hub) look(most int) (done func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.looking >= most {
		return nil, false
	}
	h.looking++
	select {
	case h.wake <- struct{}{}:
	default:
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.looking--
	}, true
}

// get returns the tables as they are now. closed: there will be no newer ones.
func (h *hub) get() (t *tables, closed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current, h.closed
}

// compute makes the tables of what the caches have. A row that is as before is the same pointer, so that a comparison
// of two tables takes little.
func (h *hub) compute(ctx context.Context) {
	facts := h.cluster.Facts(ctx)
	state := h.cluster.State()
	state.Cluster, state.Version = h.about.Cluster, h.about.Version
	now := &tables{state: state, summary: view.SummaryOf(facts), next: make(chan struct{})}
	all := view.RowsOf(facts)
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.current
	now.rows = make(map[string]*view.Row, len(all))
	for i := range all {
		row := &all[i]
		if old := before.rows[row.ID]; old != nil && sameRow(*old, *row) {
			row = old
		} else {
			copied := *row // of its own, so that the slice can go
			row = &copied
		}
		now.rows[row.ID] = row
	}
	h.current = now
	close(before.next)
}

// sameRow compares two rows, and what their pointers point to.
func sameRow(a, b view.Row) bool {
	if !a.Terminating.Equal(b.Terminating) || !a.Since.Equal(b.Since) {
		return false
	}
	a.Terminating, a.Since = b.Terminating, b.Since
	return a == b
}

// diff returns what a client lacks that was sent before, as rows by their IDs.
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

func sameState(a, b view.State) bool { return reflect.DeepEqual(a, b) }
