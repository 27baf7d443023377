// Package requests sends requests of tests to an API server. A request that fails ends its test.
package requests

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is the objects of one kind, in one namespace unless they are cluster-scoped.
type Kind[T any] struct {
	t    testing.TB
	ctx  context.Context
	api  typed[T]
	list func(context.Context, metav1.ListOptions) (runtime.Object, error)
}

// typed is a typed client of a kind, without its lists.
type typed[T any] interface {
	Create(ctx context.Context, object *T, options metav1.CreateOptions) (*T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
	Get(ctx context.Context, name string, options metav1.GetOptions) (*T, error)
	Patch(ctx context.Context, name string, how types.PatchType, patch []byte, options metav1.PatchOptions,
		subresources ...string) (*T, error)
	Update(ctx context.Context, object *T, options metav1.UpdateOptions) (*T, error)
}

// Client is a typed client of a kind.
type Client[T any, L runtime.Object] interface {
	typed[T]
	List(ctx context.Context, options metav1.ListOptions) (L, error)
}

// Of returns the kind of a client, for a test whose requests end with the context.
func Of[T any, L runtime.Object](ctx context.Context, t testing.TB, client Client[T, L]) Kind[T] {
	return Kind[T]{t: t, ctx: ctx, api: client,
		list: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, options)
		}}
}

func (k Kind[T]) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

// Create creates an object, and returns its stored form.
func (k Kind[T]) Create(object *T) *T {
	k.t.Helper()
	stored, err := k.api.Create(k.ctx, object, metav1.CreateOptions{})
	k.must(err)
	return stored
}

// cleanupTimeout bounds a deletion at the end of a test.
const cleanupTimeout = 2 * time.Minute

// CreateForTest creates an object that is deleted at the end of the test, if it is there by then.
func (k Kind[T]) CreateForTest(object *T) *T {
	k.t.Helper()
	stored := k.Create(object)
	about, err := meta.Accessor(stored)
	k.must(err)
	k.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), cleanupTimeout)
		defer cancel()
		err := k.api.Delete(ctx, about.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			k.t.Errorf("clean up: %v", err)
		}
	})
	return stored
}

// DryRun creates an object in a dry run, which may fail.
func (k Kind[T]) DryRun(object *T) (*T, error) {
	return k.api.Create(k.ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// Update replaces an object, bound to its resourceVersion.
func (k Kind[T]) Update(object *T) *T {
	k.t.Helper()
	stored, err := k.api.Update(k.ctx, object, metav1.UpdateOptions{})
	k.must(err)
	return stored
}

// Get returns the object of a name.
func (k Kind[T]) Get(name string) *T {
	k.t.Helper()
	object, err := k.api.Get(k.ctx, name, metav1.GetOptions{})
	k.must(err)
	return object
}

// Find returns the object of a name, nil for none.
func (k Kind[T]) Find(name string) *T {
	k.t.Helper()
	object, err := k.api.Get(k.ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	k.must(err)
	return object
}

// List returns all objects, or those with a label.
func (k Kind[T]) List(selector ...string) (all []*T) {
	k.t.Helper()
	options := metav1.ListOptions{}
	for _, labels := range selector {
		options.LabelSelector = labels
	}
	list, err := k.list(k.ctx, options)
	k.must(err)
	k.must(meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := any(item).(*T)
		if !ok {
			return fmt.Errorf("a list of %T has a %T", object, item) // not to take it for an empty list
		}
		all = append(all, object)
		return nil
	}))
	return all
}

// Merge changes an object, or a subresource, by a JSON merge patch.
func (k Kind[T]) Merge(name, patch string, subresource ...string) *T {
	k.t.Helper()
	stored, err := k.TryMerge(name, patch, subresource...)
	k.must(err)
	return stored
}

// TryMerge is Merge, and returns the error.
func (k Kind[T]) TryMerge(name, patch string, subresource ...string) (*T, error) {
	return k.api.Patch(k.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...)
}

// TryPatch is Patch, and returns the error.
func (k Kind[T]) TryPatch(name, patch string, subresource ...string) (*T, error) {
	return k.api.Patch(k.ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...)
}

// Patch changes an object, or a subresource, by a strategic merge patch.
func (k Kind[T]) Patch(name, patch string, subresource ...string) *T {
	k.t.Helper()
	stored, err := k.TryPatch(name, patch, subresource...)
	k.must(err)
	return stored
}

// Annotate sets an annotation of an object, or removes it if the value is empty.
func (k Kind[T]) Annotate(name, key, value string) *T {
	k.t.Helper()
	return k.Merge(name, Annotation(key, value))
}

// Label sets labels of an object, in one request, and removes those whose value is empty.
func (k Kind[T]) Label(name string, labels map[string]string) *T {
	k.t.Helper()
	return k.Merge(name, values("labels", labels))
}

// SetFinalizers replaces the finalizers of an object.
func (k Kind[T]) SetFinalizers(name string, finalizers ...string) *T {
	k.t.Helper()
	return k.Merge(name, metadata("finalizers", finalizers))
}

// Delete begins the deletion of an object.
func (k Kind[T]) Delete(name string, how ...metav1.DeleteOptions) {
	k.t.Helper()
	k.must(k.TryDelete(name, how...))
}

// TryDelete is Delete, and returns the error.
func (k Kind[T]) TryDelete(name string, how ...metav1.DeleteOptions) error {
	options := metav1.DeleteOptions{}
	for _, with := range how {
		options = with
	}
	return k.api.Delete(k.ctx, name, options)
}

// Annotation is a merge patch that sets an annotation, or removes it if the value is empty.
func Annotation(key, value string) string {
	return values("annotations", map[string]string{key: value})
}

func values(field string, values map[string]string) string {
	patch := map[string]any{}
	for key, value := range values {
		if patch[key] = value; value == "" {
			patch[key] = nil
		}
	}
	return metadata(field, patch)
}

// metadata is a merge patch of one field of the metadata.
func metadata(field string, value any) string {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{field: value}})
	if err != nil {
		panic(err) // strings alone
	}
	return string(patch)
}
