//go:build unix

package sanity_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/server"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// canary is the value of every secret. It must be found nowhere afterwards.
const canary = "canary-9d1f0c"

// run is one run of csi-sanity. The profiles static and node-only are missing: csi-sanity creates volumes even if the
// driver cannot, and expects every driver to have a controller service. The capability
// SNAPSHOT_ACCESSIBILITY_CONSTRAINTS is missing, too: csi-sanity compares the topologies of a snapshot with
// reflect.DeepEqual, which distinguishes a sent message from an unsent one by its cached size. So every driver that
// reports them fails. TestSnapshotTopology does the same with proto.Equal.
type run struct {
	name, profile, accessType string
	args                      []string
	// passed is how many cases pass, so that none gets lost unnoticed.
	passed int
}

func runs() []run {
	return []run{
		{name: "full", profile: "full", passed: 95},
		{name: "full, block volumes", profile: "full", accessType: "block", passed: 95},
		{name: "full, in memory", profile: "full", args: []string{"--state-dir="}, passed: 95},
		{name: "minimal", profile: "minimal", passed: 28},
		{name: "no-attach", profile: "no-attach", passed: 85},
		{name: "no-stage", profile: "no-stage", passed: 90},
		{name: "no-list", profile: "no-list", passed: 84},
		{name: "no-snapshot", profile: "no-snapshot", passed: 73},
		{name: "offline-expand", profile: "offline-expand", passed: 95},
		{name: "topology", profile: "topology", passed: 95},
		{name: "topology, of two places", profile: "topology", args: []string{"--place=zone=a@20Gi", "--place=zone=b"},
			passed: 95},
		{name: "legacy", profile: "legacy", passed: 89},
	}
}

func TestSanity(t *testing.T) {
	for _, r := range runs() {
		t.Run(r.name, r.test)
	}
}

func (r run) test(t *testing.T) {
	// csi-sanity tests an attach limit if the driver has one. All calls are logged, to check that no secret is.
	args := append([]string{"--max-volumes-per-node=3", "--log-level=debug"}, r.args...)
	d := mockdriver.ForTest(t, mockdriver.Options{Profile: r.profile, Args: args})
	report := r.sanity(t, d)

	counts := map[types.SpecState]int{}
	skipped := map[string]int{}
	for _, spec := range report.SpecReports {
		if spec.LeafNodeType != types.NodeTypeIt {
			continue
		}
		counts[spec.State]++
		switch spec.State {
		case types.SpecStatePassed:
		case types.SpecStateSkipped:
			skipped[spec.Failure.Message]++
			r.mustBeDocumented(t, spec)
		case types.SpecStatePending:
			skipped["pending upstream"]++
		default:
			t.Errorf("%s: %s\n%s", spec.FullText(), spec.State, spec.Failure.Message)
		}
	}
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		reasons = append(reasons, fmt.Sprintf("%d × %s", skipped[reason], reason))
	}
	t.Logf("csi-sanity, %s: %d passed, %d skipped (%s)", r.name, counts[types.SpecStatePassed],
		counts[types.SpecStateSkipped]+counts[types.SpecStatePending], strings.Join(reasons, "; "))
	if got := counts[types.SpecStatePassed]; got != r.passed {
		t.Errorf("passed: got %d cases, want %d", got, r.passed)
	}
	if got := counts[types.SpecStatePending]; got != 1 {
		t.Errorf("pending: got %d cases, want the one about paging", got)
	}
	r.mustLeaveNothing(t, d)
}

// sanity runs csi-sanity in a process of its own and returns ginkgo's report.
func (r run) sanity(t *testing.T, d *mockdriver.Driver) types.Report {
	t.Helper()
	dir := t.TempDir()
	s := suite{
		Address: d.Endpoint(), Report: filepath.Join(dir, "report.json"), Dir: dir,
		Secrets: filepath.Join(dir, "secrets.yaml"), AccessType: r.accessType,
	}
	must.OK(t, os.WriteFile(s.Secrets, []byte(secrets()), 0o600))
	settings := must.Get(json.Marshal(s))(t)
	self := must.Get(os.Executable())(t)
	failed := process.Run(t.Context(),
		process.Command{Name: "csi-sanity", Path: self, Env: []string{suiteVariable + "=" + string(settings)}, Dir: dir})
	data, err := os.ReadFile(s.Report)
	if err != nil {
		t.Fatalf("csi-sanity left no report: %v\n%v", err, failed)
	}
	var reports []types.Report
	if err := json.Unmarshal(data, &reports); err != nil || len(reports) != 1 {
		t.Fatalf("read ginkgo's report: %d suites, %v", len(reports), err)
	}
	if failed != nil {
		t.Errorf("csi-sanity: %v", failed)
	}
	return reports[0]
}

// secrets is a secret for every call that csi-sanity has one for.
func secrets() string {
	var b strings.Builder
	for _, call := range []string{
		"CreateVolume", "DeleteVolume", "ControllerPublishVolume", "ControllerUnpublishVolume",
		"ControllerValidateVolumeCapabilities",
		"NodeStageVolume", "NodePublishVolume", "CreateSnapshot", "DeleteSnapshot", "ControllerExpandVolume",
		"ControllerModifyVolume",
		"ListSnapshots", "GetSnapshot",
	} {
		fmt.Fprintf(&b, "%sSecret:\n  password: %s\n", call, canary)
	}
	return b.String()
}

// mustBeDocumented accepts a skipped case only if the driver does not advertise the capability that the case is about.
func (r run) mustBeDocumented(t *testing.T, spec types.SpecReport) {
	t.Helper()
	profile := must.Get(server.FindProfile(r.profile))(t)
	capability, known := skips()[spec.Failure.Message]
	switch {
	case !known:
		t.Errorf("%s: skipped for an unknown reason: %s", spec.FullText(), spec.Failure.Message)
	case profile.Capabilities[capability]:
		t.Errorf("%s: skipped (%s), although the driver advertises %s", spec.FullText(), spec.Failure.Message, capability)
	}
}

// skips are the reasons that csi-sanity gives, and the capabilities that they are about.
func skips() map[string]server.Capability {
	return map[string]server.Capability{
		"GetCapacity not supported":                                 server.GetCapacity,
		"ListVolumes not supported":                                 server.ListVolumes,
		"Snapshot not supported":                                    server.CreateDelSnapshot,
		"Volume Cloning not supported":                              server.CloneVolume,
		"Modify volume not supported":                               server.ModifyVolume,
		"Modify Volume not supported":                               server.ModifyVolume,
		"ControllerPublishVolume not supported":                     server.PublishUnpublish,
		"ControllerPublishVolume.readonly field not supported":      server.PublishReadonly,
		"Controller Publish, UnpublishVolume not supported":         server.PublishUnpublish,
		"ControllerUnpublishVolume not supported":                   server.PublishUnpublish,
		"ListSnapshots not supported":                               server.ListSnapshots,
		"GetSnapshot not supported":                                 server.GetSnapshot,
		"DeleteSnapshot not supported":                              server.CreateDelSnapshot,
		"CreateSnapshot not supported":                              server.CreateDelSnapshot,
		"SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported":          server.SnapshotTopology,
		"ControllerExpandVolume not supported":                      server.ControllerExpand,
		"ControllerModifyVolume not supported":                      server.ModifyVolume,
		"ControllerGetVolumeHealth not supported":                   server.ControllerHealth,
		"ControllerListVolumeHealth not supported":                  server.ListVolumeHealth,
		"Service does not have single node multi writer capability": server.NodeWriters,
		"NodeStageVolume not supported":                             server.NodeStage,
		"NodeUnstageVolume not supported":                           server.NodeStage,
		"NodeGetVolume not supported":                               server.NodeStats,
		"NodeExpandVolume not supported":                            server.NodeExpand,
		"NodeGetVolumeHealth not supported":                         server.NodeHealth,
		"NodeGetStorageHealth not supported":                        server.NodeStorageHealth,
		"GroupControllerService not supported":                      "plugin/GROUP_CONTROLLER_SERVICE", // Never advertised.
	}
}

// mustLeaveNothing checks the driver's state and files once csi-sanity has cleaned up.
func (r run) mustLeaveNothing(t *testing.T, d *mockdriver.Driver) {
	t.Helper()
	volumes, err := d.Volumes()
	if err != nil || len(volumes) > 0 {
		t.Errorf("volumes left: %v, %v", volumes, err)
	}
	snapshots, err := d.Snapshots()
	if err != nil || len(snapshots) > 0 {
		t.Errorf("snapshots left: %v, %v", snapshots, err)
	}
	calls, err := d.Calls()
	if err != nil || len(calls) < r.passed {
		t.Errorf("ledger: got %d calls, %v", len(calls), err)
	}
	for _, path := range []string{d.LogPath(), d.LedgerPath()} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		if !strings.Contains(string(data), "DeleteVolume") {
			t.Errorf("%s does not know of any DeleteVolume", filepath.Base(path))
		}
		if strings.Contains(string(data), canary) {
			t.Errorf("%s contains a secret", filepath.Base(path))
		}
	}
}
