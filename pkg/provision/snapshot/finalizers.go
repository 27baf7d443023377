package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
)

// updateTries limits the updates of one VolumeSnapshot that conflict with other writers.
const updateTries = 10

// AddFinalizer adds request.SnapshotFinalizer to the VolumeSnapshot with this name and UID, unless it has the
// finalizer. Errors: kube.ErrGone if no snapshot with that UID exists; kube.ErrChanged if the snapshot is being
// deleted, so that no finalizer can be added; the API server's Forbidden if the permission to update is missing.
//
// It updates the whole object like the stock provisioner, whose RBAC rules do not allow patches.
func (r *Reader) AddFinalizer(ctx context.Context, name types.NamespacedName, uid types.UID) error {
	err := r.update(ctx, name, uid, func(finalizers []string, deleting bool) ([]string, error) {
		switch {
		case slices.Contains(finalizers, request.SnapshotFinalizer):
			return finalizers, nil
		case deleting:
			return nil, fmt.Errorf("%w: it is being deleted", kube.ErrChanged)
		}
		return append(finalizers, request.SnapshotFinalizer), nil
	})
	if err != nil {
		return fmt.Errorf("add finalizer to VolumeSnapshot %q: %w", name, err)
	}
	return nil
}

// RemoveFinalizer removes request.SnapshotFinalizer from the VolumeSnapshot with this name and UID. It succeeds if the
// snapshot or the finalizer does not exist. Other errors are the same as for AddFinalizer.
func (r *Reader) RemoveFinalizer(ctx context.Context, name types.NamespacedName, uid types.UID) error {
	err := r.update(ctx, name, uid, func(finalizers []string, _ bool) ([]string, error) {
		return slices.DeleteFunc(finalizers, func(f string) bool { return f == request.SnapshotFinalizer }), nil
	})
	if err != nil && !errors.Is(err, kube.ErrGone) {
		return fmt.Errorf("remove finalizer from VolumeSnapshot %q: %w", name, err)
	}
	return nil
}

// update changes the finalizers of a VolumeSnapshot and keeps all other fields. The object is not decoded into Go
// types, which would lose fields that they do not know.
func (r *Reader) update(ctx context.Context, name types.NamespacedName, uid types.UID,
	change func(finalizers []string, deleting bool) ([]string, error)) error {
	client := r.objects.Resource(snapshotv1.SchemeGroupVersion.WithResource(snapshotResource)).Namespace(name.Namespace)
	for range updateTries {
		o, err := client.Get(ctx, name.Name, metav1.GetOptions{})
		switch {
		case absent(err, snapshotResource, name.Name):
			return fmt.Errorf("%w: %w", kube.ErrGone, err)
		case err != nil:
			return meaning(err)
		case o.GetUID() != uid:
			return fmt.Errorf("%w: another object has its name", kube.ErrGone)
		}
		before := o.GetFinalizers()
		after, err := change(slices.Clone(before), o.GetDeletionTimestamp() != nil)
		if err != nil || slices.Equal(before, after) {
			return err
		}
		o.SetFinalizers(after)
		o, err = client.Update(ctx, o, metav1.UpdateOptions{}) // fails if the object has changed since the read
		switch {
		case apierrors.IsConflict(err):
			continue
		case absent(err, snapshotResource, name.Name):
			return fmt.Errorf("%w: %w", kube.ErrGone, err)
		case err != nil:
			return meaning(err)
		case protected(o) != slices.Contains(after, request.SnapshotFinalizer):
			return fmt.Errorf("%w: it has %q", kube.ErrUndone, o.GetFinalizers())
		}
		return nil
	}
	return fmt.Errorf("%w: %d times while its finalizers were to be updated", kube.ErrChanged, updateTries)
}

// EachProtected calls visit for every VolumeSnapshot of the cluster with request.SnapshotFinalizer. Only fields from
// metadata are set; [Reader.Read] reads the rest. An error means that some were not visited; with ErrNotInstalled the
// cluster serves none.
func (r *Reader) EachProtected(ctx context.Context, visit func(request.Snapshot)) error {
	client := r.metadata.Resource(snapshotv1.SchemeGroupVersion.WithResource(snapshotResource))
	err := kube.Each(ctx, "VolumeSnapshots", metav1.ListOptions{}, client.List, func(o *metav1.PartialObjectMetadata) {
		if protected(o) {
			visit(request.Snapshot{Namespace: o.Namespace, Name: o.Name, UID: o.UID, Deleting: o.DeletionTimestamp != nil,
				Protected: true})
		}
	})
	return meaning(err)
}

func protected(o metav1.Object) bool {
	return slices.Contains(o.GetFinalizers(), request.SnapshotFinalizer)
}
