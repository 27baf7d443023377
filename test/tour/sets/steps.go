//go:build unix

package sets

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
)

// snapshotFinalizer keeps a claim while a snapshot of its volume is taken (external-snapshotter).
const snapshotFinalizer = "snapshot.storage.kubernetes.io/pvc-as-source-protection"

// scaleWithoutPod deletes a pod of cache, and scales the set down before the pod is replaced: the StatefulSet
// controller creates no pod while one before it is not ready.
func (act *act) scaleWithoutPod(ctx context.Context) error {
	claim, err := act.claims().Get(ctx, cacheClaim, metav1.GetOptions{})
	if err != nil {
		return err
	}
	act.orphan = claim.UID
	act.t.Demo("pod cache-0 is not ready, so that no pod is created after it")
	if err := act.setReady(ctx, v1.ConditionFalse); err != nil {
		return err
	}
	if err := act.WaitSet(ctx, cacheSet, 1); err != nil {
		return err
	}
	act.t.User("deletes pod cache-1, and scales cache to 1")
	err = act.pods().Delete(ctx, cacheSet+"-1", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	if err != nil {
		return err
	}
	if err := act.ScaleSet(ctx, cacheSet, 1); err != nil {
		return err
	}
	if err := act.setReady(ctx, v1.ConditionTrue); err != nil {
		return err
	}
	return act.WaitSet(ctx, cacheSet, 1)
}

// setReady writes the readiness of pod cache-0 as its kubelet would.
func (act *act) setReady(ctx context.Context, ready v1.ConditionStatus) error {
	_, err := act.pods().Patch(ctx, cacheSet+"-0", types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, ready), metav1.PatchOptions{}, "status")
	return err
}

// scaleDownAndUp scales queue from 2 to 1, and to 2 again while the pod is terminating. The node does not answer in
// that time. A snapshot of the volume keeps the claim for a moment more, so that the StatefulSet controller has
// finished its own work when the claim goes.
func (act *act) scaleDownAndUp(ctx context.Context) error {
	act.t.Demo("takes a snapshot of the volume of queue-1: its claim is kept until that is done")
	if err := act.finalize(ctx, queueClaim, "finalizers"); err != nil {
		return err
	}
	if err := act.nodes.Silence(cluster.Node1); err != nil {
		return err
	}
	act.t.User("scales queue to 1")
	if err := act.ScaleSet(ctx, queueSet, 1); err != nil {
		return err
	}
	if err := cluster.Until(ctx, "pod queue-1 to be terminating", func(ctx context.Context) (bool, error) {
		pod, err := act.pods().Get(ctx, queueSet+"-1", metav1.GetOptions{})
		return err == nil && pod.DeletionTimestamp != nil, err
	}); err != nil {
		return err
	}
	act.t.API("pod queue-1 is terminating, and the owner of its claim")
	act.t.User("scales queue to 2 again")
	if err := act.ScaleSet(ctx, queueSet, 2); err != nil {
		return err
	}
	if err := act.nodes.Start(ctx, cluster.Node1); err != nil {
		return err
	}
	if err := cluster.Until(ctx, "pod queue-1 to be gone and its claim terminating",
		func(ctx context.Context) (bool, error) {
			_, err := act.pods().Get(ctx, queueSet+"-1", metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				return false, err
			}
			claim, err := act.claims().Get(ctx, queueClaim, metav1.GetOptions{})
			return err == nil && claim.DeletionTimestamp != nil, err
		}); err != nil {
		return err
	}
	act.t.API("pod queue-1 is gone, and its claim is terminating")
	return act.finalize(ctx, queueClaim, "$deleteFromPrimitiveList/finalizers")
}

// finalize adds the finalizer of the snapshot to a claim, or removes it. Other finalizers may change at the same time.
func (act *act) finalize(ctx context.Context, claim, directive string) error {
	_, err := act.claims().Patch(ctx, claim, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"metadata":{%q:[%q]}}`, directive, snapshotFinalizer), metav1.PatchOptions{})
	return err
}

// barrier has kube-controller-manager do the awaited work for a separate set. It has then done its pending work on the
// other sets.
func (act *act) barrier(ctx context.Context) error {
	const name = "other"
	if err := act.waitGone(ctx, queueClaim); err != nil {
		return err
	}
	act.t.API("claim " + queueClaim + " is gone")
	if err := act.MakeSet(ctx, name, 1, whenScaled(name)); err != nil {
		return err
	}
	if err := act.WaitSet(ctx, name, 1); err != nil {
		return err
	}
	if err := act.ScaleSet(ctx, name, 0); err != nil {
		return err
	}
	if err := act.waitGone(ctx, "data-other-0"); err != nil {
		return err
	}
	act.t.Demo("another StatefulSet was made and scaled to 0 meanwhile, and its claim is gone with its pod")
	return nil
}

// end removes the sets with their volumes.
func (act *act) end(ctx context.Context) error {
	all := metav1.ListOptions{}
	if err := errors.Join(act.Sets().DeleteCollection(ctx, metav1.DeleteOptions{}, all),
		act.claims().DeleteCollection(ctx, metav1.DeleteOptions{}, all)); err != nil {
		return err
	}
	return cluster.Until(ctx, "all volumes of StatefulSets to be gone", func(ctx context.Context) (bool, error) {
		pvs, err := act.Client.CoreV1().PersistentVolumes().List(ctx, all)
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(pvs.Items, func(pv v1.PersistentVolume) bool { return pv.Name != act.Retained }), nil
	})
}

func (act *act) waitGone(ctx context.Context, claim string) error {
	return cluster.Until(ctx, "claim "+claim+" to be gone", func(ctx context.Context) (bool, error) {
		_, err := act.claims().Get(ctx, claim, metav1.GetOptions{})
		return apierrors.IsNotFound(err), ignoreNotFound(err)
	})
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// write writes into the volume of a claim, as its pod would.
func (act *act) write(ctx context.Context, claim string) error {
	var handle string
	if err := cluster.Until(ctx, "claim "+claim+" to be bound", func(ctx context.Context) (_ bool, err error) {
		handle, err = act.handle(ctx, claim)
		return handle != "", err
	}); err != nil {
		return err
	}
	act.handles[claim] = handle
	return os.WriteFile(filepath.Join(act.Driver.VolumesDir(), handle, dataFile), []byte(claim+"\n"), 0o600)
}

// handle returns the volume of a claim, empty for none.
func (act *act) handle(ctx context.Context, name string) (string, error) {
	claim, err := act.claims().Get(ctx, name, metav1.GetOptions{})
	if err != nil || claim.Spec.VolumeName == "" {
		return "", ignoreNotFound(err)
	}
	pv, err := act.Client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return pv.Spec.CSI.VolumeHandle, nil
}

// has reports whether a path is below the folder of a volume.
func (act *act) has(handle string, path ...string) (bool, error) {
	_, err := os.Stat(filepath.Join(append([]string{act.Driver.VolumesDir(), handle}, path...)...))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (act *act) pods() typedv1.PodInterface { return act.Client.CoreV1().Pods(act.Maker.Namespace) }

func (act *act) claims() typedv1.PersistentVolumeClaimInterface {
	return act.Client.CoreV1().PersistentVolumeClaims(act.Maker.Namespace)
}
