package pvc

import (
	"context"
	"fmt"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
)

// cluster has the API calls of a Protector.
type cluster interface {
	// listPods returns the pods with a node in a namespace, or in all, by a live list.
	listPods(ctx context.Context, namespace string) ([]Pod, error)
	// listClaims returns all claims, by a live list, without decisions.
	listClaims(ctx context.Context) ([]inuse.Held, error)
	// patch carries out AddFinalizer or RemoveFinalizer and returns the resulting claim.
	patch(ctx context.Context, o inuse.Object, a inuse.Action) (inuse.Object, error)
}

// apiServer is the cluster behind a client.
type apiServer struct{ core corev1.CoreV1Interface }

func (a apiServer) listPods(ctx context.Context, namespace string) (pods []Pod, err error) {
	options := metav1.ListOptions{FieldSelector: "spec.nodeName!="}
	err = kube.Each(ctx, fmt.Sprintf("the pods of namespace %q", namespace), options, a.core.Pods(namespace).List,
		func(o *v1.Pod) { pods = append(pods, PodOf(o)) })
	if err != nil {
		return nil, err
	}
	return pods, nil
}

func (a apiServer) listClaims(ctx context.Context) (claims []inuse.Held, err error) {
	err = kube.Each(ctx, "claims", metav1.ListOptions{}, a.core.PersistentVolumeClaims(metav1.NamespaceAll).List,
		func(o *v1.PersistentVolumeClaim) { claims = append(claims, inuse.HeldOf(o, Finalizer)) })
	if err != nil {
		return nil, err
	}
	return claims, nil
}

func (a apiServer) patch(ctx context.Context, o inuse.Object, action inuse.Action) (inuse.Object, error) {
	after, err := kube.PatchFinalizers(ctx, a.core.PersistentVolumeClaims(o.Namespace),
		inuse.Patch(o, action, Finalizer))
	if err != nil {
		return inuse.Object{}, err
	}
	return inuse.ObjectOf(after, Finalizer), nil
}
