//go:build unix

package podadmission

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

// versionVariable names another Kubernetes version to run against, as in the other suites.
const versionVariable = "KUBERNETES"

// cluster is the control plane that all tests share; client is its administrator's.
var (
	cluster *controlplane.ControlPlane
	client  *kubernetes.Clientset
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	version := controlplane.V1_36
	if name := os.Getenv(versionVariable); name != "" {
		var err error
		if version, err = controlplane.ParseVersion(name); err != nil {
			fmt.Fprintln(os.Stderr, versionVariable+":", err)
			return 1
		}
	}
	var err error
	if cluster, err = controlplane.Start(ctx, version, controlplane.Options{
		Scheduler: true, ControllerManagerQPS: 5000, Progress: os.Stderr,
	}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	if client, err = kubernetes.NewForConfig(cluster.Admin()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
