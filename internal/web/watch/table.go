package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
)

// retry is the delay before a request that did not reach the API server is repeated.
const retry = 2 * time.Second

// errNotYet means that the first list of a kind has not arrived.
var errNotYet = errors.New("not read yet")

type kind struct {
	// The fields are the API's resource, its name for people, and the question that stays open if it is unread.
	resource, what, open string
	// maybe: the API server may not serve the kind.
	maybe bool
}

// table is the watch cache of one kind, with the health of its watch.
type table[R any] struct {
	kind  kind
	cache *kube.Cache[R]
	// same reports whether the page shows no difference between two records.
	same    func(before, now R) bool
	changed func()
	clock   clock.Clock

	mu      sync.Mutex
	version uint64
	// err is the outcome of the last request, and panicked the panic that ended the watch, until a later list is complete:
	// requests for pages may succeed before the next panic.
	err, panicked error
	// heard is the time of the last word of the API server, and since is its value at the loss of the API server.
	heard, since time.Time
	all          []R
	allOf        uint64
}

func newTable[R any](c *Cluster, k kind, some kube.Selection, client rest.Interface, example runtime.Object,
	record kube.Recorder[R], same func(before, now R) bool) *table[R] {
	t := &table[R]{kind: k, same: same, changed: c.touch, clock: c.cfg.Clock, version: 1}
	t.cache = kube.NewCacheOf(some, client, k.resource, example, record, t)
	t.cache.Observe(t.observe, retry)
	return t
}

// run keeps the cache up to date until ctx ends. A panic is an outcome of the watch.
func (t *table[R]) run(ctx context.Context) {
	panics.Restart(ctx, t.clock, t.kind.resource, t.cache.Run, t.observe)
}

// load reads all records once, instead of a watch.
func (t *table[R]) load(ctx context.Context) error {
	t.cache.Observe(t.observe, 0)
	if err := t.cache.Load(ctx); err != nil {
		return fmt.Errorf("list %s: %w", t.kind.resource, err)
	}
	return nil
}

// Added, Updated and Deleted implement [kube.Handler].
func (t *table[R]) Added(R) { t.bump() }

func (t *table[R]) Updated(before, now R) {
	if !t.same(before, now) {
		t.bump()
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.version++ // the next reader sees the change, but no client is woken
}

func (t *table[R]) Deleted(R, bool) { t.bump() }

func (t *table[R]) bump() {
	t.mu.Lock()
	t.version++
	t.mu.Unlock()
	t.changed()
}

func (t *table[R]) observe(err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // the cache lists again, which is normal
	}
	field := &t.err
	if errors.Is(err, panics.Err) {
		field = &t.panicked
	}
	if t.set(field, err) {
		t.changed()
	}
}

// Listed implements [kube.ListHandler].
func (t *table[R]) Listed() {
	t.set(&t.panicked, nil)
	t.changed()
}

// set records an outcome, and reports whether there was or is a problem.
func (t *table[R]) set(field *error, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.problem()
	*field = err
	after, now := t.problem(), t.clock.Now()
	if lost(after) && !lost(before) {
		t.since = cmp.Or(t.heard, now)
	}
	if !lost(err) {
		t.heard = now
	}
	return before != nil || after != nil
}

// lost reports whether an outcome means that the API server is lost, and not that it refuses the kind.
func lost(err error) bool { return err != nil && !refused(err) && !errors.Is(err, panics.Err) }

func (t *table[R]) problem() error {
	if t.panicked != nil {
		return t.panicked
	}
	return t.err
}

func (t *table[R]) health() health {
	t.mu.Lock()
	defer t.mu.Unlock()
	return health{t.kind, t.cache.Synced(), t.problem(), t.since}
}

// failure returns the reason why the cache's content is meaningless, nil if the content is complete, even if it is
// stale.
func (t *table[R]) failure() error {
	synced := t.cache.Synced()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.panicked != nil:
		return t.panicked
	case t.err != nil && (!synced || apierrors.IsForbidden(t.err)):
		return t.err
	case !synced:
		return errNotYet
	}
	return nil
}

// list returns all records in no order, and their version.
func (t *table[R]) list() ([]R, uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.allOf != t.version {
		t.all, t.allOf = make([]R, 0, len(t.all)), t.version
		t.cache.Each(func(r R) { t.all = append(t.all, r) })
	}
	return t.all, t.version
}

// read returns all records, or the reason why they are unknown.
func (t *table[R]) read() explain.Read[[]R] {
	if err := t.failure(); err != nil {
		return explain.Failed[[]R](err)
	}
	all, _ := t.list()
	return explain.Found(all)
}

// find returns one record, or the reason why it is unknown.
func (t *table[R]) find(name string) (r R, found bool, err error) {
	if err := t.failure(); err != nil {
		return r, false, err
	}
	r, found = t.cache.Get(name)
	return r, found, nil
}

// derived caches a value that is computed from a table, once for each version of it.
type derived[T any] struct {
	mu    sync.Mutex
	of    uint64
	value T
}

func deriveFrom[R, T any](d *derived[T], t *table[R], make func([]R) T) explain.Read[T] {
	if err := t.failure(); err != nil {
		return explain.Failed[T](err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	all, version := t.list()
	if d.of != version {
		d.value, d.of = make(all), version
	}
	return explain.Found(d.value)
}

// some returns a Recorder that also leaves out the records that keep rejects.
func some[R any](record kube.Recorder[R], keep func(R) bool) kube.Recorder[R] {
	return func(object runtime.Object, known bool) (R, bool, error) {
		r, kept, err := record(object, known)
		return r, kept && keep(r), err
	}
}
