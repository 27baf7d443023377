package fencing

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/fencing/agents"
)

type clients struct {
	kube.Clients
	// all serves every API group of Kubernetes, for agents and budgets.
	all    kubernetes.Interface
	own    *client.Client
	runner runner
}

func newClients(config *rest.Config) (c clients, err error) {
	if c.Clients, err = kube.NewClients(config); err != nil {
		return c, err
	}
	if c.own, err = client.New(config); err != nil {
		return c, err
	}
	config = rest.CopyConfig(config)
	if config.QPS == 0 {
		config.QPS = -1
	}
	if c.all, err = kubernetes.NewForConfig(config); err != nil {
		return c, fmt.Errorf("create clients for agents: %w", err)
	}
	custom, err := dynamic.NewForConfig(config)
	if err != nil {
		return c, fmt.Errorf("create a client for agents that are custom resources: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.all.Discovery()))
	c.runner = agents.NewRunner(c.all, custom, mapper)
	return c, nil
}

// ErrNotInstalled means that the API server does not have the kinds NodeFence and FencePolicy.
var ErrNotInstalled = errors.New("the API server does not have the kinds NodeFence and FencePolicy of " +
	"csi-reclaimer.io/v1alpha1: kubectl apply -f deploy/manifests/node-fencing-crd.yaml, or leave out node-fencing of " +
	"--controllers")

// installed returns ErrNotInstalled if the API server definitely lacks the kinds, and other errors if that is unknown.
func installed(ctx context.Context, of discovery.DiscoveryInterface) error {
	list, err := of.ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	switch {
	case apierrors.IsNotFound(err):
		return ErrNotInstalled
	case err != nil:
		return fmt.Errorf("find the kinds of node-fencing: %w", err)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	for _, resource := range []string{client.FenceResource, client.PolicyResource} {
		if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }) {
			return ErrNotInstalled
		}
	}
	return nil
}
