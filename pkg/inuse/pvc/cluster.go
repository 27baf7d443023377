package pvc

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
)

// cluster has the API calls of a Protector.
type cluster interface {
	// listPods returns the pods with a node in a namespace, or in all, by a live list.
	listPods(ctx context.Context, namespace string) ([]Pod, error)
	// listClaims returns all claims, by a live list.
	listClaims(ctx context.Context) ([]heldClaim, error)
	// patch carries out AddFinalizer or RemoveFinalizer and returns the resulting claim.
	patch(ctx context.Context, o inuse.Object, a inuse.Action) (inuse.Object, error)
}

const (
	// listTimeout bounds one page of a list.
	listTimeout = time.Minute
	// listPage is the page size of lists: most namespaces need one page; the API server promises a consistent snapshot
	// across pages.
	listPage = 5000
)

// apiServer is the cluster behind a client.
type apiServer struct{ core corev1.CoreV1Interface }

func (a apiServer) listPods(ctx context.Context, namespace string) (pods []Pod, err error) {
	options := metav1.ListOptions{Limit: listPage, FieldSelector: "spec.nodeName!="}
	err = kube.EachPage(ctx, options, listTimeout, func(ctx context.Context, o metav1.ListOptions) (string, error) {
		page, err := a.core.Pods(namespace).List(ctx, o)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			pods = append(pods, PodOf(&page.Items[i]))
		}
		return page.Continue, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the pods of namespace %q: %w", namespace, err)
	}
	return pods, nil
}

func (a apiServer) listClaims(ctx context.Context) (claims []heldClaim, err error) {
	err = kube.EachPage(ctx, metav1.ListOptions{Limit: listPage}, listTimeout,
		func(ctx context.Context, o metav1.ListOptions) (string, error) {
			page, err := a.core.PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, o)
			if err != nil {
				return "", err
			}
			for i := range page.Items {
				claims = append(claims, heldClaim{ClaimOf(&page.Items[i]), inuse.HeldOf(&page.Items[i], Finalizer)})
			}
			return page.Continue, nil
		})
	if err != nil {
		return nil, fmt.Errorf("list claims: %w", err)
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
