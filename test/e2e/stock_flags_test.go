//go:build unix

package e2e

import (
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/daemon"
)

// TestTheStockCommandLineIsTaken starts csi-reclaimer with the flags, the feature gates and the environment of a stock
// external-provisioner that uses those which manifests seldom have, and has it make a volume.
func TestTheStockCommandLineIsTaken(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	car, err := daemon.Start(s.ctx, daemon.Options{
		Name: "csi-reclaimer", Progress: os.Stderr, Env: []string{"KUBECONFIG=" + s.kube},
		Args: []string{
			"--csi-address=" + s.driver.Socket(), "--master=" + s.plane.Admin().Host, "--automaxprocs", "--kube-api-qps=50", "--timeout=15s",
			"--leader-election", "--leader-election-namespace=" + s.Namespace, "--leader-election-labels=example.com/team:storage,tier:one",
			"--feature-gates=Topology=true,ReleaseLeaderElectionOnExit=true,VolumeAttributesClass=true", "--worker-threads=20",
		},
	})
	s.must(err)
	t.Cleanup(func() { _ = car.Stop() })
	s.must(car.WaitReady(s.soon()))
	vol := s.bound(s.claim(s.class()))
	s.deleteClaim(vol.claim)
	s.must(vol.WaitGone(s.soon()))
	s.nothingLeft(vol.claim)

	name := strings.ReplaceAll(s.Driver, ".", "-")
	lease, err := s.client.CoordinationV1().Leases(s.Namespace).Get(s.ctx, name, metav1.GetOptions{})
	s.must(err)
	if lease.Labels["example.com/team"] != "storage" || lease.Labels["tier"] != "one" {
		t.Errorf("the Lease has the labels %v", lease.Labels)
	}
	s.metric(car, `leader_election_master_status{name="`+name+`"}`, "1")
	holder := func() string {
		lease, err := s.client.CoordinationV1().Leases(s.Namespace).Get(s.ctx, name, metav1.GetOptions{})
		s.must(err)
		return *lease.Spec.HolderIdentity
	}
	s.must(car.Terminate())
	if h := holder(); h != "" {
		t.Errorf("after the end the Lease is held by %q", h)
	}
	s.must(car.Restart("--feature-gates=ReleaseLeaderElectionOnExit=false"))
	s.must(car.WaitLog(s.soon(), "Became the leader"))
	s.must(car.Terminate())
	if holder() == "" {
		t.Error("with ReleaseLeaderElectionOnExit=false the Lease was released")
	}
}
