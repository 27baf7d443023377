//go:build unix

package deploy

import (
	"os"
	"testing"

	shipped "github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

// live is both programs as they run, beside a driver and in a namespace of their own.
type live struct {
	car, keeper *program.Program
	driver      *mockdriver.Driver
	maker       objects.Maker
}

// buildBoth compiles both programs, which takes longer than anything else here on a busy machine.
func buildBoth(t *testing.T) {
	t.Helper()
	for _, name := range []string{"csi-reclaimer", guard} {
		if _, err := program.Build(t.Context(), name, os.Stderr); err != nil {
			t.Fatal(err)
		}
	}
}

// startBoth starts a driver, and both programs with all that they can do; carArgs are further ones of csi-reclaimer.
func startBoth(t *testing.T, options mockdriver.Options, carArgs ...string) live {
	t.Helper()
	ctx := patiently(t)
	namespace, err := cluster.CreateNamespace(ctx, "scrape-")
	must(t, err)
	options.Profile = "no-attach"
	driver := mockdriver.ForTest(t, options)
	maker := objects.Maker{Client: client, Driver: driver.Name(), Namespace: namespace, CSI: driver.Controller()}
	must(t, rbac.GrantSidecar(ctx, client, namespace, "csi-reclaimer", "owner"))
	must(t, rbac.GrantCapacity(ctx, client, namespace, "csi-reclaimer"))
	must(t, rbac.GrantLeakCheck(ctx, client, namespace, "csi-reclaimer"))
	must(t, rbac.GrantGuard(ctx, client, namespace, guard))
	must(t, shipped.Apply(ctx, cluster.Admin(), shipped.NodeFencingCRD))

	car, err := program.StartSidecar(ctx, program.SidecarOptions{
		Address: driver.Socket(), Kubeconfig: kubeconfigOf(t, namespace, "csi-reclaimer"), Progress: os.Stderr,
		Args: append([]string{"--enable-capacity", "--capacity-ownerref-level=-1", "--leader-election", leaseDuration,
			renewDeadline}, carArgs...),
		Env: []string{"NAMESPACE=" + namespace, "POD_NAMESPACE=" + namespace, "POD_NAME=none"},
	})
	must(t, err)
	stopLater(t, car)
	keeper, err := program.Start(ctx, program.Options{
		Name: guard, Progress: os.Stderr, Env: []string{"POD_NAMESPACE=" + namespace},
		Args: []string{"--kubeconfig=" + kubeconfigOf(t, namespace, guard),
			"--controllers=*,pvc-protection,pv-protection,pod-safety,single-node,statefulset-claims,node-fencing",
			"--webhook-address=127.0.0.1:0", leaseDuration, renewDeadline},
	})
	must(t, err)
	stopLater(t, keeper)
	return live{car: car, keeper: keeper, driver: driver, maker: maker}
}

// A program keeps its lease also on a machine that keeps it, or its API server, waiting.
const (
	leaseDuration = "--leader-election-lease-duration=60s"
	renewDeadline = "--leader-election-renew-deadline=40s"
)

// kubeconfigOf returns a kubeconfig file of a service account.
func kubeconfigOf(t *testing.T, namespace, account string) string {
	t.Helper()
	config, err := cluster.ServiceAccount(patiently(t), namespace, account)
	must(t, err)
	path, err := cluster.Kubeconfig(config)
	must(t, err)
	return path
}
