package admission

import (
	"context"
	"fmt"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	pod, err := readIfExists(ctx, "pod "+namespace, name, a.core.Pods(namespace).Get)
	return pod, pod != nil, err
}

// Claim implements Reader.
func (a *LiveReader) Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, bool, error) {
	claim, err := readIfExists(ctx, "claim "+namespace, name, a.core.PersistentVolumeClaims(namespace).Get)
	return claim, claim != nil, err
}

// readIfExists reads an object, and returns nil if it is missing, or of a kind that the API server does not serve. of
// is the kind in errors, followed by the namespace if the object has one.
func readIfExists[O any](ctx context.Context, of, name string,
	get func(context.Context, string, metav1.GetOptions) (*O, error)) (*O, error) {
	o, err := kube.GetObject(ctx, schema.GroupResource{}, name, get)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s/%s: %w", of, name, err)
	}
	return o, nil
}

// permissions returns the permissions that a LiveReader needs.
func permissions() []permission.Permission {
	return []permission.Permission{
		{Resource: "pods", Verb: "get", Without: "pods are bound although one of their claims is terminating"},
		{Resource: "persistentvolumeclaims", Verb: "get",
			Without: "pods are bound although one of their claims is terminating"},
	}
}
