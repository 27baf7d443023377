package podsafety

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
)

// volumeLock is a VolumeLock: its volume is attached to no node but its own, while it exists
// (deploy/manifests/pod-safety-crd.yaml).
type volumeLock struct {
	name string
	// object is the UID of the VolumeLock, empty where it is not known.
	object       types.UID
	volume, node string
	// pod is what holds the volume.
	namespace, pod string
	holder         types.UID
}

// lockName returns the name of the lock of a volume for a pod. It is derived, so that a lock is never created twice.
func lockName(holder types.UID, volume string) string {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(volume)) // it never fails
	return fmt.Sprintf("%s-%016x", holder, hash.Sum64())
}

func (l volumeLock) podKey() string { return cache.NewObjectName(l.namespace, l.pod).String() }

// lockClient reads and writes VolumeLocks. All of them are of this package.
type lockClient interface {
	list(ctx context.Context) ([]volumeLock, error)
	// create succeeds where there is one of the name.
	create(ctx context.Context, l volumeLock) error
	// delete succeeds where there is none.
	delete(ctx context.Context, l volumeLock) error
}

const (
	lockGroup, lockVersion, lockResource = "csi-reclaimer.io", "v1alpha1", "volumelocks"
	lockKind                             = "VolumeLock"
)

// lockServer is the lockClient behind a real client.
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
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(o.Object, append([]string{"spec"}, fields...)...)
		return s
	}
	return volumeLock{
		name: o.GetName(), object: o.GetUID(), volume: text("persistentVolumeName"), node: text("nodeName"),
		namespace: text("pod", "namespace"), pod: text("pod", "name"), holder: types.UID(text("pod", "uid")),
	}
}

func (l volumeLock) unstructured() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": lockGroup + "/" + lockVersion, "kind": lockKind,
		"metadata": map[string]any{"name": l.name},
		"spec": map[string]any{
			"persistentVolumeName": l.volume, "nodeName": l.node,
			"pod": map[string]any{"namespace": l.namespace, "name": l.pod, "uid": string(l.holder)},
		},
	}}
}

func (s lockServer) create(ctx context.Context, l volumeLock) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, err := s.locks.Create(ctx, l.unstructured(), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create VolumeLock of volume %q: %w", l.volume, err)
	}
	return nil
}

func (s lockServer) delete(ctx context.Context, l volumeLock) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var options metav1.DeleteOptions
	if l.object != "" {
		options.Preconditions = metav1.NewUIDPreconditions(string(l.object))
	}
	if err := s.locks.Delete(ctx, l.name, options); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete VolumeLock of volume %q: %w", l.volume, err)
	}
	return nil
}
