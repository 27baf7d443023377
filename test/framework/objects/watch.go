package objects

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	retry "k8s.io/client-go/tools/watch"
)

// WatchFromNow watches the selected objects from now on. An API server that is short of time ends watches that it takes
// for slow; this one continues where it was.
func WatchFromNow[L metav1.ListInterface](ctx context.Context, selects metav1.ListOptions,
	list func(context.Context, metav1.ListOptions) (L, error),
	watches func(context.Context, metav1.ListOptions) (watch.Interface, error)) (watch.Interface, error) {
	page := selects
	page.Limit = 1
	now, err := list(ctx, page)
	if err != nil {
		return nil, err
	}
	return retry.NewRetryWatcherWithContext(ctx, now.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selects.LabelSelector
			return watches(ctx, o)
		},
	})
}
