package podsafety

import (
	"context"
	"fmt"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
)

// cluster is the access to the API server. Every read is live, except eachPod for one node, which serves conditions
// only. A live read is as new as the moment at which it was sent. No read fails if the object does not exist.
type cluster interface {
	readPod(ctx context.Context, namespace, name string) (p objects.Pod, found bool, err error)
	readNode(ctx context.Context, name string) (objects.Node, error)
	readLease(ctx context.Context, node string) (objects.Lease, error)
	readFence(ctx context.Context, node string) (nodefence.Evidence, error)
	// patchPod and patchClaim add objects.RunningFinalizer to the pod of an Ask and to a claim, or remove it.
	patchPod(ctx context.Context, ask podsafety.Ask, add bool) error
	patchClaim(ctx context.Context, claim podsafety.Claim, add bool) error
	// forceDelete deletes the pod of an Ask with a grace period of 0.
	forceDelete(ctx context.Context, ask podsafety.Ask) error
	// eachPod reads the pods of a namespace and a node, page by page, where "" means all of them.
	eachPod(ctx context.Context, namespace, node string, visit func(*v1.Pod)) error
	// podsVersion returns the resourceVersion of a consistent list of pods.
	podsVersion(ctx context.Context) (string, error)
	// eachClaim reads the claims of all namespaces, page by page.
	eachClaim(ctx context.Context, visit func(podsafety.Claim)) error
	patchCondition(ctx context.Context, namespace string, p kube.ConditionPatch) error
	// refusesForce identifies the objects by which the API server refuses unconfirmed force deletions, empty if it does
	// not.
	refusesForce(ctx context.Context) (by string, err error)
	// readVolume returns the PV that a claim is bound to, or the zero value without one.
	readVolume(ctx context.Context, namespace, claim string) (volume, error)
	// readClaimOf returns the claim that a PV belongs to, or the zero value without one.
	readClaimOf(ctx context.Context, pv string) (types.NamespacedName, error)
	// claimsNamingPVs returns the names of the claims of a namespace that name a PV.
	claimsNamingPVs(ctx context.Context, namespace string) (map[string]bool, error)
}

// volume is the record of a PV, where shared reports that it may be attached to several nodes.
type volume struct {
	objects.Volume
	name   string
	shared bool
}

type apiServer struct {
	clients kube.Clients
	fences  *client.Client
}

func (a apiServer) readPod(ctx context.Context, namespace, name string) (objects.Pod, bool, error) {
	return kube.Get(ctx, kube.Pod, namespace, name, a.clients.Core.Pods(namespace).Get, objects.PodOf)
}

func (a apiServer) readNode(ctx context.Context, name string) (objects.Node, error) {
	n, _, err := kube.Get(ctx, kube.Node, "", name, a.clients.Core.Nodes().Get, objects.NodeOf)
	return n, err
}

func (a apiServer) readLease(ctx context.Context, node string) (objects.Lease, error) {
	l, _, err := kube.Get(ctx, kube.NodeLease, "", node,
		a.clients.Coordination.Leases(v1.NamespaceNodeLease).Get, objects.LeaseOf)
	return l, err
}

func (a apiServer) readFence(ctx context.Context, node string) (nodefence.Evidence, error) {
	return nodefence.Read(ctx, a.fences, node)
}

func (a apiServer) patchPod(ctx context.Context, ask podsafety.Ask, add bool) error {
	return patch(ctx, a.clients.Core.Pods(ask.Namespace),
		kube.FinalizerPatch{Name: ask.Name, UID: ask.UID, ResourceVersion: ask.ResourceVersion}, add)
}

func (a apiServer) patchClaim(ctx context.Context, claim podsafety.Claim, add bool) error {
	return patch(ctx, a.clients.Core.PersistentVolumeClaims(claim.Namespace),
		kube.FinalizerPatch{Name: claim.Name, UID: claim.UID}, add)
}

// patch adds or removes the finalizer.
func patch[T metav1.Object](ctx context.Context, of kube.Patcher[T], p kube.FinalizerPatch, add bool) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	if add {
		p.Add = []string{objects.RunningFinalizer}
	} else {
		p.Remove = []string{objects.RunningFinalizer}
	}
	_, err := kube.PatchFinalizers(ctx, of, p)
	return err
}

func (a apiServer) forceDelete(ctx context.Context, ask podsafety.Ask) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	return kube.ForceDeletePod(ctx, a.clients.Core.Pods(ask.Namespace), ask.Name, ask.UID, ask.ResourceVersion)
}

func (a apiServer) eachPod(ctx context.Context, namespace, node string, visit func(*v1.Pod)) error {
	var options metav1.ListOptions
	if node != "" {
		// This list reads the watch cache of the API server, because it only serves to set conditions, which are no evidence.
		// Without resourceVersion 0, Kubernetes 1.30 would read all pods from etcd for a list with a limit
		// (shouldDelegateList in its cacher.go).
		options.FieldSelector, options.ResourceVersion = fields.OneTermEqualSelector("spec.nodeName", node).String(), "0"
	}
	return kube.Each(ctx, "pods", options, a.clients.Core.Pods(namespace).List, visit)
}

func (a apiServer) podsVersion(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	list, err := a.clients.Core.Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("list one pod: %w", err)
	}
	return list.ResourceVersion, nil
}

func (a apiServer) eachClaim(ctx context.Context, visit func(podsafety.Claim)) error {
	return kube.Each(ctx, "claims", metav1.ListOptions{}, a.clients.Core.PersistentVolumeClaims(metav1.NamespaceAll).List,
		func(o *v1.PersistentVolumeClaim) { visit(podsafety.ClaimOf(o)) })
}

func (a apiServer) patchCondition(ctx context.Context, namespace string, p kube.ConditionPatch) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	return kube.PatchPodCondition(ctx, a.clients.Core.Pods(namespace), p)
}

func (a apiServer) readVolume(ctx context.Context, namespace, claim string) (volume, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout) // of both reads
	defer cancel()
	claimed, err := kube.Read(ctx, kube.Claim, namespace, claim,
		a.clients.Core.PersistentVolumeClaims(namespace).Get)
	if claimed == nil || claimed.Spec.VolumeName == "" {
		return volume{}, err
	}
	pv, _, err := kube.Get(ctx, kube.PV, "", claimed.Spec.VolumeName, a.clients.Core.PersistentVolumes().Get,
		func(o *v1.PersistentVolume) volume { return volumeOf(o, claimed.UID) })
	return pv, err
}

func (a apiServer) readClaimOf(ctx context.Context, pv string) (types.NamespacedName, error) {
	claim, _, err := kube.Get(ctx, kube.PV, "", pv, a.clients.Core.PersistentVolumes().Get,
		func(o *v1.PersistentVolume) (claim types.NamespacedName) {
			if ref := o.Spec.ClaimRef; ref != nil {
				claim = types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
			}
			return claim
		})
	return claim, err
}

func (a apiServer) claimsNamingPVs(ctx context.Context, namespace string) (map[string]bool, error) {
	naming := map[string]bool{}
	err := kube.Each(ctx, "claims", metav1.ListOptions{}, a.clients.Core.PersistentVolumeClaims(namespace).List,
		func(o *v1.PersistentVolumeClaim) {
			if o.Spec.VolumeName != "" {
				naming[o.Name] = true
			}
		})
	return naming, err
}

// volumeOf returns the record of a PV, or the zero value if the PV is not bound to this claim. A user can name any PV
// in a claim, but a kubelet mounts only a PV whose claimRef has the UID of the claim (getPVSpec in its
// desired_state_of_world_populator.go).
func volumeOf(o *v1.PersistentVolume, claim types.UID) volume {
	if o.Spec.ClaimRef == nil || o.Spec.ClaimRef.UID != claim {
		return volume{}
	}
	return volume{Volume: objects.VolumeOf(o), name: o.Name, shared: objects.Shared(o.Spec.AccessModes)}
}

// call makes the call of an Ask. The error is the cause if the outcome of the reply is not Succeeded.
func (c *Controller) call(ctx context.Context, ask podsafety.Ask) (reply podsafety.Reply, err error) {
	switch ask.Action {
	case podsafety.ReadPod:
		reply.Pod, reply.Found, err = c.cluster.readPod(ctx, ask.Namespace, ask.Name)
	case podsafety.ReadNode:
		reply.Node, err = c.cluster.readNode(ctx, ask.Node)
	case podsafety.ReadLease:
		reply.Lease, err = c.cluster.readLease(ctx, ask.Node)
	case podsafety.AddFinalizer, podsafety.RemoveFinalizer, podsafety.RemoveFinalizerByUID:
		err = c.cluster.patchPod(ctx, ask, ask.Action == podsafety.AddFinalizer)
	case podsafety.ForceDelete:
		err = c.cluster.forceDelete(ctx, ask)
	case podsafety.ReadFence:
		var evidence nodefence.Evidence
		if evidence, err = c.cluster.readFence(ctx, ask.Node); err == nil {
			reply.Fence = evidence(ask.UID)
		}
	case podsafety.Wait: // a session that waits has ended
	}
	reply.Outcome = controller.OutcomeOf(err)
	return reply, err
}

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
	locks dynamic.ResourceInterface
}

func newLockClient(config *rest.Config) (lockClient, error) {
	client, err := dynamic.NewForConfig(kube.ConfigOf(config))
	if err != nil {
		return nil, fmt.Errorf("create a client for %s.%s: %w", lockResource, lockGroup, err)
	}
	return lockServer{client.Resource(schema.GroupVersionResource{Group: lockGroup, Version: lockVersion,
		Resource: lockResource})}, nil
}

func (s lockServer) list(ctx context.Context) (locks []volumeLock, err error) {
	err = kube.Each(ctx, "VolumeLocks", metav1.ListOptions{}, s.locks.List,
		func(o *unstructured.Unstructured) { locks = append(locks, lockOf(o)) })
	if err != nil {
		return nil, err
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
	metadata := map[string]any{"name": l.node, "labels": map[string]any{kube.NoBackup: "true"}}
	if l.object != "" {
		metadata["uid"], metadata["resourceVersion"] = string(l.object), l.version
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": lockGroup + "/" + lockVersion, "kind": lockKind, "metadata": metadata,
		"spec": map[string]any{"volumes": volumes},
	}}
}

func (s lockServer) put(ctx context.Context, l volumeLock) (volumeLock, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
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
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.object, ResourceVersion: &l.version}}
	if err := s.locks.Delete(ctx, l.node, options); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the VolumeLock of node %q: %w", l.node, err)
	}
	return nil
}
