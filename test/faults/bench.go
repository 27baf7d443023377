//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/faults/oracle"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/rundir"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// Bench is a control plane on which scenarios are played, any number at once: each has a driver, a namespace, a sidecar
// and a line of its own. Its methods may be called from any goroutine.
type Bench struct {
	cluster         *controlplane.ControlPlane
	client          kubernetes.Interface
	recorder        *recorder
	driver, sidecar string // the binaries
	dir             *rundir.Dir
}

// Open compiles the programs, the sidecar with goFlags, and starts a control plane. Close ends it. progress, which may
// be nil, receives the progress of compilations.
func Open(ctx context.Context, progress io.Writer, goFlags ...string) (_ *Bench, err error) {
	b := &Bench{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open bench: %w", err), b.Close())
		}
	}()
	if b.dir, err = rundir.New("faults-"); err != nil {
		return nil, err
	}
	policy := filepath.Join(b.dir.Path(), "audit-policy.yaml")
	if err = os.WriteFile(policy, []byte(oracle.AuditPolicy), 0o600); err != nil {
		return nil, err
	}
	if b.driver, err = mockdriver.Build(ctx, progress); err != nil {
		return nil, err
	}
	if b.sidecar, err = program.BuildSidecar(ctx, progress, goFlags...); err != nil {
		return nil, err
	}
	b.cluster, err = controlplane.Start(ctx, controlplane.Newest, controlplane.Options{
		AuditLog: true, ControllerManagerQPS: 5000, Progress: progress,
		APIServerArgs:         []string{"--audit-policy-file=" + policy},
		ControllerManagerArgs: []string{controlplane.BindOften},
	})
	if err != nil {
		return nil, err
	}
	if b.client, err = kubernetes.NewForConfig(b.cluster.Admin()); err != nil {
		return nil, err
	}
	b.recorder, err = record(ctx, b.client)
	return b, err
}

// Close ends the control plane and removes the files of Open.
func (b *Bench) Close() error {
	var err error
	if b.recorder != nil {
		b.recorder.stop()
	}
	if b.cluster != nil {
		err = b.cluster.Stop()
	}
	if b.dir != nil {
		err = errors.Join(err, b.dir.Remove())
	}
	return err
}
