package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/server"
)

// flags are the settings, as far as flags set them unchanged, and the flags that have to be converted.
type flags struct {
	settings
	endpoint, capacity, maxVolumeSize, faultPlan, logLevel          string
	nodes, kubelets, enable, disable, places, staticVolumes, delays []string
	topology                                                        map[string]string
	printVersion                                                    bool
}

// group is a set of flags under one title of the help.
type group struct {
	title string
	flags *pflag.FlagSet
}

func (f *flags) groups() []group {
	var groups []group
	for _, g := range []struct {
		title string
		add   func(*pflag.FlagSet)
	}{
		{"Serving", f.serving}, {"Kind of driver", f.kind}, {"State", f.state},
		{"Behaviour", f.behaviourFlags}, {"Faults", f.faultFlags},
	} {
		set := pflag.NewFlagSet(g.title, pflag.ContinueOnError)
		set.SortFlags = false
		g.add(set)
		groups = append(groups, group{title: g.title, flags: set})
	}
	return groups
}

func (f *flags) serving(s *pflag.FlagSet) {
	s.StringVar(&f.endpoint, "endpoint", "",
		"unix socket to serve on, such as unix:///tmp/csi.sock (required); the socket of a dead predecessor is replaced")
	s.StringVar(&f.server.Name, "name", defaultName, "name of the driver")
	s.StringVar(&f.server.Version, "vendor-version", defaultVersion, "version that GetPluginInfo reports")
	s.StringVar(&f.server.NodeID, "node-id", defaultNode, "node that the node service runs on")
	s.StringSliceVar(&f.nodes, "nodes", nil, "further nodes that volumes can be attached to")
	s.StringArrayVar(&f.kubelets, "kubelet", nil,
		"further node, as NODE=DIRECTORY with the --root-dir of its kubelet: the driver registers there, and mounts volumes "+
			"for the node's pods; may be repeated; needs root")
	s.DurationVar(&f.server.ReadyAfter, "ready-after", 0,
		"how long Probe reports not ready, and other calls are answered Unavailable")
	s.DurationVar(&f.server.Grace, "grace", 5*time.Second, "how long calls may take to end after SIGTERM")
	s.StringVar(&f.logLevel, "log-level", "info",
		"debug (each call), info, warn or error; to standard error, without secrets")
	s.BoolVar(&f.printVersion, "version", false, "print the version of this program and exit")
}

func (f *flags) kind(s *pflag.FlagSet) {
	s.StringVar(&f.profile, "profile", "full", "kind of driver, see below")
	s.StringSliceVar(&f.enable, "capabilities", nil,
		"capabilities to add to the profile, such as node/EXPAND_VOLUME, or EXPAND_VOLUME for all services that have it")
	s.StringSliceVar(&f.disable, "disable-capabilities", nil, "capabilities to remove, together with their dependents")
	s.StringToStringVar(&f.topology, "topology", nil,
		"where the node is, as key=value, and all volumes unless there are --place; adds VOLUME_ACCESSIBILITY_CONSTRAINTS")
	s.StringArrayVar(&f.places, "place", nil,
		"place where volumes can be, as KEY=VALUE[,KEY=VALUE][@SIZE], with SIZE as its capacity; may be repeated; the "+
			"node is in the first one, unless --topology says otherwise")
	s.StringSliceVar(&f.server.Parameters, "parameters", nil,
		"parameters that CreateVolume takes; others are refused with InvalidArgument (default: any)")
}

func (f *flags) state(s *pflag.FlagSet) {
	s.StringVar(&f.stateDir, "state-dir", "",
		"directory for volumes and snapshots, which survive kill -9; without one they are kept in memory")
	s.StringVar(&f.ledger, "ledger", "",
		"file for the ledger (default: ledger.jsonl in the state directory; none without one)")
	s.StringArrayVar(&f.staticVolumes, "static-volume", nil,
		"volume that is there from the start, as ID or ID=SIZE; may be repeated")
	s.StringVar(&f.capacity, "capacity", "1Pi", "total size of all volumes; beyond it ResourceExhausted")
	s.IntVar(&f.backend.MaxVolumes, "max-volumes", 0,
		"maximum number of volumes, 0 for no limit; beyond it ResourceExhausted")
	s.StringVar(&f.maxVolumeSize, "max-volume-size", "", "largest volume; beyond it OutOfRange")
	s.IntVar(&f.backend.MaxVolumesPerNode, "max-volumes-per-node", 0,
		"how many volumes one node takes, 0 for no limit; beyond it ResourceExhausted")
	s.StringToStringVar(&f.backend.Context, "volume-context", nil,
		"entries for the context of each new volume, as key=value")
}

func (f *flags) behaviourFlags(s *pflag.FlagSet) {
	s.StringArrayVar(&f.delays, "latency", nil,
		"how long calls take, as 200ms for all or METHOD=200ms for one; may be repeated, and adds up")
	s.IntVar(&f.server.MaxCalls, "max-calls", 0,
		"how many controller and node calls are worked on at once, 0 for no limit; others wait")
	s.BoolVar(&f.server.RefuseCalls, "refuse-calls", false,
		"answer ResourceExhausted to calls beyond --max-calls instead of letting them wait")
	s.BoolVar(&f.server.AbortPending, "abort-pending", false,
		"answer Aborted to a call for a volume that has another call pending")
	s.BoolVar(&f.backend.DeleteUsed, "delete-published", false,
		"delete volumes that are still attached, staged or published, instead of answering FailedPrecondition")
	s.BoolVar(&f.backend.KeepSnapshotted, "keep-snapshotted", false,
		"answer FailedPrecondition to DeleteVolume for a volume that has snapshots")
	s.StringToStringVar(&f.server.Secrets, "require-secret", nil,
		"secrets that calls which carry secrets must have, as key=value, or key= for any value; without them Unauthenticated")
}

func (f *flags) faultFlags(s *pflag.FlagSet) {
	s.StringVar(&f.faultPlan, "fault-plan", "", "JSON file with the fault plan to begin with")
	s.StringVar(&f.faultAddress, "fault-address", "",
		"loopback address on which the plan can be read, replaced and cleared, such as 127.0.0.1:0")
	s.StringVar(&f.faultAddressFile, "fault-address-file", "", "file that the actual fault address is written to")
}

const examples = `Examples:
  # A driver whose volumes are directories under /tmp/mock/volumes, until DeleteVolume: ls shows a leak.
  mock-driver --endpoint=unix:///tmp/mock/csi.sock --state-dir=/tmp/mock

  # A driver that cannot attach, takes 200 ms for each deletion and works on 16 calls at once.
  mock-driver --endpoint=unix:///tmp/csi.sock --profile=no-attach --latency=DeleteVolume=200ms --max-calls=16

  # A driver that deletes its third volume but returns an error, until the fault is removed.
  mock-driver --endpoint=unix:///tmp/csi.sock --state-dir=/tmp/mock --fault-address=127.0.0.1:9999
  curl -X PUT http://127.0.0.1:9999/faults -d \
    '{"rules":[{"method":"DeleteVolume","nth":3,"action":"fail","code":"DeadlineExceeded","afterWork":true}]}'
  curl -X DELETE http://127.0.0.1:9999/faults
`

func writeHelp(w io.Writer, groups []group) {
	var b strings.Builder
	b.WriteString("mock-driver is a CSI driver for tests: real gRPC, state on disk, faults on demand, and a ledger of " +
		"all calls and their effects.\n\n")
	b.WriteString("Usage:\n  mock-driver --endpoint=unix:///path/csi.sock [flags]\n\n")
	b.WriteString(examples)
	for _, g := range groups {
		fmt.Fprintf(&b, "\n%s:\n%s", g.title, g.flags.FlagUsagesWrapped(120))
	}
	b.WriteString("\nProfiles:\n")
	for _, p := range server.Profiles() {
		fmt.Fprintf(&b, "  %-15s %s\n", p.Name, p.Help)
	}
	b.WriteString("\nCapabilities:\n")
	for _, c := range server.AllCapabilities() {
		fmt.Fprintf(&b, "  %s\n", c)
	}
	_, _ = io.WriteString(w, b.String()) // The reader may be gone.
}
