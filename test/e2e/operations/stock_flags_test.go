//go:build unix

package operations

import (
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// TestStockCommandLineIsAccepted starts csi-reclaimer with the flags, feature gates and environment of a stock
// external-provisioner, including rarely used ones, and creates a volume.
func TestStockCommandLineIsAccepted(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutProgram)
	t.Parallel()
	env := newEnvironment(t)
	car, err := program.Start(env.Ctx, program.Options{
		Name: "csi-reclaimer", Progress: os.Stderr, Env: []string{"KUBECONFIG=" + env.Kubeconfig},
		Args: append(fixture.LongLease(),
			"--csi-address="+env.MockDriver.Socket(), "--master="+env.Plane.Admin().Host, "--automaxprocs",
			"--kube-api-qps=50", "--timeout=15s",
			"--leader-election", "--leader-election-namespace="+env.Namespace,
			"--leader-election-labels=example.com/team:storage,tier:one",
			"--feature-gates=Topology=true,ReleaseLeaderElectionOnExit=true,VolumeAttributesClass=true", "--worker-threads=20",
		),
	})
	env.Must(err)
	t.Cleanup(func() { _ = car.Stop() })
	env.Must(car.WaitReady(env.WithTimeout()))
	vol := env.WaitBound(env.CreateClaim(env.CreateStorageClass()))
	env.MustDeleteClaim(vol.BoundClaim)
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.ExpectNothingLeft(vol.BoundClaim)

	name := strings.ReplaceAll(env.Driver, ".", "-")
	lease, err := env.Client.CoordinationV1().Leases(env.Namespace).Get(env.Ctx, name, metav1.GetOptions{})
	env.Must(err)
	if lease.Labels["example.com/team"] != "storage" || lease.Labels["tier"] != "one" {
		t.Errorf("the Lease has the labels %v", lease.Labels)
	}
	env.WaitMetric(car, `leader_election_master_status{name="`+name+`"}`, "1")
	holder := func() string {
		lease, err := env.Client.CoordinationV1().Leases(env.Namespace).Get(env.Ctx, name, metav1.GetOptions{})
		env.Must(err)
		return *lease.Spec.HolderIdentity
	}
	env.Must(car.Terminate())
	if h := holder(); h != "" {
		t.Errorf("after the end the Lease is held by %q", h)
	}
	env.Must(car.Restart("--feature-gates=ReleaseLeaderElectionOnExit=false"))
	env.Must(car.WaitLog(env.WithTimeout(), "Became the leader"))
	env.Must(car.Terminate())
	if holder() == "" {
		t.Error("with ReleaseLeaderElectionOnExit=false the Lease was released")
	}
}
