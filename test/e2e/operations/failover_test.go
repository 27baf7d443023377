//go:build unix

package operations

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// TestReplicasOfOneHostLeadOneAfterAnother runs two replicas with one host name, as pods with the host's network do.
func TestReplicasOfOneHostLeadOneAfterAnother(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutProgram)
	t.Parallel()
	env := newEnvironment(t)
	flags := []string{"--leader-election", "--leader-election-namespace=" + env.Namespace, "-v=5"}
	former := env.StartSidecar(flags...)
	env.Must(former.WaitLog(env.WithTimeout(), "Became the leader"))
	next := env.StartSidecar(flags...)
	// client-go logs so for each try that another holder refuses.
	env.Must(next.WaitLog(env.WithTimeout(), "not yet expired"))
	if strings.Contains(next.LogTail(1000), "Became the leader") {
		t.Fatal("two replicas lead at once")
	}
	vol := env.WaitBound(env.CreateClaim(env.CreateStorageClass()))
	env.Must(former.Terminate())
	env.Must(next.WaitLog(env.WithTimeout(), "Became the leader"))
	env.MustDeleteClaim(vol.BoundClaim)
	env.Must(vol.WaitGone(env.WithTimeout()))
}

// TestFormerLeaderMakesNoDeletions pauses the leader during deletions, for longer than its lease, and resumes it when
// the next leader has deleted all volumes.
func TestFormerLeaderMakesNoDeletions(t *testing.T) {
	suite.Deep(t, suite.WaitsForClock)
	fixture.NewestOnly(t, fixture.AboutLoad)
	t.Parallel()
	env := newEnvironment(t)
	user, kubeconfig := env.SecondAccount("former")
	flags := func(replica []string) []string {
		return slices.Concat(fixture.FastRetries(),
			[]string{"--leader-election", "--leader-election-namespace=" + env.Namespace, "--worker-threads=4"}, replica)
	}
	former := env.StartReplica(program.Options{
		Name: "csi-reclaimer", Binary: fixture.SidecarBinary(t),
		Args: append([]string{"--csi-address=" + env.MockDriver.Socket(), "--kubeconfig=" + kubeconfig},
			flags(fixture.ReplicaFlags("former"))...),
	})
	next := env.StartSidecar(flags(fixture.NextReplicaFlags("next"))...)

	any := func(int) objects.Spec { return objects.Spec{Dynamic: true} }
	underway, waiting := env.MakeVolumes(30, any), env.MakeVolumes(60, any)
	all := slices.Concat(underway, waiting)
	env.WaitAllPVs(all, "protected", fixture.IsProtected)
	env.Must(env.MockDriver.SetFaults(env.Ctx, faults.Plan{Rules: []faults.Rule{
		{Method: "DeleteVolume", Action: faults.Delay, Delay: faults.Duration(100 * time.Millisecond)},
	}}))
	env.ForEachVolume(all, func(vol *objects.Volume) error { return vol.DeletePV(env.Ctx) })
	env.ForEachVolume(underway, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.Eventually("the leader deletes volumes", func() bool { return len(env.DeleteCallCounts()) >= 4 })
	pid := former.PID()
	env.Must(former.Pause())
	env.ForEachVolume(waiting, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.Must(next.WaitLog(env.WithTimeout(), "Became the leader"))
	env.WaitAllPVs(all, "gone", fixture.IsGone)

	resumed := time.Now()
	env.Must(former.Resume())
	env.ExpectNoWritesAfter(former, user, resumed)

	disk := env.VolumesOnDisk()
	calls, err := env.MockDriver.Calls("DeleteVolume")
	env.Must(err)
	byFormer, byNext := map[string]int{}, map[string]int{}
	late := 0
	for _, call := range calls {
		switch {
		case call.PID != pid:
			byNext[call.Volume]++
		case call.Received.After(resumed):
			late++
		default:
			byFormer[call.Volume]++
		}
	}
	if late > 0 {
		t.Errorf("the former leader sent %d DeleteVolume calls after its lease had run out", late)
	}
	for _, vol := range all {
		// The driver may have finished calls of the former leader whose answers were lost.
		if disk[vol.Handle] || byNext[vol.Handle] > 1 || byFormer[vol.Handle]+byNext[vol.Handle] < 1 {
			t.Errorf("volume %s: on disk %v, %d DeleteVolume calls by the former leader, %d by the next", vol.Handle,
				disk[vol.Handle], byFormer[vol.Handle], byNext[vol.Handle])
		}
	}
	for _, vol := range waiting {
		if byFormer[vol.Handle] != 0 || byNext[vol.Handle] != 1 {
			t.Errorf("volume %s: %d DeleteVolume calls by the former leader, %d by the next, want 1 by the next", vol.Handle,
				byFormer[vol.Handle], byNext[vol.Handle])
		}
	}
	env.expectNoReports(waiting, "ReclaimAbandoned", "VolumeLeftBehind")
	t.Logf("%d volumes were deleted by the former leader before it stopped, %d by the next", len(byFormer), len(byNext))
}

// expectNoReports checks that none of the PVs has an Event with these reasons.
func (env *environment) expectNoReports(vols []*objects.Volume, reasons ...string) {
	env.T.Helper()
	names := map[string]bool{}
	for _, vol := range vols {
		names[vol.Name] = true
	}
	for _, reason := range reasons {
		list, err := env.Client.CoreV1().Events(metav1.NamespaceDefault).List(env.Ctx,
			metav1.ListOptions{FieldSelector: "reason=" + reason})
		env.Must(err)
		reported := 0
		for _, e := range list.Items {
			if names[e.InvolvedObject.Name] {
				reported++
			}
		}
		if reported > 0 {
			env.T.Errorf("%d Events %s about volumes that were deleted as they should be", reported, reason)
		}
	}
}
