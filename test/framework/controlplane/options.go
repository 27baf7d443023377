//go:build unix

package controlplane

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// BindOften is an argument of the controller manager. A claim that its PV controller sees before the PV waits for the
// next round, which by default takes 15 seconds. It costs processor time with many thousands of PVs.
const BindOften = "--pvclaimbinder-sync-period=1s"

// Options say how a control plane differs from the plain one: API server with RBAC and a controller manager
// with all its default controllers. The zero value is valid.
type Options struct {
	// Scheduler runs kube-scheduler too. Without it a pod runs where spec.nodeName says.
	Scheduler bool
	// Snapshots has the API server serve the snapshot API; see [ControlPlane.InstallSnapshots].
	Snapshots bool

	// Lean runs the controllers of PVs, claims and service accounts in place of the controller manager. Its binary
	// compiles a fifth faster, and exists for the newest version alone.
	Lean bool
	// NoControllerManager leaves the controller manager out. Claims are then not bound, namespaces
	// not emptied and default service accounts not created.
	NoControllerManager bool
	// Controllers are the controller manager's controllers, as in its flag --controllers: "*" for all defaults, a name to
	// add one, "-name" to remove one. Default: "*".
	Controllers []string
	// ControllerManagerQPS is the limit that each controller puts on its own requests, per second; the burst is twice
	// that. Default: 200. Kubernetes' own default, 20, hides the cost of other clients and delays the start of all
	// controllers by 4 seconds. Tests of speed set 5000.
	ControllerManagerQPS int
	// HostPathProvisioner switches on the in-tree plugin for provisioner kubernetes.io/host-path. Its volumes are folders
	// under /tmp/hostpath_pv, shared by all control planes of the machine. Leaked folders are not removed.
	HostPathProvisioner bool

	// AuditLog has the API server log each request; see [ControlPlane.AuditEvents].
	AuditLog bool

	// APIServerArgs, ControllerManagerArgs and SchedulerArgs are further flags, which win over those set here.
	APIServerArgs         []string
	ControllerManagerArgs []string
	SchedulerArgs         []string

	// Dir is the folder for data, keys and logs: missing or empty. Default: a new one in the
	// system's folder for temporary files.
	Dir string
	// Keep leaves the folder in place when the control plane is stopped.
	Keep bool

	// Progress receives the progress of the compilation, if the version was not compiled before. Default: silence.
	Progress io.Writer
}

// Validate returns an error for contradictory options.
func (o Options) Validate() error {
	if o.NoControllerManager && (len(o.Controllers) > 0 || len(o.ControllerManagerArgs) > 0 ||
		o.ControllerManagerQPS != 0 || o.HostPathProvisioner) {
		return errors.New("options for the controller manager, and NoControllerManager")
	}
	if o.Lean && (o.Scheduler || o.NoControllerManager || len(o.Controllers) > 0 || o.HostPathProvisioner) {
		return errors.New("option Lean, and options for the controller manager or the scheduler")
	}
	if o.ControllerManagerQPS < 0 {
		return errors.New("ControllerManagerQPS is negative")
	}
	return nil
}

// defaultControllerManagerQPS is no wall to a test and still a limit.
const defaultControllerManagerQPS = 200

// controllerManagerQPS is the limit with its default.
func (o Options) controllerManagerQPS() int {
	if o.ControllerManagerQPS == 0 {
		return defaultControllerManagerQPS
	}
	return o.ControllerManagerQPS
}

// controllers is the value of the flag --controllers.
func (o Options) controllers() string {
	if len(o.Controllers) == 0 {
		return "*"
	}
	return strings.Join(o.Controllers, ",")
}

// serviceAccountController creates the service account "default" of each namespace.
const serviceAccountController = "serviceaccount-controller"

// runs says whether the controller manager runs a controller that is on by default
// (k8s.io/controller-manager/app.IsControllerEnabled).
func (o Options) runs(controller string) bool {
	if o.NoControllerManager {
		return false
	}
	star := false
	for _, c := range strings.Split(o.controllers(), ",") {
		switch strings.TrimSpace(c) {
		case controller:
			return true
		case "-" + controller:
			return false
		case "*":
			star = true
		}
	}
	return star
}

// Version is a Kubernetes minor version, which is also the name of the nested module in this folder
// that compiles it.
type Version string

const (
	V1_37 Version = "v1.37"
	// V1_36 has all of KEP-2644 for good, and serves MutatingAdmissionPolicy v1.
	V1_36 Version = "v1.36"
	V1_35 Version = "v1.35"
	// V1_34 serves VolumeAttributesClass v1, and pods say which generation the kubelet has observed.
	V1_34 Version = "v1.34"
	// V1_33 deletes the pods of a namespace before all else, and has pods/resize.
	V1_33 Version = "v1.33"
	// V1_32 has StatefulSetAutoDeletePVC for good: its gate is locked. It is for [Version.Before]: no module compiles it.
	V1_32 Version = "v1.32"
	// V1_31 has KEP-2644 on by default, and the CSI migration of all in-tree plugins. As V1_32, it is for comparisons.
	V1_31 Version = "v1.31"
	// V1_30 is from before KEP-2644 was on by default: PV deleted first leaks the volume.
	V1_30 Version = "v1.30"
)

// Newest is the version that tests and the demo run on unless they need another one. Its module requires the same
// versions of modules as the root module, so that one compilation of a package serves both.
const Newest = V1_37

// Versions returns all versions that have a module, newest first.
func Versions() []Version { return []Version{V1_37, V1_36, V1_35, V1_34, V1_33, V1_30} }

// Edges returns the newest and the oldest version, on which each change is tested. Those in between are compiled and
// tested on demand.
func Edges() []Version { return []Version{Newest, V1_30} }

// Before reports whether v is older than other. Both are of the form v1.NN, with a module or without.
func (v Version) Before(other Version) bool { return v.minor() < other.minor() }

// minor is the number after the dot, 0 for an invalid version.
func (v Version) minor() int {
	n, _ := strconv.Atoi(strings.TrimPrefix(string(v), "v1."))
	return n
}

// ParseVersion finds the version of that name.
func ParseVersion(name string) (Version, error) {
	if v := Version(name); slices.Contains(Versions(), v) {
		return v, nil
	}
	known := make([]string, 0, len(Versions()))
	for _, v := range Versions() {
		known = append(known, string(v))
	}
	return "", fmt.Errorf("control plane version %q: known are %s", name, strings.Join(known, ", "))
}

// Release is the Kubernetes release that the version's module compiles, such as v1.36.3.
func (v Version) Release() (string, error) {
	dir, err := v.moduleDir()
	if err != nil {
		return "", err
	}
	return kubernetesVersion(dir)
}

// moduleDir is the folder of the version's nested module.
func (v Version) moduleDir() (string, error) {
	root, err := process.ModuleRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "test", "framework", "controlplane", string(v)), nil
}

// kubernetesVersion reads from the module's go.mod which Kubernetes it requires, for example "v1.36.3".
func kubernetesVersion(moduleDir string) (string, error) {
	gomod, err := os.ReadFile(filepath.Join(moduleDir, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("read Kubernetes version: %w", err)
	}
	for line := range bytes.Lines(gomod) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(string(line)), "require "))
		if len(fields) >= 2 && fields[0] == "k8s.io/kubernetes" {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("read Kubernetes version: %q requires no k8s.io/kubernetes", filepath.Join(moduleDir, "go.mod"))
}
