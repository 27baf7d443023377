package kube

import (
	"cmp"
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// listPage is the page size of lists, unless their options have a Limit. It bounds the size of an answer with large
	// objects.
	listPage = 500
	// userPage is the page size for objects that users create. Each of them may have 1.5 MiB, and so an answer 75 MiB.
	userPage = 50
	// pageTimeout bounds the request for one page, so that a list may be of any length.
	pageTimeout = time.Minute
)

// pageOf returns the page size for objects of the kind of example, which is usual for the kinds of administrators.
func pageOf(example any, usual int64) int64 {
	switch example.(type) {
	case *v1.Pod, *v1.PersistentVolumeClaim, *v1.Event, *coordinationv1.Lease, *appsv1.StatefulSet:
		return userPage
	}
	return usual
}

// EachPage reads a list page by page until it is complete. read requests the page that its options name, and returns
// the token of the next page, empty after the last. The first error ends the list.
func EachPage(ctx context.Context, options metav1.ListOptions,
	read func(context.Context, metav1.ListOptions) (next string, err error)) error {
	options.Limit = cmp.Or(options.Limit, listPage)
	for {
		next, err := onePage(ctx, options, read)
		if err != nil || next == "" {
			return err
		}
		options.Continue = next
	}
}

func onePage(ctx context.Context, options metav1.ListOptions,
	read func(context.Context, metav1.ListOptions) (string, error)) (next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	return read(ctx, options)
}

// page is a page of a list.
type page interface {
	runtime.Object
	GetContinue() string
}

// EachOf visits all objects of a kind, read by EachPage.
func EachOf[L page, O any](ctx context.Context, of func(context.Context, metav1.ListOptions) (L, error),
	options metav1.ListOptions, visit func(*O)) error {
	options.Limit = cmp.Or(options.Limit, pageOf(new(O), listPage))
	return EachPage(ctx, options, func(ctx context.Context, o metav1.ListOptions) (string, error) {
		page, err := of(ctx, o)
		if err != nil {
			return "", err
		}
		return page.GetContinue(), meta.EachListItem(page, func(o runtime.Object) error {
			object, ok := any(o).(*O)
			if !ok {
				return fmt.Errorf("got a %T", o)
			}
			visit(object)
			return nil
		})
	})
}

// Each is EachOf with errors that say "list what".
func Each[L page, O any](ctx context.Context, what string, options metav1.ListOptions,
	of func(context.Context, metav1.ListOptions) (L, error), visit func(*O)) error {
	if err := EachOf(ctx, of, options, visit); err != nil {
		return fmt.Errorf("list %s: %w", what, err)
	}
	return nil
}

// ListAll returns the result of keep for each object of a kind, read by EachOf.
func ListAll[L page, O, K any](ctx context.Context, of func(context.Context, metav1.ListOptions) (L, error),
	options metav1.ListOptions, keep func(*O) K) (all []K, err error) {
	if err := EachOf(ctx, of, options, func(o *O) { all = append(all, keep(o)) }); err != nil {
		return nil, err
	}
	return all, nil
}
