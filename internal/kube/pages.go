package kube

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// listPage is the page size of lists, unless their options have a Limit. Pages of large objects are smaller.
	listPage = 500
	// pageTimeout bounds the request for one page, so that a list may be of any length.
	pageTimeout = time.Minute
	// fromCache is the resourceVersion for a list from the watch cache of the API server, without pages.
	fromCache = "0"
)

// EachPage reads a list page by page until it is complete. read requests the page that its options name, and returns
// the token of the next page, empty after the last. The first error ends the list.
func EachPage(ctx context.Context, options metav1.ListOptions,
	read func(context.Context, metav1.ListOptions) (next string, err error)) error {
	options.Limit = cmp.Or(options.Limit, listPage)
	var size pageSize
	for {
		err := size.read(options, func(o metav1.ListOptions) (err error) {
			options.ResourceVersion = o.ResourceVersion
			options.Continue, err = onePage(ctx, o, read)
			return err
		})
		if err != nil || options.Continue == "" {
			return err
		}
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
