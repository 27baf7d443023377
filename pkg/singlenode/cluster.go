package singlenode

import (
	"context"
	"fmt"
	"time"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	// patchClaim carries out the PatchClaim of an Ask and returns the changed claim.
	patchClaim(ctx context.Context, ask singlenode.Ask) (*claim, error)
	// patchGate carries out the PatchGate of an Ask.
	patchGate(ctx context.Context, ask singlenode.Ask) error
	// eachPod and eachClaim visit the objects of a namespace page by page, "" for all namespaces.
	eachPod(ctx context.Context, namespace string, visit func(*v1.Pod)) error
	eachClaim(ctx context.Context, namespace string, visit func(*claim)) error
}

const (
	// apiTimeout bounds one call to the API server, listTimeout one page of a list.
	apiTimeout, listTimeout = 30 * time.Second, time.Minute
	// listPage bounds the objects on a page of a list, because pods are large.
	listPage = 500
)

// apiServer implements cluster with real clients.
type apiServer struct {
	clients kube.Clients
	// fences reads NodeFences, nil if Config.Fences is off.
	fences *client.Client
	// timeout bounds each call, so that an unresponsive server does not hold a worker.
	timeout time.Duration
}

func (a apiServer) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.timeout)
}

func (a apiServer) readMode(ctx context.Context, namespace string) (singlenode.Mode, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	o, err := a.clients.Core.Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	switch {
	case kube.Absent(err, v1.Resource("namespaces"), namespace):
		return singlenode.ModeOff, nil
	case err != nil:
		return singlenode.ModeUnknown, fmt.Errorf("read namespace %q: %w", namespace, err)
	}
	return singlenode.ModeOf(o.Labels), nil
}

func (a apiServer) readClaim(ctx context.Context, namespace, name string) (*claim, bool, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	o, err := a.clients.Core.PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case kube.Absent(err, v1.Resource("persistentvolumeclaims"), name):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("read claim %q: %w", keyOf(namespace, name), err)
	}
	return claimOf(o), true, nil
}

func (a apiServer) readClass(ctx context.Context, name string) (class, bool, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	o, err := a.clients.Storage.StorageClasses().Get(ctx, name, metav1.GetOptions{})
	switch {
	case kube.Absent(err, storagev1.Resource("storageclasses"), name):
		return class{}, false, nil
	case err != nil:
		return class{}, false, fmt.Errorf("read StorageClass %q: %w", name, err)
	}
	return classOf(o), true, nil
}

func (a apiServer) readVolume(ctx context.Context, name string) (volume, bool, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	o, err := a.clients.Core.PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case kube.Absent(err, v1.Resource("persistentvolumes"), name):
		return volume{}, false, nil
	case err != nil:
		return volume{}, false, fmt.Errorf("read PV %q: %w", name, err)
	}
	return volumeOf(o), true, nil
}

func (a apiServer) readPod(ctx context.Context, namespace, name string) (singlenode.Pod, bool, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	o, err := a.clients.Core.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case kube.Absent(err, v1.Resource("pods"), name):
		return singlenode.Pod{}, false, nil
	case err != nil:
		return singlenode.Pod{}, false, fmt.Errorf("read pod %q: %w", keyOf(namespace, name), err)
	}
	return objects.PodOf(o), true, nil
}

func (a apiServer) readFence(ctx context.Context, node string, pod types.UID) (objects.Fence, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	return nodefence.Read(ctx, a.fences, node, pod)
}

func (a apiServer) readNode(ctx context.Context, name string) (objects.Node, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	return nodefence.ReadNode(ctx, a.clients.Core, name)
}

// patchClaim checks the claim in the response: if an admission policy reverts the change, the write succeeds without an
// effect.
func (a apiServer) patchClaim(ctx context.Context, ask singlenode.Ask) (*claim, error) {
	ctx, cancel := a.bound(ctx)
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
	ctx, cancel := a.bound(ctx)
	defer cancel()
	o, err := kube.RemovePodGate(ctx, a.clients.Core.Pods(ask.Namespace), ask.Name, ask.UID, singlenode.Gate)
	if err == nil && objects.HasVolumeGate(o) {
		err = fmt.Errorf("remove the gate of pod %q: %w", keyOf(ask.Namespace, ask.Name), kube.ErrUndone)
	}
	return err
}

func (a apiServer) eachPod(ctx context.Context, namespace string, visit func(*v1.Pod)) error {
	err := kube.EachPage(ctx, metav1.ListOptions{Limit: listPage}, listTimeout,
		func(ctx context.Context, o metav1.ListOptions) (string, error) {
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

func (a apiServer) eachClaim(ctx context.Context, namespace string, visit func(*claim)) error {
	err := kube.EachPage(ctx, metav1.ListOptions{Limit: listPage}, listTimeout,
		func(ctx context.Context, o metav1.ListOptions) (string, error) {
			page, err := a.clients.Core.PersistentVolumeClaims(namespace).List(ctx, o)
			if err != nil {
				return "", err
			}
			for i := range page.Items {
				visit(claimOf(&page.Items[i]))
			}
			return page.Continue, nil
		})
	if err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	return nil
}
