package reclaim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// ErrFinalizerRestored reports that an admission policy or webhook adds the finalizer again in the same write that
// removes it.
var ErrFinalizerRestored = errors.New("finalizer restored")

// cluster makes the calls to the API server that a decision needs. Every read is live: it reaches the API server, and
// its result is at least as new as the request.
type cluster interface {
	// readPV returns the PV with this name; found is false if it does not exist.
	readPV(ctx context.Context, name string) (pv volume.PV, found bool, err error)
	// readClaim returns the facts about the claim, except for facts.Read, which the caller sets.
	readClaim(ctx context.Context, of volume.ClaimRef) (claim pvclaim.Result, err error)
	// readSecret returns the content of the Secret; found is false if it does not exist.
	readSecret(ctx context.Context, ref volume.SecretRef) (data map[string]string, found bool, err error)
	// readClass returns the StorageClass, nil if it does not exist.
	readClass(ctx context.Context, name string) (*storagev1.StorageClass, error)
	// listAttachments counts the VolumeAttachments of each PV.
	listAttachments(ctx context.Context, limit int64) (page[map[string]int], error)
	listPVs(ctx context.Context, limit int64) (page[[]volume.PV], error)
	// eachPV visits all PVs.
	eachPV(ctx context.Context, visit func(volume.PV)) error
	// listNodes returns the names of the nodes that have the topology segments of this one.
	listNodes(ctx context.Context) (names []string, err error)
	// patchFinalizers changes the finalizers of the PV and returns the resulting PV. With bound, the write fails unless
	// the PV still has the resourceVersion that was read.
	patchFinalizers(ctx context.Context, pv volume.PV, add, drop []string, bound bool) (after volume.PV, err error)
	// deletePV sends the DELETE of the PV.
	deletePV(ctx context.Context, pv volume.PV) error
	// readBrake returns the UID of the Lease, empty if it does not exist, and whether it has the brake's annotation.
	// createBrake creates it without, and writeBrake adds the annotation, with the reason, and returns the Lease's UID.
	readBrake(ctx context.Context, lease types.NamespacedName) (uid types.UID, on bool, err error)
	createBrake(ctx context.Context, lease types.NamespacedName) error
	writeBrake(ctx context.Context, lease types.NamespacedName, why string) (uid types.UID, err error)
}

var leaseKind = kube.Kind{Resource: coordinationv1.Resource("leases"), Word: "Lease"}

// apiServer implements cluster with real clients.
type apiServer struct {
	clients kube.Clients
	// background is for writes that no deletion waits for, with rate limits of its own.
	background kube.Clients
	// node is the node whose volumes this process handles, nil for the whole cluster.
	node *volume.Node
}

func (a apiServer) readPV(ctx context.Context, name string) (volume.PV, bool, error) {
	return kube.Get(ctx, kube.PV, "", name, a.clients.Core.PersistentVolumes().Get,
		func(o *v1.PersistentVolume) volume.PV { return volume.At(a.node, o) })
}

func (a apiServer) readClaim(ctx context.Context, of volume.ClaimRef) (pvclaim.Result, error) {
	o, err := kube.Read(ctx, kube.Claim, of.Namespace, of.Name,
		a.clients.Core.PersistentVolumeClaims(of.Namespace).Get)
	if err != nil {
		return pvclaim.Result{}, err
	}
	return pvclaim.ResultOf(of, o), nil
}

func (a apiServer) readSecret(ctx context.Context, ref volume.SecretRef) (map[string]string, bool, error) {
	klog.FromContext(ctx).V(4).Info("Reading a Secret", "secret", klog.KRef(ref.Namespace, ref.Name))
	return kube.ReadSecret(ctx, a.clients.Core, ref.Namespace, ref.Name)
}

// attachedPV returns the name of the PV that a VolumeAttachment names, empty for none. The cache keeps nothing else.
func attachedPV(o *storagev1.VolumeAttachment) string {
	if name := o.Spec.Source.PersistentVolumeName; name != nil {
		return *name
	}
	return ""
}

func (a apiServer) listAttachments(ctx context.Context, limit int64) (page[map[string]int], error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	list, err := a.clients.Storage.VolumeAttachments().List(ctx, metav1.ListOptions{Limit: limit})
	if err != nil {
		return page[map[string]int]{}, fmt.Errorf("list VolumeAttachments: %w", err)
	}
	ofPV := map[string]int{}
	for i := range list.Items {
		ofPV[attachedPV(&list.Items[i])]++
	}
	return page[map[string]int]{list.Continue == "", ofPV, list.ResourceVersion}, nil
}

func (a apiServer) listPVs(ctx context.Context, limit int64) (page[[]volume.PV], error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	list, err := a.clients.Core.PersistentVolumes().List(ctx, metav1.ListOptions{Limit: limit})
	if err != nil {
		return page[[]volume.PV]{}, fmt.Errorf("list PVs: %w", err)
	}
	var pvs []volume.PV
	for i := range list.Items {
		pvs = append(pvs, volume.At(a.node, &list.Items[i]))
	}
	return page[[]volume.PV]{list.Continue == "", pvs, list.ResourceVersion}, nil
}

func (a apiServer) eachPV(ctx context.Context, visit func(volume.PV)) error {
	return kube.Each(ctx, "PVs", metav1.ListOptions{}, a.clients.Core.PersistentVolumes().List,
		func(pv *v1.PersistentVolume) { visit(volume.At(a.node, pv)) })
}

func (a apiServer) readClass(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	return kube.Read(ctx, kube.StorageClass, "", name, a.clients.Storage.StorageClasses().Get)
}

// listNodes selects by the topology labels, which the kubelet sets on the Node as its driver reports them.
func (a apiServer) listNodes(ctx context.Context) ([]string, error) {
	if a.node == nil {
		return nil, errors.New("list nodes: the own node is unknown")
	}
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	names, err := kube.ListAll(ctx, a.clients.Core.Nodes().List,
		metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: a.node.Segments})},
		func(o *v1.Node) string { return o.Name })
	if err != nil {
		return nil, fmt.Errorf("list the nodes in the place of node %q: %w", a.node.Name, err)
	}
	return names, nil
}

func (a apiServer) patchFinalizers(
	ctx context.Context, pv volume.PV, add, drop []string, bound bool,
) (volume.PV, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	p := kube.FinalizerPatch{Name: pv.Name, UID: pv.UID, Add: add, Remove: drop}
	if bound {
		p.ResourceVersion = pv.ResourceVersion
	}
	clients := a.clients
	if len(add) > 0 {
		clients = a.background
	}
	object, err := kube.PatchFinalizers(ctx, clients.Core.PersistentVolumes(), p)
	switch {
	case err != nil && !errors.Is(err, kube.ErrUndone):
		return volume.PV{}, err
	case slices.ContainsFunc(drop, func(f string) bool { return slices.Contains(object.Finalizers, f) }):
		err = fmt.Errorf("%w: %w", ErrFinalizerRestored, err)
	}
	return volume.At(a.node, object), err
}

func (a apiServer) readBrake(ctx context.Context, lease types.NamespacedName) (uid types.UID, on bool, err error) {
	o, err := kube.Read(ctx, leaseKind, lease.Namespace, lease.Name,
		a.clients.Coordination.Leases(lease.Namespace).Get)
	if o == nil {
		return "", false, err
	}
	_, on = o.Annotations[BrakeAnnotation]
	return o.UID, on, nil
}

func (a apiServer) createBrake(ctx context.Context, lease types.NamespacedName) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	_, err := a.clients.Coordination.Leases(lease.Namespace).Create(ctx,
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: lease.Name, Labels: noBackup()}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Lease %q: %w", lease, err)
	}
	return nil
}

// noBackup returns the labels of the brake's Lease. A restore over it would remove the annotation.
func noBackup() map[string]string { return map[string]string{kube.NoBackup: "true"} }

func (a apiServer) writeBrake(
	ctx context.Context, lease types.NamespacedName, why string,
) (uid types.UID, err error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	meta := metav1.ObjectMeta{Name: lease.Name, Labels: noBackup(), Annotations: map[string]string{BrakeAnnotation: why}}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": meta.Labels,
		"annotations": meta.Annotations}})
	if err != nil {
		return "", fmt.Errorf("patch Lease %q: %w", lease, err)
	}
	leases := a.clients.Coordination.Leases(lease.Namespace)
	o, err := leases.Patch(ctx, lease.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if kube.Absent(err, leaseKind.Resource, lease.Name) {
		o, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: meta}, metav1.CreateOptions{})
	}
	if err != nil {
		return "", fmt.Errorf("add the brake's annotation to Lease %q: %w", lease, err)
	}
	return o.UID, nil
}

func (a apiServer) deletePV(ctx context.Context, pv volume.PV) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	return kube.Delete(ctx, "PV", a.clients.Core.PersistentVolumes(), pv.Name, pv.UID, "")
}
