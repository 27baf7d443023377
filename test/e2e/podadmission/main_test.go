//go:build unix

package podadmission

import (
	"context"
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// cluster is the control plane that all tests share; client is its administrator's.
var (
	cluster *controlplane.ControlPlane
	client  *kubernetes.Clientset
)

func TestMain(m *testing.M) {
	os.Exit(suite.Suite{
		Options:  controlplane.Options{Scheduler: true, ControllerManagerQPS: 5000, Progress: os.Stderr},
		Install:  install,
		Webhooks: []string{holdWebhookFile},
	}.Main(m))
}

// install applies an operator's manifests for this version.
func install(ctx context.Context, c *controlplane.ControlPlane, admin *kubernetes.Clientset) error {
	cluster, client = c, admin
	for _, file := range manifests.PodSafety(c.Version()) {
		all, err := readManifest(file)
		if err != nil {
			return err
		}
		if err := apply(ctx, all...); err != nil {
			return err
		}
	}
	return manifests.WaitPolicies(ctx, c.Admin())
}
