package admission

import (
	"context"
	"fmt"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// LiveReader is a Reader that reads every object live from a cluster.
type LiveReader struct {
	permission.Checker
	core corev1.CoreV1Interface
}

// NewReader returns a Reader of the cluster of config, which is copied.
func NewReader(config *rest.Config) (*LiveReader, error) {
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	return &LiveReader{permission.NewChecker(clients.Authorization, permissions()), clients.Core}, nil
}

// Pod implements Reader.
func (a *LiveReader) Pod(ctx context.Context, namespace, name string) (*v1.Pod, bool, error) {
	pod, err := a.core.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	return found(pod, err, "pod", namespace, name)
}

// Claim implements Reader.
func (a *LiveReader) Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, bool, error) {
	claim, err := a.core.PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	return found(claim, err, "claim", namespace, name)
}

func found[T any](o *T, err error, kind, namespace, name string) (*T, bool, error) {
	switch {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("read %s %s/%s: %w", kind, namespace, name, err)
	}
	return o, true, nil
}

// permissions returns the permissions that a LiveReader needs.
func permissions() []permission.Permission {
	return []permission.Permission{
		{Resource: "pods", Verb: "get", Without: "pods are bound although one of their claims is terminating"},
		{Resource: "persistentvolumeclaims", Verb: "get",
			Without: "pods are bound although one of their claims is terminating"},
	}
}
