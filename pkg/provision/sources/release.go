package sources

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// ReleaseSnapshots removes request.SnapshotFinalizer from all VolumeSnapshots of the driver, and from terminating ones
// whose content is gone, and returns the number of changed snapshots. It is for the removal of csi-reclaimer, when no
// program provisions for the driver, so it does not check for restores in progress, except by keep: a volume that stays
// in flight needs its source. The error names the snapshots that could not be read or written; all others are done.
func ReleaseSnapshots(ctx context.Context, driver string, snapshots SnapshotProtector,
	keep func(volume.SourceRef) bool) (released int, err error) {
	var found []request.Snapshot
	if err := snapshots.EachProtected(ctx, func(o request.Snapshot) { found = append(found, o) }); err != nil {
		return 0, err
	}
	var errs []error
	for _, o := range found {
		name := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
		now, err := snapshots.Read(ctx, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if remove, _ := decideSweep(sweepFacts{Snapshot: now, UID: o.UID, Driver: driver}); !remove ||
			keep(volume.SourceRef{Kind: volume.SourceSnapshot, Namespace: o.Namespace, Name: o.Name, UID: o.UID}) {
			continue
		}
		if err := snapshots.RemoveFinalizer(ctx, name, o.UID); err != nil {
			errs = append(errs, err)
			continue
		}
		released++
	}
	return released, errors.Join(errs...)
}

// ReleaseClonedClaims removes request.CloningFinalizer from all claims whose volume is the driver's, and returns the
// number of changed claims. Like ReleaseSnapshots it is for the removal of csi-reclaimer, and asks keep. It does not
// change a claim whose PV does not exist, because its driver is unknown. The error names the claims that could not be
// read or written; all others are done.
func ReleaseClonedClaims(ctx context.Context, core corev1.CoreV1Interface, driver string,
	keep func(volume.SourceRef) bool) (released int, err error) {
	var cloned []v1.PersistentVolumeClaim
	var errs []error
	err = kube.EachOf(ctx, core.PersistentVolumeClaims(metav1.NamespaceAll).List, metav1.ListOptions{},
		func(claim *v1.PersistentVolumeClaim) {
			if slices.Contains(claim.Finalizers, request.CloningFinalizer) && claim.Spec.VolumeName != "" {
				cloned = append(cloned, *claim)
			}
		})
	if err != nil {
		errs = append(errs, fmt.Errorf("list claims: %w", err))
	}
	for i := range cloned {
		done, err := releaseClonedClaim(ctx, core, driver, keep, &cloned[i])
		if done {
			released++
		}
		errs = append(errs, err)
	}
	return released, errors.Join(errs...)
}

func releaseClonedClaim(ctx context.Context, core corev1.CoreV1Interface, driver string,
	keep func(volume.SourceRef) bool, claim *v1.PersistentVolumeClaim) (done bool, err error) {
	pv, err := kube.Read(ctx, apiTimeout, kube.PV, "", claim.Spec.VolumeName, core.PersistentVolumes().Get)
	if err != nil || pv == nil || volume.Of(pv).Driver != driver {
		return false, err
	}
	if keep(volume.SourceRef{Kind: volume.SourceClaim, Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}) {
		return false, nil
	}
	err = kube.ChangeClaimFinalizers(ctx, core.PersistentVolumeClaims(claim.Namespace), kube.FinalizerPatch{
		Name: claim.Name, UID: claim.UID, Remove: []string{request.CloningFinalizer}})
	if errors.Is(err, kube.ErrGone) {
		return false, nil
	}
	return err == nil, err
}
