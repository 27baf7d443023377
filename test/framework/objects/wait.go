package objects

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
)

// How long a wait pauses between two looks while it has no watch: briefly at first, for the API server is on this
// machine, and then longer and longer, for it has other work to do.
const (
	pollFirst = 5 * time.Millisecond
	pollLast  = 80 * time.Millisecond
)

// poll returns how long to wait before the next look, after this many.
func poll(looks int) time.Duration { return min(pollFirst<<min(looks, 10), pollLast) }

// source is how a wait sees one object.
type source[T any] struct {
	// get returns nil for an object that is gone or was replaced by another of its name.
	get func(context.Context) (*T, error)
	// watch follows the objects of its kind in its namespace; name selects the object, same tells it from another of its
	// name.
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	name  string
	same  func(*T) bool
}

// waiting is one wait for an object.
type waiting[T any] struct {
	source[T]
	want     func(*T) bool
	describe func(*T) string
	// seen is the state that the object was last seen in.
	seen string
}

// wait returns once an object is as wanted, also if it is so for a moment only. want and describe take nil for an
// object that is gone. The error describes the state that the object was last seen in.
func wait[T any](ctx context.Context, what string, at source[T], want func(*T) bool, describe func(*T) string) error {
	w := &waiting[T]{source: at, want: want, describe: describe, seen: "nothing"}
	for looks := 0; ; looks++ {
		if w.look(ctx) || w.follow(ctx) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; last seen: %s", what, ctx.Err(), w.seen)
		case <-time.After(poll(looks)):
		}
	}
}

// look reads the object.
func (w *waiting[T]) look(ctx context.Context) bool {
	object, err := w.get(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.seen = err.Error()
		}
		return false
	}
	return w.is(object)
}

func (w *waiting[T]) is(object *T) bool {
	w.seen = w.describe(object)
	return w.want(object)
}

// follow watches the object until its state is the wanted one, or the watch ends. It reads the object again once it
// watches, because a watch shows only later changes.
func (w *waiting[T]) follow(ctx context.Context) bool {
	if w.watch == nil {
		return false
	}
	events, err := w.watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name",
		w.name).String()})
	if err != nil {
		return false
	}
	defer events.Stop()
	if w.look(ctx) {
		return true
	}
	for e := range events.ResultChan() {
		object, ok := any(e.Object).(*T)
		switch {
		case !ok:
			return false // an error, after which the watch is over
		case e.Type == watch.Deleted || !w.same(object):
			object = nil
		}
		if w.is(object) {
			return true
		}
	}
	return false
}
