package kube

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Record is what a Cache keeps of an object: a pointer to a struct of the fields that are
// read. It tells the object's name, UID and resourceVersion to the cache's machinery.
type Record interface {
	comparable
	metav1.ObjectMetaAccessor
}

// Handler is told of every change of a Cache, after the change can be seen in it. Its
// methods are called one at a time and must not block.
type Handler[R Record] interface {
	// Added is called for an object seen for the first time.
	Added(now R)
	// Updated is called for a change; before and now may be of different UIDs when an
	// object was deleted and made again between two looks.
	Updated(before, now R)
	// Deleted is called with the last state of an object that is gone. final is false when
	// the end itself was not seen (the watch was interrupted): last may then be outdated.
	Deleted(last R, final bool)
}

// Cache is a watch cache of one kind of cluster-scoped object. It is never resynced: what
// does not change causes no work. Its methods are safe for concurrent use.
type Cache[R Record] struct {
	store      cache.Store
	controller cache.Controller
}

// NewCache returns a cache that is not running.
//
// client and resource name what is watched ("persistentvolumes"); example is an empty
// object of that kind; record makes a Record of an object and keeps no reference to it.
func NewCache[R Record](client rest.Interface, resource string, example runtime.Object, record func(runtime.Object) (R, error), handler Handler[R]) *Cache[R] {
	c := &Cache[R]{}
	c.store, c.controller = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, fields.Everything()),
		ObjectType:    example,
		Handler:       adapter[R]{handler},
		Transform: func(object any) (any, error) {
			if r, ok := object.(R); ok {
				// The machinery may pass what it transformed before.
				return r, nil
			}
			o, ok := object.(runtime.Object)
			if !ok {
				return nil, fmt.Errorf("cache %s: %T is not an API object", resource, object)
			}
			return record(o)
		},
	})
	return c
}

// Run keeps the cache up to date until ctx ends.
func (c *Cache[R]) Run(ctx context.Context) { c.controller.RunWithContext(ctx) }

// Synced tells whether the cache holds all that the first list returned and the handler
// was told of it.
func (c *Cache[R]) Synced() bool { return c.controller.HasSynced() }

// Sync is done when Synced turns true.
func (c *Cache[R]) Sync() cache.DoneChecker { return c.controller.HasSyncedChecker() }

// Get returns the record of the object with this name.
func (c *Cache[R]) Get(name string) (r R, found bool) {
	object, found, err := c.store.GetByKey(name)
	if err != nil || !found {
		return r, false
	}
	r, found = object.(R)
	return r, found
}

// Each calls visit for every record, in no order.
func (c *Cache[R]) Each(visit func(R)) {
	for _, object := range c.store.List() {
		if r, ok := object.(R); ok {
			visit(r)
		}
	}
}

// Reached tells whether the cache has seen everything up to a resourceVersion that the API
// server answered for this kind. A version it cannot compare counts as not reached.
func (c *Cache[R]) Reached(version string) bool {
	seen := c.store.LastStoreSyncResourceVersion()
	order, err := resourceversion.CompareResourceVersion(seen, version)
	return err == nil && order >= 0
}

// Newer tells whether the first of two resourceVersions of one object is the later one.
// Versions that cannot be compared count as newer: nothing may be taken from an old look.
func Newer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err != nil || order > 0
}

// adapter tells a Handler what the informer reports.
type adapter[R Record] struct{ to Handler[R] }

func (a adapter[R]) OnAdd(object any, _ bool) {
	if now, ok := object.(R); ok {
		a.to.Added(now)
	}
}

func (a adapter[R]) OnUpdate(old, object any) {
	before, ok1 := old.(R)
	now, ok2 := object.(R)
	if ok1 && ok2 {
		a.to.Updated(before, now)
	}
}

func (a adapter[R]) OnDelete(object any) {
	final := true
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object, final = unknown.Obj, false
	}
	if last, ok := object.(R); ok {
		a.to.Deleted(last, final)
	}
}
