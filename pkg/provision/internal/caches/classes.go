package caches

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	storageclient "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/tools/cache"
)

// NewClasses returns a watch cache of StorageClasses that is not running yet.
func NewClasses(storage storageclient.StorageV1Interface) (cache.SharedIndexInformer, error) {
	classes := cache.NewSharedIndexInformer(listing{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return storage.StorageClasses().List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return storage.StorageClasses().Watch(ctx, o)
		},
	}}, &storagev1.StorageClass{}, 0, cache.Indexers{})
	if err := classes.SetTransform(dropManagedFields); err != nil {
		return nil, fmt.Errorf("set up a watch cache: %w", err)
	}
	return classes, nil
}

// listing makes the reflector list before it watches, like package kube's caches: a streamed list decodes each object
// twice, and not every API server supports it.
type listing struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported disables streamed lists.
func (listing) IsWatchListSemanticsUnSupported() bool { return true }

func dropManagedFields(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return object, nil
}
