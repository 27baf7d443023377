package intree

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// cluster has the API calls of a session. Every read is live: it goes to the server, and its result is at least as new
// as the request; writes return the resulting PV.
type cluster interface {
	// readPV returns the PV of that name, nil if it does not exist.
	readPV(ctx context.Context, name string) (*v1.PersistentVolume, error)
	readClaim(ctx context.Context, of volume.ClaimRef) (pvclaim.Result, error)
	// countAttachments returns the number of VolumeAttachments that name one of these PVs.
	countAttachments(ctx context.Context, pvs []string) (int, error)
	// patchFinalizers changes the finalizers of a PV, and with a ResourceVersion fails if the PV has changed since it was
	// read.
	patchFinalizers(ctx context.Context, pv intree.PV, add, remove []string) (*v1.PersistentVolume, error)
	// createPV creates a PV, or returns kube.ErrChanged if a PV of that name exists.
	createPV(ctx context.Context, pv *v1.PersistentVolume) (*v1.PersistentVolume, error)
	// setPolicy sets the policy of a PV, and fails if the PV has changed since it was read.
	setPolicy(ctx context.Context, pv intree.PV, policy v1.PersistentVolumeReclaimPolicy) (*v1.PersistentVolume, error)
	// deletePV deletes a PV, and fails if the PV has changed since it was read.
	deletePV(ctx context.Context, pv intree.PV) error
}

// apiServer is the cluster behind real clients.
type apiServer struct {
	clients kube.Clients
}

func (a apiServer) readPV(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	return kube.Read(ctx, kube.PV, "", name, a.clients.Core.PersistentVolumes().Get)
}

func (a apiServer) readClaim(ctx context.Context, of volume.ClaimRef) (pvclaim.Result, error) {
	o, err := kube.Read(ctx, kube.Claim, of.Namespace, of.Name,
		a.clients.Core.PersistentVolumeClaims(of.Namespace).Get)
	if err != nil {
		return pvclaim.Result{}, err
	}
	return pvclaim.ResultOf(of, o), nil
}

// countAttachments lists page by page: only in-tree volumes that were migrated at some time can be attached this way,
// so a watch would not pay off.
func (a apiServer) countAttachments(ctx context.Context, pvs []string) (count int, err error) {
	err = kube.Each(ctx, "VolumeAttachments", metav1.ListOptions{}, a.clients.Storage.VolumeAttachments().List,
		func(o *storagev1.VolumeAttachment) {
			if name := o.Spec.Source.PersistentVolumeName; name != nil && slices.Contains(pvs, *name) {
				count++
			}
		})
	if err != nil {
		return 0, err
	}
	return count, nil
}

func (a apiServer) patchFinalizers(ctx context.Context, pv intree.PV, add, remove []string) (*v1.PersistentVolume,
	error) {
	after, err := kube.PatchFinalizers(ctx, a.clients.Core.PersistentVolumes(), kube.FinalizerPatch{
		Name: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion, Add: add, Remove: remove,
		FieldManager: intree.FieldManager,
	})
	if err != nil {
		return nil, err
	}
	return after, nil
}

func (a apiServer) createPV(ctx context.Context, pv *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	o, err := a.clients.Core.PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{FieldManager: intree.FieldManager})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil, fmt.Errorf("create PV %q: %w: %w", pv.Name, kube.ErrChanged, err)
	case err != nil:
		return nil, fmt.Errorf("create PV %q: %w", pv.Name, err)
	}
	return o, nil
}

func (a apiServer) setPolicy(ctx context.Context, pv intree.PV,
	policy v1.PersistentVolumeReclaimPolicy) (*v1.PersistentVolume, error) {
	return kube.PatchPolicy(ctx, a.clients.Core.PersistentVolumes(), kube.PolicyPatch{
		Name: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion, Policy: policy,
		FieldManager: intree.FieldManager,
	})
}

func (a apiServer) deletePV(ctx context.Context, pv intree.PV) error {
	return kube.Delete(ctx, "PV", a.clients.Core.PersistentVolumes(), pv.Name, pv.UID, pv.ResourceVersion)
}
