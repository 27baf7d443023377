// Package client has a typed client for the kinds of node fencing (pkg/apis/fencing/v1alpha1), like the clients of
// client-go.
//
// Stability: for the programs of this repository. It may change with each release.
package client

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Fences reads and writes NodeFences.
type Fences = gentype.ClientWithList[*v1alpha1.NodeFence, *v1alpha1.NodeFenceList]

// Policies reads and writes FencePolicies.
type Policies = gentype.ClientWithList[*v1alpha1.FencePolicy, *v1alpha1.FencePolicyList]

// Client has a client for each kind. Its methods are safe for concurrent use.
type Client struct {
	Fences   *Fences
	Policies *Policies
	// REST is the client of both, for watch caches.
	REST rest.Interface
}

// The resources of the kinds, as in URLs and RBAC rules.
const (
	FenceResource  = "nodefences"
	PolicyResource = "fencepolicies"
)

// New returns a Client for the cluster that config describes; config is copied, and a QPS of 0 means no limit on the
// client's side.
func New(config *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("create a client for NodeFences: %w", err)
	}
	config = kube.ConfigOf(config)
	config.APIPath, config.GroupVersion = "/apis", &v1alpha1.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	of, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("create a client for NodeFences: %w", err)
	}
	codec := runtime.NewParameterCodec(scheme)
	return &Client{
		REST: of,
		Fences: gentype.NewClientWithList(FenceResource, of, codec, "",
			func() *v1alpha1.NodeFence { return &v1alpha1.NodeFence{} },
			func() *v1alpha1.NodeFenceList { return &v1alpha1.NodeFenceList{} }),
		Policies: gentype.NewClientWithList(PolicyResource, of, codec, "",
			func() *v1alpha1.FencePolicy { return &v1alpha1.FencePolicy{} },
			func() *v1alpha1.FencePolicyList { return &v1alpha1.FencePolicyList{} }),
	}, nil
}
