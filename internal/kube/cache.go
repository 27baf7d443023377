package kube

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Handler is called with every change of a Cache, after the change can be seen in it. Its
// methods are called one at a time and must not block.
type Handler[R any] interface {
	// Added is called for an object seen for the first time.
	Added(now R)
	// Updated is called for a change; before and now may be of different UIDs when an
	// object was deleted and made again between two looks.
	Updated(before, now R)
	// Deleted is called with the last state of an object that is gone. final is false when
	// the end itself was not seen (the watch was interrupted): last may then be outdated.
	Deleted(last R, final bool)
}

// LeftOutHandler is a Handler that also receives the objects that the Recorder leaves out, as the Recorder returned
// them.
type LeftOutHandler[R any] interface {
	Handler[R]
	// LeftOut is called for each event of the watch, and each item of a list, that shows such an object.
	LeftOut(now R)
	// LeftOutDeleted is called for the event that shows the end of one. An end that the watch missed is not delivered.
	LeftOutDeleted(last R)
}

// ListHandler is a Handler that is also called after the Cache has a whole list, the first or a later one: an object
// that came and went while there was no watch is never delivered.
type ListHandler[R any] interface {
	Handler[R]
	// Listed is called after the list's changes were delivered, and Reached holds for its version.
	Listed()
}

// Recorder makes of an object what a Cache is to keep of it, without a reference to the object.
//
// keep reports whether the object matters. One that does not is left out, and takes no memory:
// neither it nor its changes are delivered, except to a LeftOutHandler. known
// says that the object is in the Cache: then it is kept until its end, so that the handler sees
// that it changed hands, and not an end that was none.
type Recorder[R any] func(object runtime.Object, known bool) (record R, keep bool, err error)

// Selection says which objects of a kind a Cache holds. The zero value is all, of all namespaces.
type Selection struct {
	// Namespace is the only one that is read.
	Namespace string
	// Name is that of the only object, in its namespace, that is read.
	Name string
	// Labels is a label selector, and Fields a field selector, which goes without Name. An object that does not fit them
	// any more is gone to the Cache.
	Labels, Fields string
}

// Cache is a watch cache of one kind of object, known by name, or by "namespace/name" if it has a
// namespace. It is never resynced, and an object that a new list shows as it was before is not delivered
// of: what does not change causes no work. Its methods are safe for concurrent use.
//
// It is the reflector's store itself. An informer would put a queue between the two, which
// holds every object of the first list once more.
type Cache[R any] struct {
	reflector *cache.Reflector
	record    Recorder[R]
	handler   Handler[R]
	// leftOut is the handler, if it is a LeftOutHandler.
	leftOut LeftOutHandler[R]
	synced  synced
	// outcome is called with the outcome of each request, and retry is that of Observe.
	outcome func(error)
	retry   time.Duration

	mu   sync.RWMutex
	kept map[string]kept[R]
	// version is the latest that the API server showed, by an object or a bookmark, and that the
	// handler received in turn.
	version string
}

// kept is an object in a Cache.
type kept[R any] struct {
	record  R
	version string
}

// NewCache returns a cache that is not running.
//
// client and resource name what is watched ("persistentvolumes"); example is an empty
// object of that kind.
func NewCache[R any](client rest.Interface, resource string, example runtime.Object, record Recorder[R],
	handler Handler[R]) *Cache[R] {
	return NewCacheOf(Selection{}, client, resource, example, record, handler)
}

// NewCacheOf is NewCache for some objects of a kind only.
func NewCacheOf[R any](some Selection, client rest.Interface, resource string, example runtime.Object,
	record Recorder[R], handler Handler[R]) *Cache[R] {
	c := &Cache[R]{record: record, handler: handler, kept: map[string]kept[R]{},
		synced: synced{resource, make(chan struct{})}, outcome: func(error) {}}
	c.leftOut, _ = handler.(LeftOutHandler[R])
	s := store[R]{c}
	c.reflector = cache.NewReflectorWithOptions(&source[R]{client, s, some}, example, s,
		cache.ReflectorOptions{Name: resource})
	c.reflector.WatchListPageSize = pageSize
	return c
}

// Observe has report called with the outcome of each list, and of each begin of a watch: nil, or why it failed. A
// request that does not reach the API server is made again after retry, so that a person who looks at the cache does
// not wait for the reflector's back-off, which grows to a minute; 0: the reflector repeats it. Observe is called before
// Run; report must not block.
func (c *Cache[R]) Observe(report func(error), retry time.Duration) {
	c.outcome, c.retry = report, retry
}

// Run keeps the cache up to date until ctx ends.
func (c *Cache[R]) Run(ctx context.Context) { c.reflector.RunWithContext(ctx) }

// Synced reports whether the cache holds all that the first list returned and the handler
// received it.
func (c *Cache[R]) Synced() bool { return cache.IsDone(c.synced) }

// Sync is done when Synced turns true.
func (c *Cache[R]) Sync() cache.DoneChecker { return c.synced }

// Get returns the record of the object with this name ("namespace/name").
func (c *Cache[R]) Get(name string) (r R, found bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	k, found := c.kept[name]
	return k.record, found
}

// Each calls visit for every record, in no order.
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

// Reached reports whether the cache, and its handler, have seen everything up to a resourceVersion
// that the API server answered for this kind. A version it cannot compare counts as not reached.
func (c *Cache[R]) Reached(version string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	order, err := resourceversion.CompareResourceVersion(c.version, version)
	return err == nil && order >= 0
}

// Newer reports whether the first of two resourceVersions of one object is the later one.
// Versions that cannot be compared count as newer: nothing may be taken from an old look.
func Newer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err != nil || order > 0
}

// set brings in an object as it is now.
func (c *Cache[R]) set(now *entry[R]) {
	c.mu.Lock()
	before, known := c.kept[now.name]
	if now.keep {
		c.kept[now.name] = kept[R]{now.record, now.version}
	}
	c.mu.Unlock()
	c.notify(before, known, now)
	c.reach(now.version)
}

// reach notes that everything up to a version was brought in and delivered: what a handler makes
// of an event is part of what Reached promises.
func (c *Cache[R]) reach(version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version = version
}

func (c *Cache[R]) notify(before kept[R], known bool, now *entry[R]) {
	switch {
	case known && before.version != now.version:
		c.handler.Updated(before.record, now.record)
	case !known && now.keep:
		c.handler.Added(now.record)
	case !known && c.leftOut != nil:
		c.leftOut.LeftOut(now.record)
	}
}

// remove brings in an object's end.
func (c *Cache[R]) remove(last *entry[R]) {
	c.mu.Lock()
	_, known := c.kept[last.name]
	delete(c.kept, last.name)
	c.mu.Unlock()
	switch {
	case known:
		c.handler.Deleted(last.record, true)
	case c.leftOut != nil:
		c.leftOut.LeftOutDeleted(last.record)
	}
	c.reach(last.version)
}

// replace brings in a whole list.
func (c *Cache[R]) replace(list []*entry[R], version string) {
	c.mu.Lock()
	before := c.kept
	c.kept = make(map[string]kept[R], len(before))
	for _, now := range list {
		if now.keep {
			c.kept[now.name] = kept[R]{now.record, now.version}
		}
	}
	c.mu.Unlock()
	// First what is there: an end may be judged by what else there is.
	for _, now := range list {
		b, known := before[now.name]
		delete(before, now.name)
		c.notify(b, known, now)
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

// synced is done once the first list was brought in.
type synced struct {
	resource string
	done     chan struct{}
}

// Name says what is waited for.
func (s synced) Name() string { return s.resource }

// Done is closed when it has come.
func (s synced) Done() <-chan struct{} { return s.done }

func (s synced) reached() {
	if !cache.IsDone(s) {
		close(s.done)
	}
}
