// Package grants reads ReferenceGrants (gateway.networking.k8s.io/v1beta1), by which the owner of a namespace lets
// claims of other namespaces take their data from it. The API is not part of Kubernetes: its CRD comes with the Gateway
// API and may be missing. This package does not use its Go types.
//
// Stability: for embedders. Until version 1.0 it changes only with a minor release, and CHANGELOG.md lists each change.
package grants

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
)

// Group and Resource of ReferenceGrants.
const (
	Group    = "gateway.networking.k8s.io"
	Resource = "referencegrants"
	version  = "v1beta1"
)

// ErrNotInstalled means that the API server does not serve ReferenceGrants, so none can exist.
var ErrNotInstalled = errors.New("claims cannot take data from other namespaces in this cluster: it serves no " +
	Group + "/" + version +
	"; install the CRD of ReferenceGrants, which is part of the Gateway API")

// Reader reads ReferenceGrants, and is safe for concurrent use.
type Reader struct {
	client dynamic.NamespaceableResourceInterface
}

// New returns a reader for the cluster of config, which is copied. A QPS of 0 means no limit on the client's side.
func New(config *rest.Config) (*Reader, error) {
	client, err := dynamic.NewForConfig(kube.ConfigOf(config))
	if err != nil {
		return nil, fmt.Errorf("create a client for %s/%s: %w", Group, version, err)
	}
	return &Reader{client.Resource(schema.GroupVersionResource{Group: Group, Version: version, Resource: Resource})}, nil
}

// In lists the ReferenceGrants of a namespace live. An error means that the grants are unknown; with ErrNotInstalled
// none can exist.
func (r *Reader) In(ctx context.Context, namespace string) ([]request.Grant, error) {
	if namespace == "" {
		return nil, errors.New("list ReferenceGrants: empty namespace") // an empty namespace would list all
	}
	all, err := kube.ListAll(ctx, r.client.Namespace(namespace).List, metav1.ListOptions{},
		func(o *unstructured.Unstructured) *unstructured.Unstructured { return o })
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: %w", ErrNotInstalled, err)
	case err != nil:
		return nil, fmt.Errorf("list ReferenceGrants of namespace %q: %w", namespace, err)
	}
	grants := make([]request.Grant, 0, len(all))
	for _, o := range all {
		read, err := grantOf(o)
		if err != nil {
			return nil, fmt.Errorf("read ReferenceGrant %q of namespace %q: %w", o.GetName(), namespace, err)
		}
		grants = append(grants, read)
	}
	return grants, nil
}

func grantOf(o *unstructured.Unstructured) (request.Grant, error) {
	var g struct {
		Spec struct {
			From []request.GrantFrom `json:"from"`
			To   []request.GrantTo   `json:"to"`
		} `json:"spec"`
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &g)
	return request.Grant{Namespace: o.GetNamespace(), Name: o.GetName(), From: g.Spec.From, To: g.Spec.To}, err
}
