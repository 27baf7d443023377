package podsafety

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/podhold"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
)

// cluster is what is asked of the API server. Every read is live: it goes to the server, and is as new as the moment it
// was sent. Reads do not fail where there is no such object.
type cluster interface {
	readPod(ctx context.Context, namespace, name string) (p podhold.Pod, found bool, err error)
	readNode(ctx context.Context, name string) (podhold.NodeFacts, error)
	readLease(ctx context.Context, node string) (podhold.LeaseFacts, error)
	// patchFinalizers changes the finalizers of the pod of an Ask.
	patchFinalizers(ctx context.Context, ask podhold.Ask) error
	// forceDelete deletes the pod of an Ask with a grace period of 0.
	forceDelete(ctx context.Context, ask podhold.Ask) error
	// eachPod reads the pods of a namespace and a node, "" for any, page by page.
	eachPod(ctx context.Context, namespace, node string, visit func(*v1.Pod)) error
	// patchCondition changes a condition of a pod.
	patchCondition(ctx context.Context, namespace string, p kube.ConditionPatch) error
	// readVolume returns the PV that a claim is bound to, "" for none, and whether it may be attached to several nodes.
	readVolume(ctx context.Context, namespace, claim string) (pv string, shared bool, err error)
}

const (
	// apiTimeout bounds one call to the API server, listTimeout one page of a list.
	apiTimeout, listTimeout = 30 * time.Second, time.Minute
	// listPage is how many objects one list request returns at most: pods are large.
	listPage = 500
)

// apiServer is the cluster behind real clients.
type apiServer struct {
	clients kube.Clients
	// timeout bounds each call, so that a server that hangs does not hold a worker.
	timeout time.Duration
}

func (a apiServer) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.timeout)
}

func (a apiServer) readPod(ctx context.Context, namespace, name string) (podhold.Pod, bool, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	o, err := a.clients.Core.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case kube.Absent(err, v1.Resource("pods"), name):
		return podhold.Pod{}, false, nil
	case err != nil:
		return podhold.Pod{}, false, fmt.Errorf("read pod %q: %w", namespace+"/"+name, err)
	}
	return podhold.PodOf(o), true, nil
}

func (a apiServer) readNode(ctx context.Context, name string) (podhold.NodeFacts, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	o, err := a.clients.Core.Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case kube.Absent(err, v1.Resource("nodes"), name):
		return podhold.NodeFacts{}, nil
	case err != nil:
		return podhold.NodeFacts{}, fmt.Errorf("read node %q: %w", name, err)
	}
	return podhold.NodeOf(o), nil
}

func (a apiServer) readLease(ctx context.Context, node string) (podhold.LeaseFacts, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	o, err := a.clients.Coordination.Leases(v1.NamespaceNodeLease).Get(ctx, node, metav1.GetOptions{})
	switch {
	case kube.Absent(err, coordinationv1.Resource("leases"), node):
		return podhold.LeaseFacts{}, nil
	case err != nil:
		return podhold.LeaseFacts{}, fmt.Errorf("read Lease of node %q: %w", node, err)
	}
	return podhold.LeaseFacts{Found: true, ResourceVersion: o.ResourceVersion}, nil
}

// errUndone: an admission policy or webhook undoes the write in itself.
var errUndone = errors.New("the API server accepted the change and undid it: look for an admission policy or " +
	"webhook that does")

// patchFinalizers relies on what the answer shows: an admission policy that changes a finalizer back makes the write a
// success that changed nothing.
func (a apiServer) patchFinalizers(ctx context.Context, ask podhold.Ask) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	after, err := kube.PatchFinalizers(ctx, a.clients.Core.Pods(ask.Namespace), kube.FinalizerPatch{
		Name: ask.Name, UID: ask.UID, ResourceVersion: ask.ResourceVersion, Add: ask.Add, Remove: ask.Remove,
	})
	if err != nil {
		return err
	}
	for _, f := range ask.Add {
		if !slices.Contains(after.Finalizers, f) {
			return fmt.Errorf("add finalizer %s to pod %q: %w", f, ask.Name, errUndone)
		}
	}
	for _, f := range ask.Remove {
		if slices.Contains(after.Finalizers, f) {
			return fmt.Errorf("remove finalizer %s from pod %q: %w", f, ask.Name, errUndone)
		}
	}
	return nil
}

func (a apiServer) forceDelete(ctx context.Context, ask podhold.Ask) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	return kube.ForceDeletePod(ctx, a.clients.Core.Pods(ask.Namespace), ask.Name, ask.UID, ask.ResourceVersion)
}

func (a apiServer) eachPod(ctx context.Context, namespace, node string, visit func(*v1.Pod)) error {
	options := metav1.ListOptions{Limit: listPage}
	if node != "" {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	}
	err := kube.EachPage(ctx, options, listTimeout, func(ctx context.Context, o metav1.ListOptions) (string, error) {
		page, err := a.clients.Core.Pods(namespace).List(ctx, o)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			visit(&page.Items[i])
		}
		return page.Continue, nil
	})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	return nil
}

func (a apiServer) patchCondition(ctx context.Context, namespace string, p kube.ConditionPatch) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	return kube.PatchPodCondition(ctx, a.clients.Core.Pods(namespace), p)
}

func (a apiServer) readVolume(ctx context.Context, namespace, claim string) (pv string, shared bool, err error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	c, err := a.clients.Core.PersistentVolumeClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
	switch {
	case kube.Absent(err, v1.Resource("persistentvolumeclaims"), claim):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("read claim %q: %w", namespace+"/"+claim, err)
	case c.Spec.VolumeName == "":
		return "", false, nil
	}
	o, err := a.clients.Core.PersistentVolumes().Get(ctx, c.Spec.VolumeName, metav1.GetOptions{})
	switch {
	case kube.Absent(err, v1.Resource("persistentvolumes"), c.Spec.VolumeName):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("read PV %q: %w", c.Spec.VolumeName, err)
	}
	return o.Name, slices.ContainsFunc(o.Spec.AccessModes, func(m v1.PersistentVolumeAccessMode) bool {
		return m == v1.ReadWriteMany || m == v1.ReadOnlyMany
	}), nil
}
