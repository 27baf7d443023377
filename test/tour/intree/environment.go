//go:build unix

package intree

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/tour/guard"
)

const (
	// controllers has volume-guard look after in-tree volumes and claims in use.
	controllers = "--controllers=*,pvc-protection"
	// kubernetesVersion is the newest version of the tests whose kube-controller-manager leaks in-tree volumes.
	kubernetesVersion = controlplane.V1_30
	// hostPath is the in-tree plugin whose volumes are directories.
	hostPath = "kubernetes.io/host-path"
)

// environment is the cluster of the act, and volume-guard with the kubeconfig of its account.
type environment struct {
	*cluster.Cluster
	binary, kubeconfig string
}

// setUp starts everything except volume-guard. With an error, the environment still holds the started parts.
func setUp(ctx context.Context, p *stage.Printer) (env *environment, err error) {
	// The plugin deletes nothing that is not below /tmp.
	env = &environment{Cluster: &cluster.Cluster{Printer: p, Parent: "/tmp"}}
	p.Head("Getting ready for volume-guard")
	t := p.LiveTimeline()
	t.Demo("compiling missing programs")
	if err := env.build(ctx); err != nil {
		return env, err
	}
	options := controlplane.Options{
		ControllerManagerArgs: []string{controlplane.BindOften}, // objects are created during its restart
	}
	if err := env.StartPlane(ctx, t, kubernetesVersion, options); err != nil {
		return env, err
	}
	env.Maker = objects.Maker{Client: env.Client, Namespace: "default"}
	t.Demo("granting volume-guard the permissions of deploy/manifests and no more")
	if err := env.grant(ctx); err != nil {
		return env, err
	}
	t.Demo("all up: API server " + env.Plane.URL())
	return env, nil
}

func (env *environment) build(ctx context.Context) (err error) {
	building, cancel := context.WithTimeout(ctx, cluster.BuildPatience)
	defer cancel()
	if _, err := controlplane.Build(building, kubernetesVersion, env.Printer.Out); err != nil {
		return err
	}
	env.binary, err = guard.Build(ctx, env.Cluster)
	return err
}

// grant grants volume-guard its permissions from deploy/, and starts nothing.
func (env *environment) grant(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	namespace, kubeconfig, err := env.Account(ctx, guard.Name)
	if err != nil {
		return err
	}
	env.kubeconfig = kubeconfig
	return rbac.GrantGuard(ctx, env.Client, namespace, guard.Name)
}
