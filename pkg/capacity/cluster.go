package capacity

import (
	"context"
	"errors"
	"fmt"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	storageclient "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// cluster is the part of the API server that the Controller uses, replaced in tests.
type cluster interface {
	create(ctx context.Context, o *storagev1.CSIStorageCapacity) (*storagev1.CSIStorageCapacity, error)
	// patch and remove are bound to the UID and resourceVersion that were read. They return kube.ErrChanged if the
	// object differs from that, and kube.ErrGone if it does not exist.
	patch(ctx context.Context, name string, body []byte) (*storagev1.CSIStorageCapacity, error)
	remove(ctx context.Context, o Object) error
	// owner looks up the owner of the objects in the cluster, so that it can become their owner reference.
	owner(ctx context.Context, by OwnedBy) (metav1.OwnerReference, error)
}

type apiServer struct {
	objects storageclient.CSIStorageCapacityInterface
	owners  owners
}

func (a apiServer) create(ctx context.Context, o *storagev1.CSIStorageCapacity) (*storagev1.CSIStorageCapacity, error) {
	stored, err := a.objects.Create(ctx, o, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create the CSIStorageCapacity of class %q: %w", o.StorageClassName, err)
	}
	return stored, nil
}

func (a apiServer) patch(ctx context.Context, name string, body []byte) (*storagev1.CSIStorageCapacity, error) {
	stored, err := a.objects.Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("patch CSIStorageCapacity %q: %w", name, kube.Meaning(err, name))
	}
	return stored, nil
}

func (a apiServer) remove(ctx context.Context, o Object) error {
	only := metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion}
	if err := a.objects.Delete(ctx, o.Name, metav1.DeleteOptions{Preconditions: &only}); err != nil {
		return fmt.Errorf("delete CSIStorageCapacity %q: %w", o.Name, kube.Meaning(err, o.Name))
	}
	return nil
}

func (a apiServer) owner(ctx context.Context, by OwnedBy) (metav1.OwnerReference, error) {
	return a.owners.find(ctx, by)
}

var (
	// errUncontrolled: the chain of controllers ends below the requested level.
	errUncontrolled = errors.New("no controller owns it")
	// errReplaced: the name now belongs to an object with another UID.
	errReplaced = errors.New("another object has the owner's name")
	// errNoKind: the API server does not serve the kind in the owner reference.
	errNoKind = errors.New("there is no such kind")
)

// owners looks up the controllers of pods in one namespace.
type owners struct {
	namespace string
	objects   metadata.Interface
	kinds     discovery.ServerResourcesInterface
}

func newOwners(config *rest.Config, namespace string) (owners, error) {
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return owners{}, fmt.Errorf("create a client for owners: %w", err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return owners{}, fmt.Errorf("create a client for the kinds of owners: %w", err)
	}
	return owners{namespace, objects, kinds}, nil
}

// find follows controller references upward from the pod, without a read of the owner itself, so the owner's kind
// needs no permission: for a Deployment, find reads only the pod and its ReplicaSet.
func (o owners) find(ctx context.Context, by OwnedBy) (metav1.OwnerReference, error) {
	pod, err := o.read(ctx, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, by.Pod)
	if err != nil {
		return metav1.OwnerReference{}, err
	}
	if by.Level == 0 {
		return reference(metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}), nil
	}
	owner, err := controllerOf(pod)
	for range by.Level - 1 {
		if err != nil {
			break
		}
		owner, err = o.above(ctx, owner)
	}
	return owner, err
}

// above returns the controller of an owner, after checking the owner's UID.
func (o owners) above(ctx context.Context, owner metav1.OwnerReference) (metav1.OwnerReference, error) {
	resource, err := o.resource(owner)
	if err != nil {
		return owner, err
	}
	object, err := o.read(ctx, resource, owner.Name)
	if err != nil {
		return owner, err
	}
	if object.UID != owner.UID {
		return owner, fmt.Errorf("read %s %q: %w", owner.Kind, owner.Name, errReplaced)
	}
	return controllerOf(object)
}

func (o owners) read(ctx context.Context, resource schema.GroupVersionResource,
	name string) (*metav1.PartialObjectMetadata, error) {
	object, err := o.objects.Resource(resource).Namespace(o.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read %s %q: %w", resource.Resource, name, err)
	}
	return object, nil
}

func controllerOf(object *metav1.PartialObjectMetadata) (metav1.OwnerReference, error) {
	controller := metav1.GetControllerOfNoCopy(object)
	if controller == nil {
		return metav1.OwnerReference{}, fmt.Errorf("find the owner of %s: %w", object.Name, errUncontrolled)
	}
	return reference(*controller), nil
}

// reference returns the owner as a controller reference, as external-provisioner writes it.
func reference(of metav1.OwnerReference) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: of.APIVersion, Kind: of.Kind, Name: of.Name, UID: of.UID, Controller: &yes}
}

// resource returns the API resource of an owner's kind by discovery.
func (o owners) resource(owner metav1.OwnerReference) (schema.GroupVersionResource, error) {
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("read the owner %s %q: %w", owner.Kind, owner.Name, err)
	}
	list, err := o.kinds.ServerResourcesForGroupVersion(owner.APIVersion)
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("find the kind %s of %s: %w", owner.Kind, owner.APIVersion, err)
	}
	for _, r := range list.APIResources {
		if r.Kind == owner.Kind && !strings.Contains(r.Name, "/") { // a name with a slash is a subresource
			return version.WithResource(r.Name), nil
		}
	}
	return schema.GroupVersionResource{}, fmt.Errorf("find the kind %s of %s: %w", owner.Kind, owner.APIVersion, errNoKind)
}
