package kube

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Watches shares watches between the Caches of several controllers in one process: the API server sends each object
// once, and it is decoded once. A nil Watches shares nothing. Its methods are safe for concurrent use.
type Watches struct {
	mu    sync.Mutex
	feeds map[watched]*feed
}

// watched identifies the objects of a feed.
type watched struct {
	kind reflect.Type
	some Selection
}

// NewWatches returns Watches without Caches.
func NewWatches() *Watches { return &Watches{feeds: map[watched]*feed{}} }

// Follower is a Cache of any record.
type Follower interface{ follow(w *Watches) }

// Share has Caches, which do not run yet, receive their objects from one watch with all other Caches of the same kind
// and Selection. Each of them still has records, a first list and an order of calls to its handler of its own. Observe
// has no effect on them.
//
// The first list begins once all of them run. Caches that run wait for the others for a few seconds only, because the
// others may depend on a list that fails. A Cache that begins or ends later has the others list again.
func (w *Watches) Share(caches ...Follower) {
	if w == nil {
		return
	}
	for _, one := range caches {
		one.follow(w)
	}
}

func (c *Cache[R]) follow(w *Watches) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := watched{reflect.TypeOf(c.source.example), c.source.some}
	if w.feeds[key] == nil {
		w.feeds[key] = &feed{source: *c.source}
	}
	c.feed = w.feeds[key]
	c.feed.shared++
}

// follower is the store of a Cache with a feed.
type follower interface {
	cache.ReflectorStore
	cache.ReflectorBookmarkStore
	reduce(object runtime.Object) (item, error)
}

// feed lists and watches objects for the Caches that share it.
type feed struct {
	source source
	// shared is the number of Caches. It does not change once one of them runs.
	shared int

	mu sync.Mutex
	// running are the Caches that run, and end ends their reflector and waits for its end, except for a list that it has
	// begun and whose result is not used; both are guarded by mu.
	running []follower
	end     func()
}

// run keeps a Cache up to date until ctx ends. Its handler is not called after that.
func (f *feed) run(ctx context.Context, one follower) {
	f.change(ctx, func() { f.running = append(f.running, one) })
	<-ctx.Done()
	f.change(ctx, func() {
		f.running = slices.DeleteFunc(f.running, func(other follower) bool { return other == one })
	})
}

// change replaces the reflector by one for the changed Caches.
func (f *feed) change(ctx context.Context, alter func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.end != nil {
		f.end()
		f.end = nil
	}
	alter()
	if len(f.running) > 0 {
		f.begin(context.WithoutCancel(ctx))
	}
}

// gathering bounds the time that a feed waits for Caches that do not run yet.
const gathering = 5 * time.Second

// begin starts a reflector for the Caches that run. The caller holds the lock.
func (f *feed) begin(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	to, complete := fanOut(slices.Clone(f.running)), len(f.running) == f.shared
	from := f.source
	from.reduce = to.reduce
	ended := make(chan struct{})
	f.end = func() { cancel(); <-ended }
	go func() {
		defer close(ended)
		if !complete {
			select {
			case <-ctx.Done():
				return
			case <-clock.RealClock{}.After(gathering):
			}
		}
		newReflector(&from, to).RunWithContext(ctx)
	}()
}

// fanOut is the store of a feed's reflector, which passes everything to the stores of Caches, one after the other.
type fanOut []follower

var _ follower = fanOut{}

// shares is an object on its way to the Caches: the entry for each of them.
type shares []item

// GetObjectKind and DeepCopyObject allow shares to be an item of a list.
func (shares) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the shares themselves, which are never changed.
func (s shares) DeepCopyObject() runtime.Object { return s }

func (s shares) leftOut() bool {
	return !slices.ContainsFunc(s, func(one item) bool { return !one.leftOut() })
}

func (f fanOut) reduce(object runtime.Object) (item, error) { return f.sharesOf(object) }

func (f fanOut) sharesOf(object any) (shares, error) {
	if s, ok := object.(shares); ok {
		return s, nil
	}
	o, ok := object.(runtime.Object)
	if !ok {
		return nil, errNoObject(object)
	}
	s := make(shares, len(f))
	for i, one := range f {
		var err error
		if s[i], err = one.reduce(o); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// each passes an object to all Caches.
func (f fanOut) each(object any, pass func(to follower, entry any) error) error {
	s, err := f.sharesOf(object)
	if err != nil {
		return err
	}
	var errs []error
	for i, one := range f {
		errs = append(errs, pass(one, s[i]))
	}
	return errors.Join(errs...)
}

func (f fanOut) Add(object any) error { return f.each(object, follower.Add) }

func (f fanOut) Update(object any) error { return f.each(object, follower.Update) }

func (f fanOut) Delete(object any) error { return f.each(object, follower.Delete) }

func (f fanOut) Replace(objects []any, version string) error {
	all := make([]shares, len(objects))
	for i, object := range objects {
		var err error
		if all[i], err = f.sharesOf(object); err != nil {
			return err
		}
	}
	var errs []error
	for i, one := range f {
		entries := make([]any, len(all))
		for j, s := range all {
			entries[j] = s[i]
		}
		errs = append(errs, one.Replace(entries, version))
	}
	return errors.Join(errs...)
}

func (f fanOut) Bookmark(version string) error {
	var errs []error
	for _, one := range f {
		errs = append(errs, one.Bookmark(version))
	}
	return errors.Join(errs...)
}

func (fanOut) Resync() error { return nil }
