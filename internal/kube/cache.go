package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Handler is called with every change of a Cache, after the cache shows the change. Its methods are called one at a
// time, from the goroutine of Run or Load, or of the watch that Watches share. They must not block, because the watch
// waits for them.
type Handler[R any] interface {
	// Added is called for an object seen for the first time.
	Added(now R)
	// Updated is called for a change, where before and now may have different UIDs if an object was deleted and created
	// again between two events.
	Updated(before, now R)
	// Deleted is called with the last known state of an object that is gone. final is false if the deletion event itself
	// was missed (the watch was interrupted), so that last may be outdated.
	Deleted(last R, final bool)
}

// OnChange is a Handler that is called with the states before and after each change. The zero value stands for an
// object that does not exist.
type OnChange[R any] func(before, now R)

// Added implements Handler.
func (c OnChange[R]) Added(now R) {
	var none R
	c(none, now)
}

// Updated implements Handler.
func (c OnChange[R]) Updated(before, now R) { c(before, now) }

// Deleted implements Handler.
func (c OnChange[R]) Deleted(last R, _ bool) {
	var none R
	c(last, none)
}

// OnEachChange is an OnChange that also receives the objects that the Recorder leaves out, by another function.
type OnEachChange[R any] struct {
	OnChange[R]
	// LeftOutChange is called with nothing before for LeftOut, and with nothing now for LeftOutDeleted.
	LeftOutChange OnChange[R]
}

// LeftOut implements LeftOutHandler.
func (c OnEachChange[R]) LeftOut(now R) { c.LeftOutChange.Added(now) }

// LeftOutDeleted implements LeftOutHandler.
func (c OnEachChange[R]) LeftOutDeleted(last R) { c.LeftOutChange.Deleted(last, true) }

// LeftOutHandler is a Handler that also receives the objects that the Recorder leaves out, as returned by the Recorder.
type LeftOutHandler[R any] interface {
	Handler[R]
	// LeftOut is called for each watch event, and each list item, that shows such an object.
	LeftOut(now R)
	// LeftOutDeleted is called for the watch event that shows the deletion of such an object; a missed deletion is not
	// delivered.
	LeftOutDeleted(last R)
}

// CreationHandler is a Handler that distinguishes a creation from an object that a list shows. It needs a Cache without
// a Selection, where an object that begins to match looks like a creation.
type CreationHandler[R any] interface {
	Handler[R]
	// Created is called in place of Added for the watch event of an object's creation.
	Created(now R)
}

// ListHandler is a Handler that is also called after the Cache has a whole list, the first or a later one. An object
// that was created and deleted without a watch is never delivered.
type ListHandler[R any] interface {
	Handler[R]
	// Listed is called after the list's changes were delivered, when Reached holds for its version.
	Listed()
}

// Recorder returns the record that a Cache keeps of an object, without a reference to the object.
//
// keep reports whether the object matters. An object that does not is left out and takes no memory: neither it nor its
// changes are delivered, except to a LeftOutHandler. known means that the object is in the Cache, so that it is kept
// until its deletion and the handler receives a change of owner as an update, and not as a deletion.
type Recorder[R any] func(object runtime.Object, known bool) (record R, keep bool, err error)

// RecordSome returns a Recorder of objects of one kind, with the results of of.
func RecordSome[O runtime.Object, R any](of func(o O, known bool) (record R, keep bool)) Recorder[R] {
	return func(object runtime.Object, known bool) (r R, keep bool, err error) {
		o, ok := object.(O)
		if !ok {
			return r, false, fmt.Errorf("got a %T", object)
		}
		r, keep = of(o, known)
		return r, keep, nil
	}
}

// RecordAll returns a Recorder that keeps the result of of for each object.
func RecordAll[O runtime.Object, R any](of func(O) R) Recorder[R] {
	return RecordSome(func(o O, _ bool) (R, bool) { return of(o), true })
}

// RecordIf returns a Recorder of pointers to the results of of, which keeps the objects whose results matter.
func RecordIf[O runtime.Object, R any](of func(O) R, matters func(*R) bool) Recorder[*R] {
	return RecordSome(func(o O, _ bool) (*R, bool) {
		r := of(o)
		return &r, matters(&r)
	})
}

// Selection selects the objects of a kind that a Cache holds. The zero value selects all, in all namespaces.
type Selection struct {
	// Namespace, if set, is the only namespace that is read.
	Namespace string
	// Name, if set, is the name of the only object that is read, in its namespace.
	Name string
	// Labels is a label selector, and Fields a field selector, which excludes Name. For the Cache, an object that no
	// longer matches is deleted.
	Labels, Fields string
}

// Cache is a watch cache of one kind of object, keyed by name, or by "namespace/name" for objects with a namespace. It
// is never resynced, and a new list does not deliver unchanged objects, so only changes cause work. Its methods are
// safe for concurrent use.
//
// The Cache is itself the store of the reflector. An informer would put a queue between the two, which holds every
// object of the first list a second time.
type Cache[R any] struct {
	reflector *cache.Reflector
	source    *source
	// feed takes the place of reflector and source, unless it is nil: see Watches.
	feed    *feed
	record  Recorder[R]
	handler Handler[R]
	// leftOut is the handler, if it is a LeftOutHandler.
	leftOut LeftOutHandler[R]
	synced  synced

	mu   sync.RWMutex
	kept map[string]kept[R]
	// indexes change together with kept.
	indexes []index[R]
	// version is the latest version that the API server showed, by an object or a bookmark, and that was delivered to the
	// handler.
	version string
}

// Lister reads a Cache.
type Lister[R any] interface {
	Get(name string) (R, bool)
	Each(visit func(R))
}

// kept is an object in a Cache.
type kept[R any] struct {
	record  R
	version string
}

// index has the names of the objects in a Cache by the group of their records.
type index[R any] struct {
	of    func(R) string
	names map[string]map[string]struct{}
}

// NewCache returns a cache that is not running.
//
// client and resource select the watched kind ("persistentvolumes"), and example is an empty object of that kind.
func NewCache[R any](client rest.Interface, resource string, example runtime.Object, record Recorder[R],
	handler Handler[R]) *Cache[R] {
	return NewCacheOf(Selection{}, client, resource, example, record, handler)
}

// NewTypedCache is NewCache on the typed client of the kind, which may be a fake one.
func NewTypedCache[L runtime.Object, R any](client Typed[L], resource string, example runtime.Object,
	record Recorder[R], handler Handler[R]) *Cache[R] {
	return newCache(Selection{}, typedCalls(client), resource, example, record, handler)
}

// NewCacheOf is NewCache for a selection of the objects of a kind.
func NewCacheOf[R any](some Selection, client rest.Interface, resource string, example runtime.Object,
	record Recorder[R], handler Handler[R]) *Cache[R] {
	return newCache(some, restCalls(client, resource, some.Namespace), resource, example, record, handler)
}

func newCache[R any](some Selection, calls calls, resource string, example runtime.Object, record Recorder[R],
	handler Handler[R]) *Cache[R] {
	c := &Cache[R]{record: record, handler: handler, kept: map[string]kept[R]{},
		synced: synced{resource, make(chan struct{})}}
	c.leftOut, _ = handler.(LeftOutHandler[R])
	s := store[R]{c}
	c.source = &source{calls: calls, resource: resource, example: example, some: some, reduce: s.reduce,
		outcome: func(error) {}}
	c.reflector = newReflector(c.source, s)
	return c
}

// Observe has report called with the outcome of each list and of each start of a watch: nil, or the error. It is also
// called with nil for each event and bookmark of a watch, which the API server sends, too.
//
// A request that does not reach the API server is repeated after retry, so that a person who waits for the cache does
// not wait for the reflector's backoff, which grows to a minute; with 0, the reflector repeats it. Observe is called
// before Run, and report must not block.
func (c *Cache[R]) Observe(report func(error), retry time.Duration) {
	c.source.outcome, c.source.retry = report, retry
}

// Run keeps the cache up to date until ctx ends.
func (c *Cache[R]) Run(ctx context.Context) {
	if c.feed != nil {
		c.feed.run(ctx, store[R]{c})
		return
	}
	c.reflector.RunWithContext(ctx)
}

// Load reads all objects once, page by page, in place of Run: the cache is not kept up to date. It returns the error of
// the request that failed, and the cache then holds nothing.
func (c *Cache[R]) Load(ctx context.Context) error {
	var all []*entry[R]
	options := metav1.ListOptions{Limit: cachePage}
	err := EachOf(ctx, c.source.page, options, func(e *entry[R]) { all = append(all, e) })
	if err == nil {
		c.replace(all, c.version)
	}
	return err
}

// Synced reports whether the cache holds all objects of the first list and the handler has received them.
func (c *Cache[R]) Synced() bool { return cache.IsDone(c.synced) }

// Sync returns a checker that is done when Synced turns true.
func (c *Cache[R]) Sync() cache.DoneChecker { return c.synced }

// Get returns the record of the object with this name ("namespace/name").
func (c *Cache[R]) Get(name string) (r R, found bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	k, found := c.kept[name]
	return k.record, found
}

// Len returns the number of records.
func (c *Cache[R]) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.kept)
}

// Each calls visit for every record, in random order.
func (c *Cache[R]) Each(visit func(R)) {
	for _, record := range c.all() {
		visit(record)
	}
}

func (c *Cache[R]) all() []R {
	c.mu.RLock()
	defer c.mu.RUnlock()
	records := make([]R, 0, len(c.kept))
	for _, k := range c.kept {
		records = append(records, k.record)
	}
	return records
}

// Index returns a function that finds the records of a group, in random order, where a search of all records would cost
// more the larger the cluster is. of returns the group of a record, empty for none. The function shows what Each shows:
// an index that a Handler kept would lack objects of a list until the Handler has received them. Index is called before
// Run.
func (c *Cache[R]) Index(of func(R) string) (in func(group string) []R) {
	x := index[R]{of, map[string]map[string]struct{}{}}
	c.indexes = append(c.indexes, x)
	return func(group string) []R {
		c.mu.RLock()
		defer c.mu.RUnlock()
		records := make([]R, 0, len(x.names[group]))
		for name := range x.names[group] {
			records = append(records, c.kept[name].record)
		}
		return records
	}
}

// put stores an object. The caller holds the lock.
func (c *Cache[R]) put(now *entry[R]) {
	c.drop(now.name)
	c.kept[now.name] = kept[R]{now.record, now.version}
	for _, x := range c.indexes {
		group := x.of(now.record)
		if group == "" {
			continue
		}
		if x.names[group] == nil {
			x.names[group] = map[string]struct{}{}
		}
		x.names[group][now.name] = struct{}{}
	}
}

// drop removes an object, and reports whether it was there. The caller holds the lock.
func (c *Cache[R]) drop(name string) bool {
	last, known := c.kept[name]
	if !known {
		return false
	}
	delete(c.kept, name)
	for _, x := range c.indexes {
		group := x.of(last.record)
		if delete(x.names[group], name); len(x.names[group]) == 0 {
			delete(x.names, group)
		}
	}
	return true
}

// Reached reports whether the cache and its handler have seen all events up to a resourceVersion that the API server
// returned for this kind. A version that cannot be compared counts as not reached.
func (c *Cache[R]) Reached(version string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	order, err := resourceversion.CompareResourceVersion(c.version, version)
	return err == nil && order >= 0
}

// set stores the current state of an object. created reports the event of its creation.
func (c *Cache[R]) set(now *entry[R], created bool) {
	c.mu.Lock()
	before, known := c.kept[now.name]
	if now.keep {
		c.put(now)
	}
	c.mu.Unlock()
	c.notify(before, known, now, created)
	c.reach(now.version)
}

// reach records that all events up to a version were stored and delivered, because Reached also covers the handler's
// reaction to an event.
func (c *Cache[R]) reach(version string) {
	c.mu.Lock()
	c.version = version
	c.mu.Unlock()
	c.source.outcome(nil)
}

func (c *Cache[R]) notify(before kept[R], known bool, now *entry[R], created bool) {
	creation, _ := c.handler.(CreationHandler[R])
	switch {
	case known && before.version != now.version:
		c.handler.Updated(before.record, now.record)
	case !known && now.keep && created && creation != nil:
		creation.Created(now.record)
	case !known && now.keep:
		c.handler.Added(now.record)
	case !known && c.leftOut != nil:
		c.leftOut.LeftOut(now.record)
	}
}

// remove removes a deleted object.
func (c *Cache[R]) remove(last *entry[R]) {
	c.mu.Lock()
	known := c.drop(last.name)
	c.mu.Unlock()
	switch {
	case known:
		c.handler.Deleted(last.record, true)
	case c.leftOut != nil:
		c.leftOut.LeftOutDeleted(last.record)
	}
	c.reach(last.version)
}

// replace stores a whole list.
func (c *Cache[R]) replace(list []*entry[R], version string) {
	c.mu.Lock()
	before := c.kept
	c.kept = make(map[string]kept[R], len(before))
	for _, x := range c.indexes {
		clear(x.names)
	}
	for _, now := range list {
		if now.keep {
			c.put(now)
		}
	}
	c.mu.Unlock()
	// Existing objects come first, because a deletion may be judged by the objects that exist.
	for _, now := range list {
		b, known := before[now.name]
		delete(before, now.name)
		c.notify(b, known, now, false)
	}
	for _, gone := range before {
		c.handler.Deleted(gone.record, false)
	}
	c.reach(version)
	c.synced.reached()
	if handler, ok := c.handler.(ListHandler[R]); ok {
		handler.Listed()
	}
}

// synced is done once the first list was stored.
type synced struct {
	resource string
	done     chan struct{}
}

// Name returns the resource.
func (s synced) Name() string { return s.resource }

// Done is closed after the first list.
func (s synced) Done() <-chan struct{} { return s.done }

func (s synced) reached() {
	if !cache.IsDone(s) {
		close(s.done)
	}
}
