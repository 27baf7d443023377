package fencing

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// cluster is the access to the API server for a NodeFence. Every read is live, so that it is as new as the moment at
// which it was sent, and does not fail if the object does not exist.
type cluster interface {
	readFence(ctx context.Context, name string) (f fencing.Fence, found bool, err error)
	readNode(ctx context.Context, name string) (objects.Node, error)
	readLease(ctx context.Context, node string) (objects.Lease, error)
	// listRemaining lists the objects that are left on the node of an Ask. An empty result is live, but another may be
	// old.
	listRemaining(ctx context.Context, ask fencing.Ask) (fencing.RemainingFacts, error)
	// setFinalizer adds or removes Finalizer on the NodeFence of an Ask.
	setFinalizer(ctx context.Context, ask fencing.Ask, has bool) error
	deleteFence(ctx context.Context, ask fencing.Ask) error
	writeStatus(ctx context.Context, ask fencing.Ask) error
	// setTaint makes the taint of an Ask the only one of this project on its Node, which must be unchanged since it was
	// read.
	setTaint(ctx context.Context, ask fencing.Ask) error
	// eachTainted reads all Nodes that have a taint of this project, page by page.
	eachTainted(ctx context.Context, visit func(name string, facts objects.Node)) error
}

const (
	// apiTimeout bounds one call to the API server, listTimeout one page of a list.
	apiTimeout, listTimeout = 30 * time.Second, time.Minute
	listPage                = 500
)

// apiServer implements cluster with real clients.
type apiServer struct {
	clients clients
	// timeout bounds each call, so that a hanging server does not block a worker.
	timeout   time.Duration
	detaching *detaching
}

func (a apiServer) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.timeout)
}

func (a apiServer) getFence(ctx context.Context, name string) (*v1alpha1.NodeFence, bool, error) {
	return kube.Get(ctx, a.timeout, nodefence.Kind, "", name, a.clients.own.Fences.Get,
		func(o *v1alpha1.NodeFence) *v1alpha1.NodeFence { return o })
}

func (a apiServer) readFence(ctx context.Context, name string) (fencing.Fence, bool, error) {
	return kube.Get(ctx, a.timeout, nodefence.Kind, "", name, a.clients.own.Fences.Get, fencing.FenceOf)
}

func (a apiServer) readNode(ctx context.Context, name string) (objects.Node, error) {
	n, _, err := kube.Get(ctx, a.timeout, kube.Node, "", name, a.clients.Core.Nodes().Get, objects.NodeOf)
	return n, err
}

func (a apiServer) readLease(ctx context.Context, node string) (objects.Lease, error) {
	l, _, err := kube.Get(ctx, a.timeout, kube.NodeLease, "", node,
		a.clients.Coordination.Leases(v1.NamespaceNodeLease).Get, objects.LeaseOf)
	return l, err
}

// eachPod reads the pods of a node, page by page. version is the minimum resourceVersion of the list; an empty version
// reads the latest state.
func eachPod(ctx context.Context, clients kube.Clients, node, version string, visit func(*v1.Pod)) error {
	options := metav1.ListOptions{ResourceVersion: version, Limit: listPage,
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}
	err := kube.Each(ctx, options, listTimeout, clients.Core.Pods(metav1.NamespaceAll).List, visit)
	if err != nil {
		return fmt.Errorf("list pods of node %q: %w", node, err)
	}
	return nil
}

// setFinalizer replaces the list of finalizers, because a custom resource accepts no strategic merge patch. The write
// is bound to a live read, so that the finalizers of other programs survive.
func (a apiServer) setFinalizer(ctx context.Context, ask fencing.Ask, has bool) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	o, found, err := a.getFence(ctx, ask.Node)
	switch {
	case err != nil:
		return err
	case !found, o.UID != ask.UID:
		return fmt.Errorf("NodeFence %q: %w", ask.Node, kube.ErrGone)
	case slices.Contains(o.Finalizers, fencing.Finalizer) == has:
		return nil
	case has && o.DeletionTimestamp != nil:
		return fmt.Errorf("NodeFence %q is terminating: %w", ask.Node, kube.ErrChanged)
	}
	after := slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == fencing.Finalizer })
	if has {
		after = append(after, fencing.Finalizer)
	}
	o, err = kube.PatchMetadata(ctx, a.clients.own.Fences, kube.MetadataPatch{Name: ask.Node, UID: ask.UID,
		ResourceVersion: o.ResourceVersion, Finalizers: &after})
	if err != nil {
		return fmt.Errorf("NodeFence %q: %w", ask.Node, err)
	}
	if slices.Contains(o.Finalizers, fencing.Finalizer) != has {
		return fmt.Errorf("change the finalizers of NodeFence %q: %w", ask.Node, kube.ErrUndone)
	}
	return nil
}

func (a apiServer) deleteFence(ctx context.Context, ask fencing.Ask) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	as := metav1.NewUIDPreconditions(string(ask.UID))
	as.ResourceVersion = &ask.ResourceVersion
	if err := a.clients.own.Fences.Delete(ctx, ask.Node, metav1.DeleteOptions{Preconditions: as}); err != nil {
		return fmt.Errorf("delete NodeFence %q: %w", ask.Node, kube.Meaning(err, ask.Node))
	}
	return nil
}

// writeStatus replaces the status, since the API server ignores the other fields of this object.
func (a apiServer) writeStatus(ctx context.Context, ask fencing.Ask) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	o := &v1alpha1.NodeFence{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: fenceKind},
		ObjectMeta: metav1.ObjectMeta{Name: ask.Node, UID: ask.UID, ResourceVersion: ask.ResourceVersion},
		Status:     *ask.Status,
	}
	if _, err := a.clients.own.Fences.UpdateStatus(ctx, o, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write the status of NodeFence %q: %w", ask.Node, kube.Meaning(err, ask.Node))
	}
	return nil
}

func (a apiServer) eachTainted(ctx context.Context, visit func(string, objects.Node)) error {
	err := kube.Each(ctx, metav1.ListOptions{Limit: listPage}, listTimeout, a.clients.Core.Nodes().List,
		func(o *v1.Node) {
			if n := objects.NodeOf(o); n.Tainted() {
				visit(o.Name, n)
			}
		})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	return nil
}

// setTaint replaces the whole list of taints, because a merge patch cannot change one entry. The write is bound to a
// live read, which must show the same version of the Node as the decision.
func (a apiServer) setTaint(ctx context.Context, ask fencing.Ask) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	o, err := a.clients.Core.Nodes().Get(ctx, ask.Node, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("read node %q: %w", ask.Node, kube.Meaning(err, ask.Node))
	case o.ResourceVersion != ask.NodeVersion:
		return fmt.Errorf("node %q: %w", ask.Node, kube.ErrChanged)
	}
	taints, err := withTaint(o.Spec.Taints, ask.Taint)
	if err != nil {
		return fmt.Errorf("taint node %q: %w", ask.Node, err)
	}
	body, err := taintPatch(o, taints)
	if err != nil {
		return err
	}
	after, err := a.clients.Core.Nodes().Patch(ctx, ask.Node, types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("change the taints of node %q: %w", ask.Node, kube.Meaning(err, ask.Node))
	}
	if !hasTaint(after, ask.Taint) {
		return fmt.Errorf("change the taints of node %q: %w", ask.Node, kube.ErrUndone)
	}
	return nil
}
