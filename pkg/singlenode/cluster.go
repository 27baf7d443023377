package singlenode

import (
	"context"
	"fmt"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
)

// cluster is the API server as the controller uses it. Every read is live: it is answered by the API server, and is as
// new as the request. For a missing object, a read succeeds without a result.
type cluster interface {
	// readMode returns the mode of a namespace, ModeOff if it does not exist.
	readMode(ctx context.Context, namespace string) (singlenode.Mode, error)
	readClaim(ctx context.Context, namespace, name string) (c *claim, found bool, err error)
	readClass(ctx context.Context, name string) (c class, found bool, err error)
	readVolume(ctx context.Context, name string) (pv volume, found bool, err error)
	readPod(ctx context.Context, namespace, name string) (p singlenode.Pod, found bool, err error)
	readFence(ctx context.Context, node string, pod types.UID) (objects.Fence, error)
	readNode(ctx context.Context, name string) (objects.Node, error)
	// patchClaim carries out the TakeLock or FreeLock of an Ask and returns the changed claim.
	patchClaim(ctx context.Context, ask singlenode.Ask) (*claim, error)
	// patchGate carries out the RemoveGate of an Ask.
	patchGate(ctx context.Context, ask singlenode.Ask) error
	// eachPod and eachClaim visit the objects of a namespace page by page, "" for all namespaces.
	eachPod(ctx context.Context, namespace string, visit func(*v1.Pod)) error
	eachClaim(ctx context.Context, namespace string, visit func(*claim)) error
}

// apiServer implements cluster with real clients.
type apiServer struct {
	clients kube.Clients
	// fences reads NodeFences, nil if Config.Fences is off.
	fences *client.Client
}

func (a apiServer) readMode(ctx context.Context, namespace string) (singlenode.Mode, error) {
	modeOf := func(o *v1.Namespace) singlenode.Mode { return singlenode.ModeOf(o.Labels) }
	mode, found, err := kube.Get(ctx, kube.Namespace, "", namespace, a.clients.Core.Namespaces().Get, modeOf)
	if err == nil && !found {
		return singlenode.ModeOff, nil
	}
	return mode, err
}

func (a apiServer) readClaim(ctx context.Context, namespace, name string) (*claim, bool, error) {
	return kube.Get(ctx, kube.Claim, namespace, name, a.clients.Core.PersistentVolumeClaims(namespace).Get,
		claimOf)
}

func (a apiServer) readClass(ctx context.Context, name string) (class, bool, error) {
	return kube.Get(ctx, kube.StorageClass, "", name, a.clients.Storage.StorageClasses().Get, classOf)
}

func (a apiServer) readVolume(ctx context.Context, name string) (volume, bool, error) {
	return kube.Get(ctx, kube.PV, "", name, a.clients.Core.PersistentVolumes().Get, volumeOf)
}

func (a apiServer) readPod(ctx context.Context, namespace, name string) (singlenode.Pod, bool, error) {
	return kube.Get(ctx, kube.Pod, namespace, name, a.clients.Core.Pods(namespace).Get, objects.PodOf)
}

func (a apiServer) readFence(ctx context.Context, node string, pod types.UID) (objects.Fence, error) {
	evidence, err := nodefence.Read(ctx, a.fences, node)
	if err != nil {
		return objects.Fence{}, err
	}
	return evidence(pod), nil
}

func (a apiServer) readNode(ctx context.Context, name string) (objects.Node, error) {
	n, _, err := kube.Get(ctx, kube.Node, "", name, a.clients.Core.Nodes().Get, objects.NodeOf)
	return n, err
}

// patchClaim checks the claim in the response: if an admission policy reverts the change, the write succeeds without an
// effect.
func (a apiServer) patchClaim(ctx context.Context, ask singlenode.Ask) (*claim, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	patch := kube.FinalizerPatch{Name: ask.Name, UID: ask.UID, ResourceVersion: ask.ResourceVersion,
		Annotations: map[string]*string{singlenode.LockAnnotation: nil}}
	locks := ask.Lock != singlenode.Lock{}
	if locks {
		lock := ask.Lock.String()
		patch.Annotations[singlenode.LockAnnotation], patch.Add = &lock, []string{singlenode.Finalizer}
	} else {
		patch.Remove = []string{singlenode.Finalizer}
	}
	o, err := kube.PatchFinalizers(ctx, a.clients.Core.PersistentVolumeClaims(ask.Namespace), patch)
	if err != nil {
		return nil, err
	}
	after := claimOf(o)
	if after.Locked != locks || after.Kept != locks || after.Lock != ask.Lock {
		return nil, fmt.Errorf("change the lock of claim %q: %w", keyOf(ask.Namespace, ask.Name), kube.ErrUndone)
	}
	return after, nil
}

func (a apiServer) patchGate(ctx context.Context, ask singlenode.Ask) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	o, err := kube.RemovePodGate(ctx, a.clients.Core.Pods(ask.Namespace), ask.Name, ask.UID, singlenode.Gate)
	if err == nil && objects.HasVolumeGate(o) {
		err = fmt.Errorf("remove the gate of pod %q: %w", keyOf(ask.Namespace, ask.Name), kube.ErrUndone)
	}
	return err
}

func (a apiServer) eachPod(ctx context.Context, namespace string, visit func(*v1.Pod)) error {
	return kube.Each(ctx, "pods", metav1.ListOptions{}, a.clients.Core.Pods(namespace).List, visit)
}

func (a apiServer) eachClaim(ctx context.Context, namespace string, visit func(*claim)) error {
	return kube.Each(ctx, "claims", metav1.ListOptions{}, a.clients.Core.PersistentVolumeClaims(namespace).List,
		func(o *v1.PersistentVolumeClaim) { visit(claimOf(o)) })
}

// answered is the reply to a call.
type answered struct {
	singlenode.Reply
	// began, if not zero, is when the call behind the reply began: a shared list begins later than its request.
	began time.Time
}

// sent returns the time at which the request behind the reply was sent.
func (a answered) sent(asked time.Time) time.Time {
	if a.began.IsZero() {
		return asked
	}
	return a.began
}

// slot waits for permission to make one more call, and returns the function that ends the call.
func (c *Controller) slot(ctx context.Context) (end func(), err error) {
	select {
	case c.slots <- struct{}{}:
		return func() { <-c.slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// call makes a call, and returns an error for any outcome but Succeeded.
func (c *Controller) call(ctx context.Context, ask singlenode.Ask) (reply answered, err error) {
	if ask.Action == singlenode.ListPods {
		reply, err = c.usersOf(ctx, ask)
	} else {
		reply.Reply, err = c.callOne(ctx, ask)
	}
	reply.Outcome = controller.OutcomeOf(err)
	return reply, err
}

// callOne makes a call about one object.
func (c *Controller) callOne(ctx context.Context, ask singlenode.Ask) (reply singlenode.Reply, err error) {
	end, err := c.slot(ctx)
	if err != nil {
		return reply, err
	}
	defer end()
	switch ask.Action {
	case singlenode.ReadNamespace:
		reply.Mode, err = c.cluster.readMode(ctx, ask.Namespace)
	case singlenode.ReadClaim:
		reply.Claim, err = c.readClaim(ctx, ask)
	case singlenode.ReadHolder:
		p, found, failed := c.cluster.readPod(ctx, ask.Namespace, ask.Name)
		if err = failed; found {
			reply.Users = []singlenode.User{c.observer.user(p)}
		}
	case singlenode.ReadFence:
		reply.Fence, err = c.cluster.readFence(ctx, ask.Name, ask.UID)
	case singlenode.ReadNode:
		reply.Node, err = c.cluster.readNode(ctx, ask.Name)
	case singlenode.TakeLock, singlenode.FreeLock:
		var o *claim
		if o, err = c.cluster.patchClaim(ctx, ask); err == nil {
			reply.Claim = o.Claim
		}
	case singlenode.RemoveGate:
		if err = c.cluster.patchGate(ctx, ask); err == nil {
			c.observer.removedGate(keyOf(ask.Namespace, ask.Name), ask.UID)
		}
	case singlenode.Wait, singlenode.ListPods: // never pending here
	}
	return reply, err
}
