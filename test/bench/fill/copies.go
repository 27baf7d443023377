package fill

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Object is an object of type T that can be copied.
type Object[T any] interface {
	runtime.Object
	DeepCopy() T
	SetUID(types.UID)
	SetResourceVersion(string)
}

// Copies writes n copies of an object that went through the API server, so that they are as large as real ones. change
// makes copy i another object, and returns its key in etcd: /registry, the resource, the namespace if any, and the
// name. The object must have its kind and the version in which it is stored.
func Copies[T Object[T]](ctx context.Context, c *Cluster, n int, template T,
	change func(i int, o T) (key string)) error {
	err := each(ctx, n, func(ctx context.Context, i int) error {
		own := template.DeepCopy()
		own.SetUID(UIDOf(i))
		own.SetResourceVersion("")
		return c.putObject(ctx, change(i, own), own)
	})
	if err != nil {
		return fmt.Errorf("fill the cluster with %d copies: %w", n, err)
	}
	return nil
}

// UIDOf returns the UID of copy i. Copies of different objects share it.
func UIDOf(i int) types.UID { return types.UID(fmt.Sprintf("%08x-5b1c-4e1f-9d5e-7a3f00c0ffee", i)) }
