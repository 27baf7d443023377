package builder

import (
	"context"
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

// attributes reads a VolumeAttributesClass, nil if it does not exist. Only for a missing class, and each time anew, it
// asks whether the API server serves the kind, because the cluster may be upgraded in between.
func (b *Builder) attributes(ctx context.Context, name string) (_ *storagev1.VolumeAttributesClass, unserved bool,
	err error) {
	class, err := b.client.StorageV1().VolumeAttributesClasses().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		return class, false, nil
	case !apierrors.IsNotFound(err):
		return nil, false, fmt.Errorf("read VolumeAttributesClass %q: %w", name, err)
	}
	served, err := b.ServesAttributesClasses(ctx)
	return nil, !served, err
}

// ServesAttributesClasses asks the API server's discovery whether it serves VolumeAttributesClasses in
// storage.k8s.io/v1, as Kubernetes 1.34 and newer do. Every authenticated user may read the discovery.
func (b *Builder) ServesAttributesClasses(ctx context.Context) (bool, error) {
	list, err := discovery.ToServerResourcesInterfaceWithContext(b.client.Discovery()).
		ServerResourcesForGroupVersionWithContext(ctx, storagev1.SchemeGroupVersion.String())
	if err != nil {
		return false, fmt.Errorf("ask whether VolumeAttributesClasses are served: %w", err)
	}
	return slices.ContainsFunc(list.APIResources,
		func(r metav1.APIResource) bool { return r.Name == "volumeattributesclasses" }), nil
}
