package kube

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
)

// EachPage reads a list page by page until it is complete. read requests the page that its options name, and returns
// the token of the next page, empty after the last. Each call is bounded by timeout, and the first error ends the list.
func EachPage(ctx context.Context, options metav1.ListOptions, timeout time.Duration,
	read func(context.Context, metav1.ListOptions) (next string, err error)) error {
	for {
		next, err := within(ctx, timeout, options, read)
		if err != nil || next == "" {
			return err
		}
		options.Continue = next
	}
}

func within(ctx context.Context, timeout time.Duration, options metav1.ListOptions,
	read func(context.Context, metav1.ListOptions) (string, error)) (next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return read(ctx, options)
}

// Each reads a list as EachPage does, and visits each of its objects.
func Each[L interface {
	runtime.Object
	GetContinue() string
}, O any](ctx context.Context, options metav1.ListOptions, timeout time.Duration,
	list func(context.Context, metav1.ListOptions) (L, error), visit func(*O)) error {
	return EachPage(ctx, options, timeout, func(ctx context.Context, o metav1.ListOptions) (string, error) {
		page, err := list(ctx, o)
		if err != nil {
			return "", err
		}
		return page.GetContinue(), meta.EachListItem(page, visitor(visit))
	})
}

func visitor[O any](visit func(*O)) func(runtime.Object) error {
	return func(o runtime.Object) error {
		object, ok := any(o).(*O)
		if !ok {
			return fmt.Errorf("got a %T", o)
		}
		visit(object)
		return nil
	}
}

// listPage is the page size of ListAll and EachOf.
const listPage = 500

// listTimeout bounds one list of any length.
const listTimeout = 5 * time.Minute

// ListAll reads all objects of a kind page by page, and returns the result of keep for each of them.
func ListAll[L runtime.Object, O, K any](ctx context.Context, of func(context.Context, metav1.ListOptions) (L, error),
	options metav1.ListOptions, keep func(*O) K) (all []K, err error) {
	if err := EachOf(ctx, of, options, func(o *O) { all = append(all, keep(o)) }); err != nil {
		return nil, err
	}
	return all, nil
}

// EachOf visits all objects of a kind, and holds only a few pages in memory at a time.
func EachOf[L runtime.Object, O any](ctx context.Context, of func(context.Context, metav1.ListOptions) (L, error),
	options metav1.ListOptions, visit func(*O)) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return of(ctx, o) })
	pages.PageSize = listPage
	return pages.EachListItem(ctx, options, visitor(visit))
}
