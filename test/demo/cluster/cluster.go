//go:build unix

// Package cluster starts the subjects of the acts: a control plane, a CSI driver, csi-reclaimer, and played nodes. It
// also watches PVs and claims, and judges how a scenario ended without asking csi-reclaimer or volume-guard.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

const (
	// Patience bounds every wait for something that should take well under a second, on a machine that may keep a program
	// waiting for many.
	Patience = 2 * time.Minute
	// BuildPatience bounds all compiling, far above its time on one slow processor with a slow network.
	BuildPatience = 2 * time.Hour
)

// Cluster is all that is started for an act. Printer is required, Parent optional; methods set the other fields.
type Cluster struct {
	Printer *stage.Printer
	// Parent is where the folder of logs and volumes is made, which goes with the cluster.
	Parent string
	Plane  *controlplane.ControlPlane
	Client kubernetes.Interface
	// Admin is the path of a kubeconfig with all permissions.
	Admin string
	Maker objects.Maker
	// Program is the one to be shown: csi-reclaimer or volume-guard.
	Program *program.Program
	// Plugin is the path of kubectl-reclaim.
	Plugin string

	dir   string
	logs  bool // the folder stays, with the logs in it
	stops []func() error
}

// StartPlane starts the control plane, which has a deadline of its own for each component.
func (c *Cluster) StartPlane(ctx context.Context, t *stage.Timeline, version controlplane.Version,
	options controlplane.Options) (err error) {
	if c.dir, err = os.MkdirTemp(c.Parent, "csi-reclaimer-demo-"); err != nil {
		return err
	}
	controllers := "kube-controller-manager"
	if options.Lean {
		controllers = "its controllers of PVs and claims"
	}
	t.Demo(fmt.Sprintf("starting etcd, kube-apiserver and %s, Kubernetes %s", controllers, version))
	if c.Plane, err = controlplane.Start(ctx, version, options); err != nil {
		return err
	}
	c.OnEnd(c.Plane.Stop)
	if c.Client, err = kubernetes.NewForConfig(c.Plane.Admin()); err != nil {
		return err
	}
	c.Admin, err = c.Plane.Kubeconfig(c.Plane.Admin())
	return err
}

// Account makes a service account in a namespace of its own, without any rights.
func (c *Cluster) Account(ctx context.Context, name string) (namespace, kubeconfig string, err error) {
	if namespace, err = c.Plane.CreateNamespace(ctx, name); err != nil {
		return "", "", err
	}
	account, err := c.Plane.ServiceAccount(ctx, namespace, name)
	if err != nil {
		return "", "", err
	}
	kubeconfig, err = c.Plane.Kubeconfig(account)
	return namespace, kubeconfig, err
}

// Folder makes a folder that goes with the cluster.
func (c *Cluster) Folder(name string) (string, error) {
	dir := filepath.Join(c.dir, name)
	return dir, os.Mkdir(dir, 0o755)
}

// OnEnd has End call a function, before those that were given earlier.
func (c *Cluster) OnEnd(stop func() error) { c.stops = append(c.stops, stop) }

// Explain prints logs that may show the reason of a failure. It prints nothing without one, or when ctx has ended.
func (c *Cluster) Explain(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil && c.Program != nil {
		c.ExplainProgram(c.Program)
	}
}

// ExplainProgram prints the end of a program's log.
func (c *Cluster) ExplainProgram(p *program.Program) {
	c.Printer.Head("The last lines of " + filepath.Base(p.LogPath()))
	c.Printer.Raw(p.LogTail(30))
}

// End ends everything, and removes its files. The logs stay, and are named, when err is a failure and ctx has not
// ended. It returns err with its own errors.
func (c *Cluster) End(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil {
		c.saveLogs()
	}
	return errors.Join(err, c.tearDown())
}

func (c *Cluster) tearDown() error {
	var errs []error
	for _, stop := range slices.Backward(c.stops) {
		errs = append(errs, stop())
	}
	if c.dir != "" && !c.logs {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return stage.Untidy(errs...)
}

// saveLogs has the logs outlive the cluster, and says where they are.
func (c *Cluster) saveLogs() {
	if c.dir == "" {
		return
	}
	c.logs = true
	if c.Plane != nil {
		for _, part := range []*controlplane.Component{c.Plane.Etcd, c.Plane.APIServer, c.Plane.ControllerManager} {
			if err := copyFile(part.LogFile(), filepath.Join(c.dir, part.Name()+".log")); err != nil {
				c.Printer.Say("a log is missing: " + err.Error())
			}
		}
	}
	c.Printer.Head("All logs, records and volumes of this act stay, until you remove them, in")
	c.Printer.Say(c.dir)
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}

// Until waits for a condition.
func Until(ctx context.Context, what string, so func(context.Context) (bool, error)) error {
	if err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 2*Patience, true, so); err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}
