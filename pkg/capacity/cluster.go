package capacity

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	storageclient "k8s.io/client-go/kubernetes/typed/storage/v1"

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
	return kube.Delete(ctx, "CSIStorageCapacity", a.objects, o.Name, o.UID, o.ResourceVersion)
}

func (a apiServer) owner(ctx context.Context, by OwnedBy) (metav1.OwnerReference, error) {
	return a.owners.find(ctx, by)
}
