package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/csi-reclaimer/csi-reclaimer/internal/version"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend/disk"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/server"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/socket"
)

// settings holds the flags after their validation and conversion.
type settings struct {
	socket, stateDir, ledger       string
	profile                        string
	backend                        backend.Config
	server                         server.Config
	static                         []staticVolume
	latency                        map[string]time.Duration
	plan                           faults.Plan
	faultAddress, faultAddressFile string
	logLevel                       slog.Level
}

type staticVolume struct {
	id    string
	bytes int64
}

const (
	defaultName     = "mock.csi-reclaimer.io"
	defaultVersion  = "1.0.0"
	defaultNode     = "mock-node"
	defaultTopology = "topology.mock.csi-reclaimer.io/zone"
	defaultZone     = "zone-a"
)

// errVersion is returned by parse after it has written the version.
var errVersion = errors.New("the version was asked for")

// parse parses and validates the flags. With --help it writes the help and returns pflag.ErrHelp, with --version
// errVersion.
func parse(args []string, out io.Writer) (settings, error) {
	var f flags
	groups := f.groups()
	all := pflag.NewFlagSet("mock-driver", pflag.ContinueOnError)
	all.SortFlags = false
	all.Usage = func() { writeHelp(out, groups) }
	for _, g := range groups {
		all.AddFlagSet(g.flags)
	}
	if err := all.Parse(args); err != nil {
		return settings{}, err
	}
	if all.NArg() > 0 {
		return settings{}, fmt.Errorf("unexpected argument %q: all settings are flags, see --help", all.Arg(0))
	}
	if f.printVersion {
		_, _ = fmt.Fprintln(out, "mock-driver", version.Get()) // The reader may be gone.
		return settings{}, errVersion
	}
	err := f.convert()
	return f.settings, err
}

// convert completes the settings, and validates them.
func (f *flags) convert() error {
	f.backend.Nodes = append([]string{f.server.NodeID}, f.nodes...)
	f.server.MaxVolumesPerNode = f.backend.MaxVolumesPerNode
	for _, step := range []func() error{f.paths, f.capabilities, f.sizes, f.behaviour, f.faults, f.forKubelets} {
		if err := step(); err != nil {
			return err
		}
	}
	if err := f.backend.Validate(); err != nil {
		return err
	}
	return f.server.Validate()
}

func (f *flags) paths() (err error) {
	if f.endpoint == "" {
		return errors.New("--endpoint is required, such as unix:///tmp/csi.sock")
	}
	if f.socket, err = socket.ParseEndpoint(f.endpoint); err != nil {
		return fmt.Errorf("--%w", err)
	}
	if folder, err := os.Stat(filepath.Dir(f.socket)); err != nil || !folder.IsDir() {
		return fmt.Errorf("--endpoint %q: %s is not a directory", f.endpoint, filepath.Dir(f.socket))
	}
	if f.stateDir != "" {
		if f.stateDir, err = filepath.Abs(f.stateDir); err != nil {
			return fmt.Errorf("--state-dir: %w", err)
		}
		if f.ledger == "" {
			f.ledger = filepath.Join(f.stateDir, "ledger.jsonl")
		}
	}
	if err := f.settings.logLevel.UnmarshalText([]byte(f.logLevel)); err != nil {
		return fmt.Errorf("--log-level %q: want debug, info, warn or error", f.logLevel)
	}
	return nil
}

func (f *flags) capabilities() error {
	profile, err := server.FindProfile(f.profile)
	if err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	set := profile.Capabilities
	if len(f.topology) > 0 || len(f.places) > 0 {
		set[server.VolumeTopology] = true
	}
	if err := set.Enable(f.enable...); err != nil {
		return fmt.Errorf("--capabilities: %w", err)
	}
	// Complete comes before Disable, which would silently drop requested but incomplete capabilities.
	if err := set.Complete(); err != nil {
		return fmt.Errorf("--capabilities: %w", err)
	}
	if err := set.Disable(f.disable...); err != nil {
		return fmt.Errorf("--disable-capabilities: %w", err)
	}
	if err := set.Validate(); err != nil {
		return fmt.Errorf("--capabilities: %w", err)
	}
	f.server.Capabilities = set
	if !set[server.VolumeTopology] {
		return nil
	}
	return f.where()
}

// where sets the topology of the node and the places of volumes.
func (f *flags) where() error {
	for _, text := range f.places {
		place, err := parsePlace(text)
		if err != nil {
			return err
		}
		f.backend.Places = append(f.backend.Places, place)
	}
	switch {
	case len(f.topology) > 0:
		f.server.Topology = f.topology
	case len(f.backend.Places) > 0:
		f.server.Topology = f.backend.Places[0].Segments
	default:
		f.server.Topology = map[string]string{defaultTopology: defaultZone}
	}
	if len(f.backend.Places) == 0 {
		f.backend.Places = []backend.Place{{Segments: f.server.Topology}}
	}
	return nil
}

func parsePlace(text string) (backend.Place, error) {
	segments, size, sized := strings.Cut(text, "@")
	place := backend.Place{Segments: map[string]string{}}
	for pair := range strings.SplitSeq(segments, ",") {
		key, value, _ := strings.Cut(pair, "=")
		if key == "" || value == "" || sized && size == "" {
			return backend.Place{}, fmt.Errorf("--place %q: want KEY=VALUE[,KEY=VALUE][@SIZE]", text)
		}
		place.Segments[key] = value
	}
	var err error
	place.CapacityBytes, err = bytesOf("--place", size)
	return place, err
}

func (f *flags) sizes() (err error) {
	if f.backend.CapacityBytes, err = bytesOf("--capacity", f.capacity); err != nil {
		return err
	}
	if f.backend.MaxVolumeBytes, err = bytesOf("--max-volume-size", f.maxVolumeSize); err != nil {
		return err
	}
	f.server.MaxVolumeBytes = f.backend.MaxVolumeBytes
	for _, text := range f.staticVolumes {
		id, size, _ := strings.Cut(text, "=")
		if !backend.ValidID(id) {
			return fmt.Errorf("--static-volume %q: the id must be made of letters, digits, '-', '_' and '.'", text)
		}
		bytes, err := bytesOf("--static-volume", size)
		if err != nil {
			return err
		}
		f.static = append(f.static, staticVolume{id: id, bytes: bytes})
	}
	return nil
}

func bytesOf(flag, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 {
		return 0, fmt.Errorf("%s %q: want a size such as 10Gi", flag, text)
	}
	return q.Value(), nil
}

func (f *flags) behaviour() error {
	f.latency = map[string]time.Duration{}
	for _, text := range f.delays {
		method, duration, has := strings.Cut(text, "=")
		if !has {
			method, duration = "*", text
		}
		d, err := time.ParseDuration(duration)
		if err != nil || d < 0 {
			return fmt.Errorf("--latency %q: want a duration such as 200ms, or METHOD=200ms", text)
		}
		if d > 0 {
			f.latency[method] = d
		}
	}
	if err := (faults.Plan{Rules: faults.Latency(f.latency)}).Validate(); err != nil {
		return fmt.Errorf("--latency: %w", err)
	}
	for flag, d := range map[string]time.Duration{"--ready-after": f.server.ReadyAfter, "--grace": f.server.Grace} {
		if d < 0 {
			return fmt.Errorf("%s %s: must not be negative", flag, d)
		}
	}
	return nil
}

func (f *flags) forKubelets() error {
	for _, text := range f.kubelets {
		node, root, _ := strings.Cut(text, "=")
		if node == "" || root == "" {
			return fmt.Errorf("--kubelet %q: want NODE=DIRECTORY", text)
		}
		if f.stateDir == "" {
			return errors.New("--kubelet goes with --state-dir: the volumes in there are mounted")
		}
		f.backend.Nodes = append(f.backend.Nodes, node)
		f.server.Kubelets = append(f.server.Kubelets, server.Kubelet{NodeID: node, RootDir: root})
		f.server.VolumesDir, f.server.SnapshotsDir = disk.VolumesDir(f.stateDir), disk.SnapshotsDir(f.stateDir)
	}
	return nil
}

func (f *flags) faults() error {
	if f.faultAddressFile != "" && f.faultAddress == "" {
		return errors.New("--fault-address-file goes with --fault-address")
	}
	if f.faultPlan == "" {
		return nil
	}
	data, err := os.ReadFile(f.faultPlan)
	if err != nil {
		return fmt.Errorf("--fault-plan: %w", err)
	}
	if f.plan, err = faults.ParsePlan(data); err != nil {
		return fmt.Errorf("--fault-plan %q: %w", f.faultPlan, err)
	}
	return nil
}
