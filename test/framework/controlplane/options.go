//go:build unix

package controlplane

import (
	"errors"
	"io"
	"strings"
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
