package kube

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
)

// EachPage reads a list by the page until it is whole. read asks for the one page that its options name, and
// returns the token of the next, empty after the last; each call may take as long as timeout. The first error ends it.
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

// listPage is how much one page of ListAll asks for.
const listPage = 500

// listTimeout bounds one list of any length.
const listTimeout = 5 * time.Minute

// ListAll reads all objects of a kind, by the page, and keeps of each what keep returns.
func ListAll[L runtime.Object, O, K any](ctx context.Context, of func(context.Context, metav1.ListOptions) (L, error),
	options metav1.ListOptions, keep func(*O) K) ([]K, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return of(ctx, o) })
	pages.PageSize = listPage
	var all []K
	err := pages.EachListItem(ctx, options, func(o runtime.Object) error {
		object, ok := any(o).(*O)
		if !ok {
			return fmt.Errorf("got a %T", o)
		}
		all = append(all, keep(object))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}
