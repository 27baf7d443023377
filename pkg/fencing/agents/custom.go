package agents

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// custom is the client of one kind of custom resources.
type custom struct {
	dynamic.ResourceInterface
	resource schema.GroupResource
	kind     string
}

// custom returns the client of a kind, within the namespace unless the kind is cluster-scoped.
func (a *Runner) custom(apiVersion, kind, namespace string) (custom, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return custom{}, err
	}
	mapping, err := a.mapping(gv.WithKind(kind))
	if err != nil {
		return custom{}, fmt.Errorf("find kind %s of %s: %w", kind, apiVersion, err)
	}
	c := custom{a.dynamic.Resource(mapping.Resource), mapping.Resource.GroupResource(), kind}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		c.ResourceInterface = a.dynamic.Resource(mapping.Resource).Namespace(namespace)
	}
	return c, nil
}

// discoveryGap is the minimum interval between two discoveries, for which the agents of all fences wait.
const discoveryGap = 30 * time.Second

// mapping returns the resource of a kind. The mapper knows the kinds of its first discovery. If it lacks the kind, it
// discovers again, because an operator may have been installed since.
func (a *Runner) mapping(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if mapper, ok := a.mapper.(meta.ResettableRESTMapper); ok && meta.IsNoMatchError(err) && a.discoveries.TryAccept() {
		mapper.Reset()
		return a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	return mapping, err
}

// object reads an object, and returns it with the client of its kind. The object is nil with an error, and without an
// error if it does not exist.
func (a *Runner) object(ctx context.Context, apiVersion, kind, namespace, name string) (custom,
	*unstructured.Unstructured, error) {
	c, err := a.custom(apiVersion, kind, namespace)
	if err != nil {
		return custom{}, nil, err
	}
	o, err := c.Get(ctx, name, metav1.GetOptions{})
	switch {
	case kube.Absent(err, c.resource, name):
		return c, nil, nil
	case err != nil:
		return custom{}, nil, fmt.Errorf("read %s %s: %w", kind, name, err)
	}
	return c, o, nil
}

func newObject(ask fencing.Ask, apiVersion, kind, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec}}
	o.SetName(name)
	o.SetLabels(labelsOf(ask))
	o.SetAnnotations(annotationsOf(ask))
	o.SetOwnerReferences([]metav1.OwnerReference{owner(ask)})
	return o
}

// text returns the string at a path in an object, or "".
func text(o *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}
