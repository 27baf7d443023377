//go:build unix

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/sidecar"
)

// cluster is the control plane that all tests share; each has a driver name and a
// namespace of its own. program is csi-reclaimer with the race detector: it ends with an
// error when it has raced, which fails the test that stops it.
var (
	cluster *controlplane.ControlPlane
	program string
	version = controlplane.V1_36
)

// versionVariable names another Kubernetes version to run against, such as v1.30.
const versionVariable = "KUBERNETES"

// fullVariable, if it is set, has tests of load take as many volumes as they claim figures for.
const fullVariable = "FULL"

// size is how many of something a test of load takes.
func size(full, quick int) int {
	if os.Getenv(fullVariable) != "" {
		return full
	}
	return quick
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if name := os.Getenv(versionVariable); name != "" {
		if version, err = controlplane.ParseVersion(name); err != nil {
			fmt.Fprintln(os.Stderr, versionVariable+":", err)
			return 1
		}
	}
	// A claim that is seen before its PV waits for the next round, 15 seconds by default.
	managerArgs := []string{"--pvclaimbinder-sync-period=2s"}
	if version == controlplane.V1_30 {
		// On by default from 1.31, without a gate from 1.36.
		managerArgs = append(managerArgs, "--feature-gates=CSIMigrationPortworx=true")
	}
	cluster, err = controlplane.Start(ctx, version, controlplane.Options{
		AuditLog: true, Scheduler: true, ControllerManagerQPS: 5000, Progress: os.Stderr,
		ControllerManagerArgs: managerArgs,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	if _, err = mockdriver.Build(ctx, os.Stderr); err == nil {
		program, err = sidecar.Build(ctx, os.Stderr, "-race")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
