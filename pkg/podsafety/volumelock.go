package podsafety

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// volumeLock is the VolumeLock of a node, whose volumes no other node can attach
// (deploy/manifests/pod-safety-crd.yaml). One lock holds all volumes of a node, because the API server evaluates every
// lock for each VolumeAttachment.
type volumeLock struct {
	// node is also the name of the object.
	node string
	// object and version are the UID and resourceVersion, or "" if the object does not exist.
	object  types.UID
	version string
	// volumes maps the names of PVs to the pods that hold them.
	volumes map[string]holder
}

// holder is a pod that holds a volume.
type holder struct {
	namespace, name string
	uid             types.UID
}

func (h holder) podKey() string { return cache.NewObjectName(h.namespace, h.name).String() }

// known reports whether the pod can be read. The API server answers that a pod without a namespace does not exist, and
// without a UID, any pod of the name looks like another one.
func (h holder) known() bool { return h.namespace != "" && h.name != "" && h.uid != "" }

// lockClient reads and writes VolumeLocks, which only this package creates.
type lockClient interface {
	list(ctx context.Context) ([]volumeLock, error)
	// put creates a VolumeLock without a UID, and otherwise replaces the version that it was read as, and returns the
	// stored object.
	put(ctx context.Context, l volumeLock) (volumeLock, error)
	// delete deletes this version of the object, and succeeds if the object does not exist.
	delete(ctx context.Context, l volumeLock) error
}

const (
	lockGroup, lockVersion, lockResource = "csi-reclaimer.io", "v1alpha1", "volumelocks"
	lockKind                             = "VolumeLock"
)

type lockServer struct {
	locks   dynamic.ResourceInterface
	timeout time.Duration
}

func newLockClient(config *rest.Config) (lockClient, error) {
	own := rest.CopyConfig(config)
	if own.QPS == 0 {
		own.QPS = -1
	}
	client, err := dynamic.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("create a client for %s.%s: %w", lockResource, lockGroup, err)
	}
	return lockServer{client.Resource(schema.GroupVersionResource{Group: lockGroup, Version: lockVersion,
		Resource: lockResource}), apiTimeout}, nil
}

func (s lockServer) list(ctx context.Context) (locks []volumeLock, err error) {
	err = kube.EachPage(ctx, metav1.ListOptions{Limit: listPage}, listTimeout,
		func(ctx context.Context, o metav1.ListOptions) (string, error) {
			page, err := s.locks.List(ctx, o)
			if err != nil {
				return "", err
			}
			for i := range page.Items {
				locks = append(locks, lockOf(&page.Items[i]))
			}
			return page.GetContinue(), nil
		})
	if err != nil {
		return nil, fmt.Errorf("list VolumeLocks: %w", err)
	}
	return locks, nil
}

func lockOf(o *unstructured.Unstructured) volumeLock {
	l := volumeLock{node: o.GetName(), object: o.GetUID(), version: o.GetResourceVersion(), volumes: map[string]holder{}}
	volumes, _, _ := unstructured.NestedMap(o.Object, "spec", "volumes")
	for volume := range volumes {
		text := func(field string) string {
			s, _, _ := unstructured.NestedString(volumes, volume, field)
			return s
		}
		l.volumes[volume] = holder{text("namespace"), text("pod"), types.UID(text("uid"))}
	}
	return l
}

func (l volumeLock) unstructured() *unstructured.Unstructured {
	volumes := map[string]any{}
	for volume, by := range l.volumes {
		volumes[volume] = map[string]any{"namespace": by.namespace, "pod": by.name, "uid": string(by.uid)}
	}
	metadata := map[string]any{"name": l.node}
	if l.object != "" {
		metadata["uid"], metadata["resourceVersion"] = string(l.object), l.version
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": lockGroup + "/" + lockVersion, "kind": lockKind, "metadata": metadata,
		"spec": map[string]any{"volumes": volumes},
	}}
}

func (s lockServer) put(ctx context.Context, l volumeLock) (volumeLock, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var o *unstructured.Unstructured
	var err error
	if l.object == "" {
		o, err = s.locks.Create(ctx, l.unstructured(), metav1.CreateOptions{})
	} else {
		o, err = s.locks.Update(ctx, l.unstructured(), metav1.UpdateOptions{})
	}
	if err != nil {
		return volumeLock{}, fmt.Errorf("write the VolumeLock of node %q: %w", l.node, err)
	}
	return lockOf(o), nil
}

func (s lockServer) delete(ctx context.Context, l volumeLock) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.object, ResourceVersion: &l.version}}
	if err := s.locks.Delete(ctx, l.node, options); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the VolumeLock of node %q: %w", l.node, err)
	}
	return nil
}

func (l volumeLock) with(volumes map[string]holder) volumeLock {
	l.volumes = volumes
	return l
}
