//go:build unix

package main

import (
	"context"
	"os"

	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/daemon"
	"github.com/csi-reclaimer/csi-reclaimer/test/grant"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

const (
	guardName = "volume-guard"
	// guardControllers has volume-guard look after in-tree volumes and claims in use.
	guardControllers = "--controllers=*,pvc-protection"
	// guardKubernetesVersion is the newest whose kube-controller-manager leaks in-tree volumes.
	guardKubernetesVersion = controlplane.V1_30
	// hostPath is the in-tree plugin whose volumes are directories.
	hostPath = "kubernetes.io/host-path"
)

// raiseGuard starts what the second act begins with: all but volume-guard. The stage holds what was
// started, also beside an error.
func raiseGuard(ctx context.Context, p *printer) (s *stage, err error) {
	s = &stage{p: p}
	p.head("Getting ready for volume-guard")
	t := p.liveTimeline()
	t.demo("compiling what is missing")
	binary, err := buildGuard(ctx, p)
	if err != nil {
		return s, err
	}
	// The plugin deletes nothing that is not below /tmp.
	if s.dir, err = os.MkdirTemp("/tmp", "csi-reclaimer-demo-"); err != nil {
		return s, err
	}
	options := controlplane.Options{
		// What is made while it restarts is bound with the next sync alone; the default is 15 seconds.
		ControllerManagerArgs: []string{"--pvclaimbinder-sync-period=2s"},
	}
	if err := s.startCluster(ctx, t, guardKubernetesVersion, options); err != nil {
		return s, err
	}
	s.maker = storage.Maker{Client: s.client, Namespace: "default"}
	t.demo("granting volume-guard the rights of deploy/manifests and no more")
	if err := s.prepareGuard(ctx, binary); err != nil {
		return s, err
	}
	t.demo("all up: API server " + s.cluster.URL())
	return s, nil
}

func buildGuard(ctx context.Context, p *printer) (binary string, err error) {
	ctx, cancel := context.WithTimeout(ctx, buildPatience)
	defer cancel()
	if _, err := controlplane.Build(ctx, guardKubernetesVersion, p.out); err != nil {
		return "", err
	}
	return daemon.Build(ctx, guardName, p.out)
}

// prepareGuard grants volume-guard what deploy/ grants it, and starts nothing.
func (s *stage) prepareGuard(ctx context.Context, binary string) error {
	dir, err := s.folder(guardName)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	namespace, kubeconfig, err := s.account(ctx, guardName)
	if err != nil {
		return err
	}
	s.guard = daemon.Options{Name: guardName, Binary: binary, Dir: dir, Args: []string{
		// The patience is for clusters in which Kubernetes' own controllers are slow.
		"--kubeconfig=" + kubeconfig, "--leader-election=false", guardControllers, "--protection-patience=2s",
	}}
	return grant.Guard(ctx, s.client, namespace, guardName)
}
