//go:build unix

package deploy

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// cluster is the control plane that all tests share; client is its administrator's. interrupted ends with a signal.
var (
	cluster     *controlplane.ControlPlane
	client      *kubernetes.Clientset
	interrupted context.Context
)

// patience bounds a whole test, with the programs that it compiles. It is far above the usual time, even on a busy
// machine.
const patience = 10 * time.Minute

var must, until = suite.Must, suite.Until

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, stop := suite.Interruptible()
	defer stop()
	interrupted = ctx
	var err error
	if cluster, err = controlplane.Start(ctx, controlplane.Newest, controlplane.Options{Progress: os.Stderr}); err != nil {
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

func patiently(t *testing.T) context.Context {
	t.Helper()
	return suite.Context(interrupted, t, patience)
}
