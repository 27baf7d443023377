package kube

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// entry is an object on its way from the API server into a Cache, already reduced to its record, so that only one page
// of a long list is ever held in full.
type entry[R any] struct {
	metav1.Object // unknown
	name, version string
	record        R
	// keep means that the Cache keeps the object. left means that nothing receives it, as the Recorder leaves it out.
	keep, left bool
}

// item is an object of a list on its way into Caches.
type item interface {
	runtime.Object
	// leftOut reports that no Cache keeps the object, and that no handler receives it. A list drops it, because the
	// objects of other drivers would take up memory until the list is complete.
	leftOut() bool
}

// unknown provides the metadata that an entry does not have.
var unknown metav1.Object = &metav1.ObjectMeta{}

// GetName returns the object's name, after its namespace if it has one.
func (e *entry[R]) GetName() string { return e.name }

func (e *entry[R]) GetResourceVersion() string { return e.version }

// GetObjectKind and DeepCopyObject allow an entry to be an item of a list.
func (*entry[R]) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the entry itself, which is never changed.
func (e *entry[R]) DeepCopyObject() runtime.Object { return e }

func (e *entry[R]) leftOut() bool { return e.left }

// cachePage is the page size of a Cache's lists. Pages of large objects are smaller.
const cachePage = 2000

// source is the reflector's ListerWatcher, which lists page by page, and reduces each page to entries before it
// requests the next. Only reflectors call it, one at a time but for the list of one that has ended.
//
// A streamed list (WatchList) would do the same, but not with every API server, and it decodes each object twice: for
// 100,000 PVs it took twice the processor time and memory.
type source struct {
	calls
	resource string
	// example is an empty object of the kind.
	example runtime.Object
	some    Selection
	// reduce returns the entry of an object.
	reduce func(object runtime.Object) (item, error)
	// outcome is called with the outcome of each request, and retry is the delay set by Observe.
	outcome func(error)
	retry   time.Duration
	size    pageSize
}

// newReflector returns a reflector of the objects of a source.
func newReflector(from *source, to cache.ReflectorStore) *cache.Reflector {
	r := cache.NewReflectorWithOptions(from, from.example, to, cache.ReflectorOptions{Name: from.resource})
	r.WatchListPageSize = cachePage
	return r
}

// calls are the requests for the objects of one kind.
type calls struct {
	list  func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	watch func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// Typed is the typed client of one kind, such as corev1.PersistentVolumeInterface, where L is the pointer to its list.
type Typed[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

func typedCalls[L runtime.Object](client Typed[L]) calls {
	return calls{
		func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, options)
		},
		client.Watch,
	}
}

func restCalls(client rest.Interface, resource, namespace string) calls {
	get := func(options metav1.ListOptions) *rest.Request {
		return client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).
			VersionedParams(&options, metav1.ParameterCodec)
	}
	return calls{
		func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return get(options).Do(ctx).Get()
		},
		func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return get(options).Watch(ctx)
		},
	}
}

var _ cache.ListerWatcherWithContext = &source{}

// ListWithContext returns one page of the entries that matter, and reads the current state of the API server, even if
// an older version would satisfy the reflector, because only such a list can be paged. Without a limit, which the
// reflector's pager leaves out after the token of a page has expired, it returns all pages.
func (s *source) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.Limit > 0 {
		return s.page(ctx, options)
	}
	var all *metav1.List
	options.Limit = cachePage
	err := EachPage(ctx, options, func(ctx context.Context, o metav1.ListOptions) (string, error) {
		page, err := s.page(ctx, o)
		switch {
		case err != nil:
			return "", err
		case all == nil:
			all = &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: page.ResourceVersion}}
		}
		all.Items = append(all.Items, page.Items...)
		return page.Continue, nil
	})
	return all, err
}

func (s *source) page(ctx context.Context, options metav1.ListOptions) (*metav1.List, error) {
	options.ResourceVersion, options.ResourceVersionMatch = "", ""
	list, err := reaching(ctx, s, func() (list runtime.Object, err error) {
		err = s.size.read(s.selected(options), func(o metav1.ListOptions) error {
			list, err = s.list(ctx, o)
			return err
		})
		return list, err
	})
	if err != nil {
		return nil, err // the reflector distinguishes such errors
	}
	about, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", s.resource, err)
	}
	page := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: about.GetResourceVersion(),
		Continue: about.GetContinue()}}
	err = meta.EachListItem(list, func(object runtime.Object) error {
		e, err := s.reduce(object)
		if err == nil && !e.leftOut() {
			page.Items = append(page.Items, runtime.RawExtension{Object: e})
		}
		return err
	})
	return page, err
}

// WatchWithContext starts a watch.
func (s *source) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	return reaching(ctx, s, func() (watch.Interface, error) {
		w, err := s.watch(ctx, s.selected(options))
		if err == nil && reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch()) {
			err = errNoAnswer
		}
		return w, err
	})
}

// errNoAnswer means that the connection ended before an answer, for which the client returns an empty watch.
var errNoAnswer = errors.New("the connection to the API server ended without an answer")

// reaching makes a request, and repeats it while it does not reach the API server: see Cache.Observe.
func reaching[T any](ctx context.Context, s *source, request func() (T, error)) (T, error) {
	for {
		answer, err := request()
		if ctx.Err() != nil {
			return answer, err
		}
		s.outcome(err)
		var status apierrors.APIStatus
		if err == nil || s.retry == 0 || errors.As(err, &status) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-clock.RealClock{}.After(wait.Jitter(s.retry, 0.5)):
		}
	}
}

// selected limits the options to the objects that the cache holds.
func (s *source) selected(options metav1.ListOptions) metav1.ListOptions {
	options.LabelSelector, options.FieldSelector = s.some.Labels, s.some.Fields
	if s.some.Name != "" {
		// In this form, RBAC treats a list or watch as access to the named object.
		options.FieldSelector = "metadata.name=" + s.some.Name
	}
	return options
}

// List is the older form of ListWithContext.
func (s *source) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options)
}

// Watch is the older form of WatchWithContext.
func (s *source) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options)
}

// IsWatchListSemanticsUnSupported has the reflector list before it watches.
func (*source) IsWatchListSemanticsUnSupported() bool { return true }

// store implements the reflector's store with a Cache; only the reflector's goroutine calls it.
type store[R any] struct{ cache *Cache[R] }

var (
	_ cache.ReflectorStore         = store[any]{}
	_ cache.ReflectorBookmarkStore = store[any]{}
)

// reduce is entryOf for a source.
func (s store[R]) reduce(object runtime.Object) (item, error) { return s.entryOf(object) }

func (s store[R]) entryOf(object any) (*entry[R], error) {
	if e, ok := object.(*entry[R]); ok {
		return e, nil
	}
	resource := s.cache.synced.resource
	o, ok := object.(runtime.Object)
	if !ok {
		return nil, errNoObject(object)
	}
	about, err := meta.Accessor(o)
	if err != nil {
		return nil, fmt.Errorf("cache %s: %w", resource, err)
	}
	e := &entry[R]{Object: unknown, name: cache.MetaObjectToName(about).String(), version: about.GetResourceVersion()}
	_, known := s.cache.Get(e.name)
	if e.record, e.keep, err = s.cache.record(o, known); err != nil {
		return nil, fmt.Errorf("cache %s %q: %w", resource, e.name, err)
	}
	e.keep = e.keep || known
	e.left = !e.keep && s.cache.leftOut == nil
	return e, nil
}

func errNoObject(object any) error {
	return fmt.Errorf("%v is not an API object", reflect.TypeOf(object))
}

// Add stores an object that was created: the reflector calls it for the event of a creation only.
func (s store[R]) Add(object any) error { return s.set(object, true) }

func (s store[R]) Update(object any) error { return s.set(object, false) }

func (s store[R]) set(object any, created bool) error {
	e, err := s.entryOf(object)
	if err == nil {
		s.cache.set(e, created)
	}
	return err
}

func (s store[R]) Delete(object any) error {
	e, err := s.entryOf(object)
	if err == nil {
		s.cache.remove(e)
	}
	return err
}

// Replace stores a list of all existing objects.
func (s store[R]) Replace(objects []any, version string) error {
	list := make([]*entry[R], 0, len(objects))
	for _, object := range objects {
		e, err := s.entryOf(object)
		if err != nil {
			return err
		}
		list = append(list, e)
	}
	s.cache.replace(list, version)
	return nil
}

// Bookmark records that nothing else has changed up to a version.
func (s store[R]) Bookmark(version string) error {
	s.cache.reach(version)
	return nil
}

func (store[R]) Resync() error { return nil }
