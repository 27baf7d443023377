//go:build unix

package mockdriver_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestMain(m *testing.M) { os.Exit(goroutines.Run(m)) }

func TestLedgerAndDiskRecordCalls(t *testing.T) {
	d := mockdriver.ForTest(t, mockdriver.Options{})
	handle := create(t, d)
	if got := handles(t, d); !slices.Equal(got, []string{handle}) {
		t.Fatalf("volumes on disk: got %q, want only %q", got, handle)
	}
	request := &csi.DeleteVolumeRequest{VolumeId: handle, Secrets: map[string]string{"password": "hunter2"}}
	for range 2 {
		if _, err := d.Controller().DeleteVolume(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	if got := handles(t, d); len(got) > 0 {
		t.Errorf("volumes on disk: got %q, want none", got)
	}
	calls := waitCalls(t, d, "DeleteVolume", 2)
	if first := calls[0]; !first.Changed || first.Volume != handle || first.Code != "OK" || first.Done.IsZero() ||
		!slices.Equal(first.SecretKeys, []string{"password"}) {
		t.Errorf("first deletion: got %+v, want it to have changed something", first)
	}
	if second := calls[1]; second.Changed || second.Code != "OK" {
		t.Errorf("second deletion: got %+v, want OK without a change", second)
	}
	if runtime.GOOS == "linux" && calls[0].PID != os.Getpid() {
		t.Errorf("the deletion came from process %d, want %d", calls[0].PID, os.Getpid())
	}
	created := waitCalls(t, d, "CreateVolume", 1)[0]
	if created.Name != "pvc-one" || created.Volume != handle || !created.Changed {
		t.Errorf("creation: got %+v", created)
	}
}

// The next driver removes the directory after this program was killed.
func TestDirectoryBelongsToProgram(t *testing.T) {
	d := mockdriver.ForTest(t, mockdriver.Options{})
	if _, err := os.Stat(filepath.Join(filepath.Dir(d.Socket()), "owner.lock")); err != nil {
		t.Error(err)
	}
}

func TestKilledDriverRestartsWithItsVolumes(t *testing.T) {
	d := mockdriver.ForTest(t, mockdriver.Options{Dir: t.TempDir(), Name: "other.example.com", Profile: "minimal"})
	handle := create(t, d)
	d.Kill()
	if got := handles(t, d); !slices.Equal(got, []string{handle}) {
		t.Errorf("volumes of the dead driver: got %q, want %q", got, handle)
	}
	must.OK(t, d.Restart(t.Context()))
	if again := create(t, d); again != handle {
		t.Errorf("CreateVolume again: got %q, want the same volume %q", again, handle)
	}
	info, err := csi.NewIdentityClient(d.Conn()).GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	if err != nil || info.GetName() != d.Name() {
		t.Errorf("GetPluginInfo: got %q, %v, want %q", info.GetName(), err, d.Name())
	}
	boots := map[string]bool{}
	for _, c := range waitCalls(t, d, "CreateVolume", 2) {
		boots[c.Boot] = true
	}
	if len(boots) != 2 {
		t.Errorf("ledger: got calls of boots %v, want two boots", boots)
	}
}

func TestCrashAfterWork(t *testing.T) {
	d := mockdriver.ForTest(t, mockdriver.Options{Faults: faults.Plan{Rules: []faults.Rule{
		{Method: "DeleteVolume", Action: faults.Crash, AfterWork: true},
	}}})
	handle := create(t, d)
	_, err := d.Controller().DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("DeleteVolume: got %v, want Unavailable", err)
	}
	select {
	case <-d.Done():
	case <-t.Context().Done():
		t.Fatal("the driver continues after a crash")
	}
	if got := handles(t, d); len(got) > 0 {
		t.Errorf("volumes on disk: got %q, want none", got)
	}
	must.OK(t, d.Restart(t.Context()))
	call := waitCalls(t, d, "DeleteVolume", 1)[0]
	if !call.Changed || !call.Lost || call.Code != "" {
		t.Errorf("deletion: got %+v, want it to have changed something and to be lost", call)
	}
}

func TestFaultsOfRunningDriver(t *testing.T) {
	d := mockdriver.ForTest(t, mockdriver.Options{})
	handle := create(t, d)
	plan := faults.Plan{Rules: []faults.Rule{
		{Name: "liar", Method: "DeleteVolume", First: 1, Action: faults.Fail, Code: "DeadlineExceeded", AfterWork: true},
	}}
	must.OK(t, d.SetFaults(t.Context(), plan))
	for _, want := range []codes.Code{codes.DeadlineExceeded, codes.OK} {
		if _, err := d.Controller().DeleteVolume(t.Context(),
			&csi.DeleteVolumeRequest{VolumeId: handle}); status.Code(err) != want {
			t.Errorf("DeleteVolume: got %v, want %v", err, want)
		}
	}
	calls := waitCalls(t, d, "DeleteVolume", 2)
	if c := calls[0]; !c.Changed || c.Code != "DeadlineExceeded" || c.Did != "OK" || !slices.Equal(c.Faults,
		[]string{"liar"}) {
		t.Errorf("deletion with fault: got %+v", c)
	}
	got, err := d.FaultStatus(t.Context())
	if err != nil || !slices.Equal(got.Counters, []faults.Counter{{Rule: "liar", Matched: 2, Applied: 1}}) {
		t.Errorf("fault status: got %+v, %v", got, err)
	}
	must.OK(t, d.ClearFaults(t.Context()))
	if got, err := d.FaultStatus(t.Context()); err != nil || len(got.Plan.Rules) > 0 {
		t.Errorf("fault status after clearing: got %+v, %v", got, err)
	}
}

func TestFailedStartReportsCause(t *testing.T) {
	_, err := mockdriver.Start(t.Context(), mockdriver.Options{Profile: "imaginary"})
	if err == nil {
		t.Fatal("a driver with an unknown profile starts")
	}
	t.Log(err)
}

func create(t *testing.T, d *mockdriver.Driver) string {
	t.Helper()
	answer, err := d.Controller().CreateVolume(t.Context(),
		&csi.CreateVolumeRequest{Name: "pvc-one", VolumeCapabilities: []*csi.VolumeCapability{{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		}}})
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetVolume().GetVolumeId()
}

func handles(t *testing.T, d *mockdriver.Driver) []string {
	t.Helper()
	volumes := must.Get(d.Volumes())(t)
	var ids []string
	for _, v := range volumes {
		ids = append(ids, v.ID)
	}
	return ids
}

// waitCalls waits until so many calls are in the ledger and closed: a client has its answer a moment before or after
// the ledger's last entry.
func waitCalls(t *testing.T, d *mockdriver.Driver, method string, n int) []ledger.Call {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	calls, err := d.WaitCalls(ctx, func(calls []ledger.Call) bool {
		closed := func(c ledger.Call) bool { return c.Lost || !c.Answered.IsZero() }
		return len(calls) == n && !slices.ContainsFunc(calls, func(c ledger.Call) bool { return !closed(c) })
	}, method)
	if err != nil {
		t.Fatalf("%v: %+v", err, calls)
	}
	return calls
}
