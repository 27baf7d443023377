//go:build unix

package operations

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// environment is the environment of a test, with the helpers of this suite.
type environment struct{ *fixture.Environment }

// begin returns the environment of a test that runs beside the others, if the conditions hold.
func begin(t *testing.T, conditions ...fixture.Condition) *environment {
	t.Helper()
	fixture.Begin(t, conditions...)
	return &environment{fixture.New(t)}
}

func newForRole(t *testing.T, role string, options mockdriver.Options) *environment {
	t.Helper()
	return &environment{fixture.NewForRole(t, role, options)}
}

func TestInvalidInputEndsInOneLine(t *testing.T) {
	env := begin(t, fixture.AboutProgram)
	badName := serveNameless(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	env.Must(os.WriteFile(file, nil, 0o600))
	link := filepath.Join(dir, "link")
	env.Must(os.Symlink(env.MockDriver.Socket(), link))
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	env.Must(err)
	t.Cleanup(func() { _ = busy.Close() })

	good := map[string]string{"--csi-address": env.MockDriver.Socket(), "--kubeconfig": env.Kubeconfig}
	cases := map[string]struct {
		flag, value string
		want        []string
	}{
		"a scheme that is no socket's": {"--csi-address", "tcp://127.0.0.1:1", []string{"tcp", "unix://"}},
		"a folder that is not there": {"--csi-address", "/not/there/csi.sock",
			[]string{"/not/there", "does not exist"}},
		"a path that is not absolute":         {"--csi-address", "csi.sock", []string{"absolute"}},
		"a file that is no socket":            {"--csi-address", file, []string{file, "regular file"}},
		"a symbolic link":                     {"--csi-address", link, []string{link, "symbolic link"}},
		"a path longer than a socket can be":  {"--csi-address", "/" + strings.Repeat("x", 200), []string{"bytes"}},
		"a driver whose name is none":         {"--csi-address", badName, []string{"not a name", "domain name"}},
		"a kubeconfig that is not there":      {"--kubeconfig", filepath.Join(dir, "none"), []string{"none", "no such file"}},
		"a kubeconfig that is no such file":   {"--kubeconfig", file, []string{file}},
		"a role that does not exist":          {"--role", "boss", []string{"boss", "owner"}},
		"no workers":                          {"--worker-threads", "0", []string{"--worker-threads=0"}},
		"a port that is taken":                {"--http-endpoint", busy.Addr().String(), []string{"in use"}},
		"a flag that does not exist":          {"--delete-everything", "true", []string{"--delete-everything"}},
		"retries that shrink":                 {"--retry-interval-max", "1ms", []string{"--retry-interval-max"}},
		"a log format that does not exist":    {"--logging-format", "xml", []string{"xml"}},
		"a metrics path that is no such path": {"--metrics-path", "metrics", []string{"--metrics-path"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var args []string
			for flag, value := range good {
				if flag != c.flag {
					args = append(args, flag+"="+value)
				}
			}
			p, err := process.Start(process.Command{Path: fixture.SidecarBinary(t), Args: append(args, c.flag+"="+c.value)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			select {
			case <-p.Done():
			case <-env.WithTimeout().Done():
				t.Fatalf("csi-reclaimer did not end:\n%s", p.LogTail(20))
			}
			var output []string
			for line := range strings.Lines(p.LogTail(50)) {
				if strings.HasPrefix(line, "csi-reclaimer: ") {
					output = append(output, strings.TrimSpace(line))
				}
			}
			if p.Err() == nil || !strings.Contains(p.Err().Error(), "exit status 1") {
				t.Errorf("ended with %v, want exit status 1", p.Err())
			}
			if len(output) != 1 {
				t.Fatalf("output %q, want one line", output)
			}
			for _, want := range c.want {
				if !strings.Contains(output[0], want) {
					t.Errorf("output %q, want it to name %q", output[0], want)
				}
			}
		})
	}
}

// badlyNamed is a driver that gets as far as its name.
type badlyNamed struct {
	csi.UnimplementedIdentityServer
}

func (badlyNamed) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (badlyNamed) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: "not a name"}, nil
}

// serveNameless serves a driver with an invalid name, and returns its socket.
func serveNameless(t *testing.T) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "csi-"))(t)
	socket := filepath.Join(dir, "csi.sock")
	listener := must.Get(net.Listen("unix", socket))(t)
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, badlyNamed{})
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-done
		_ = os.RemoveAll(dir)
	})
	return socket
}

// TestStockCommandLineIsAccepted starts csi-reclaimer with the flags, feature gates and environment of a stock
// external-provisioner, including rarely used ones, and creates a volume.
func TestStockCommandLineIsAccepted(t *testing.T) {
	env := begin(t, fixture.AboutProgram)
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
	lease := env.Leases().Get(name)
	if lease.Labels["example.com/team"] != "storage" || lease.Labels["tier"] != "one" {
		t.Errorf("the Lease has the labels %v", lease.Labels)
	}
	env.WaitMetric(car, `leader_election_master_status{name="`+name+`"}`, "1")
	holder := func() string {
		lease := env.Leases().Get(name)
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

// TestReplicasOfOneHostLeadOneAfterAnother runs two replicas with one host name, as pods with the host's network do.
func TestReplicasOfOneHostLeadOneAfterAnother(t *testing.T) {
	env := begin(t, fixture.AboutProgram)
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
	env := begin(t, suite.WaitsForClock, fixture.AboutLoad)
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
	env.SetFaults(faults.Rule{Method: "DeleteVolume", Action: faults.Delay,
		Delay: faults.Duration(100 * time.Millisecond)})
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
	names := fixture.Names(vols)
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
