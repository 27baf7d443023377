//go:build unix

package main

import (
	"context"
	"os"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

const (
	guardName = "volume-guard"
	// guardControllers has volume-guard look after in-tree volumes and claims in use.
	guardControllers = "--controllers=*,pvc-protection"
	// guardKubernetesVersion is the newest version of the tests whose kube-controller-manager leaks in-tree volumes.
	guardKubernetesVersion = controlplane.V1_30
	// hostPath is the in-tree plugin whose volumes are directories.
	hostPath = "kubernetes.io/host-path"
)

// setUpGuard starts everything for the third act except volume-guard. With an error, the environment still holds the
// started parts.
func setUpGuard(ctx context.Context, p *printer) (env *environment, err error) {
	env = &environment{p: p}
	p.head("Getting ready for volume-guard")
	t := p.liveTimeline()
	t.demo("compiling missing programs")
	binary, err := buildGuard(ctx, p)
	if err != nil {
		return env, err
	}
	// The plugin deletes nothing that is not below /tmp.
	if env.dir, err = os.MkdirTemp("/tmp", "csi-reclaimer-demo-"); err != nil {
		return env, err
	}
	options := controlplane.Options{
		ControllerManagerArgs: []string{controlplane.BindOften}, // objects are created during its restart
	}
	if err := env.startCluster(ctx, t, guardKubernetesVersion, options); err != nil {
		return env, err
	}
	env.maker = objects.Maker{Client: env.client, Namespace: "default"}
	t.demo("granting volume-guard the permissions of deploy/manifests and no more")
	if err := env.prepareGuard(ctx, binary); err != nil {
		return env, err
	}
	t.demo("all up: API server " + env.cluster.URL())
	return env, nil
}

func buildGuard(ctx context.Context, p *printer) (binary string, err error) {
	ctx, cancel := context.WithTimeout(ctx, buildPatience)
	defer cancel()
	if _, err := controlplane.Build(ctx, guardKubernetesVersion, p.out); err != nil {
		return "", err
	}
	return program.Build(ctx, guardName, p.out)
}

// prepareGuard grants volume-guard its permissions from deploy/, and starts nothing.
func (env *environment) prepareGuard(ctx context.Context, binary string) error {
	dir, err := env.folder(guardName)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	namespace, kubeconfig, err := env.account(ctx, guardName)
	if err != nil {
		return err
	}
	env.guard = program.Options{Name: guardName, Binary: binary, Dir: dir, Args: []string{
		// The patience is for clusters in which Kubernetes' own controllers are slow.
		"--kubeconfig=" + kubeconfig, "--leader-election=false", guardControllers, "--protection-patience=2s",
	}}
	return rbac.GrantGuard(ctx, env.client, namespace, guardName)
}
