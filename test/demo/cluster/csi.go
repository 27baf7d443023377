//go:build unix

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

// SidecarAccount is the name of csi-reclaimer's service account.
const SidecarAccount = "csi-reclaimer"

// CSI is a cluster with a CSI driver, and with csi-reclaimer as its Program.
type CSI struct {
	*Cluster
	Driver *mockdriver.Driver
	// Home is the namespace of csi-reclaimer's service account, Kubeconfig the account's.
	Home, Kubeconfig string
	// Retained is the PV that is kept in the end. A scenario sets it.
	Retained string
}

// StartCSI builds and starts everything, on a control plane with these options. With an error, the cluster still holds
// the started parts: it is to be ended in any case.
func StartCSI(ctx context.Context, p *stage.Printer, plane controlplane.Options) (*CSI, error) {
	c := &CSI{Cluster: &Cluster{Printer: p}}
	p.Head("Getting ready")
	t := p.LiveTimeline()
	t.Demo("compiling missing programs")
	driver, sidecar, err := build(ctx, p, plane)
	if err != nil {
		return c, err
	}
	if err := c.StartPlane(ctx, t, controlplane.Newest, plane); err != nil {
		return c, err
	}
	const name = "demo.csi-reclaimer.io"
	t.Demo("starting the CSI driver " + name)
	if err := c.startDriver(ctx, driver, name); err != nil {
		return c, err
	}
	t.Demo("starting csi-reclaimer, with the permissions of deploy/manifests and no more")
	if err := c.startSidecar(ctx, sidecar); err != nil {
		return c, err
	}
	c.Maker = objects.Maker{Client: c.Client, Driver: name, Namespace: "default", CSI: c.Driver.Controller()}
	if err := c.makeClasses(ctx); err != nil {
		return c, err
	}
	t.Demo("all up: API server " + c.Plane.URL())
	return c, nil
}

// build compiles the missing programs and reports its progress.
func build(ctx context.Context, p *stage.Printer, plane controlplane.Options) (driver, sidecar string, err error) {
	ctx, cancel := context.WithTimeout(ctx, BuildPatience)
	defer cancel()
	buildPlane := controlplane.Build
	if plane.Lean {
		buildPlane = controlplane.BuildLean
	}
	if _, err = buildPlane(ctx, controlplane.Newest, p.Out); err != nil {
		return "", "", err
	}
	if driver, err = mockdriver.Build(ctx, p.Out); err != nil {
		return "", "", err
	}
	sidecar, err = program.BuildSidecar(ctx, p.Out)
	return driver, sidecar, err
}

func (c *CSI) startDriver(ctx context.Context, binary, name string) error {
	dir, err := c.Folder("driver")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if c.Driver, err = mockdriver.Start(ctx, mockdriver.Options{Binary: binary, Name: name, Dir: dir}); err != nil {
		return err
	}
	c.OnEnd(c.Driver.Stop)
	return nil
}

// startSidecar runs csi-reclaimer with the rights that deploy/ ships, and no more.
func (c *CSI) startSidecar(ctx context.Context, binary string) error {
	dir, err := c.Folder("csi-reclaimer")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if c.Home, c.Kubeconfig, err = c.Account(ctx, SidecarAccount); err != nil {
		return err
	}
	if err := rbac.GrantSidecar(ctx, c.Client, c.Home, SidecarAccount, "owner"); err != nil {
		return err
	}
	c.Program, err = program.StartSidecar(ctx, program.SidecarOptions{Binary: binary, Address: c.Driver.Socket(),
		Kubeconfig: c.Kubeconfig, Dir: dir,
		Env: []string{"POD_NAMESPACE=" + c.Home}}) // where the in-flight log is kept
	if err != nil {
		return err
	}
	c.OnEnd(c.Program.Stop)
	return c.Program.WaitReady(ctx)
}

// ClassName is the StorageClass of a reclaim policy.
func ClassName(policy v1.PersistentVolumeReclaimPolicy) string {
	return "demo-" + strings.ToLower(string(policy))
}

// makeClasses makes a StorageClass for each policy.
func (c *CSI) makeClasses(ctx context.Context) error {
	for _, policy := range []v1.PersistentVolumeReclaimPolicy{v1.PersistentVolumeReclaimDelete,
		v1.PersistentVolumeReclaimRetain} {
		if _, err := c.Maker.MakeClass(ctx, objects.Class{Name: ClassName(policy), Policy: policy}); err != nil {
			return err
		}
	}
	return nil
}

// BuildPlugin compiles the plugin.
func (c *Cluster) BuildPlugin(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, BuildPatience)
	defer cancel()
	c.Plugin, err = program.Build(ctx, "kubectl-reclaim", c.Printer.Out)
	return err
}

// AskPlugin runs kubectl reclaim with all permissions, and reads its answer.
func (c *Cluster) AskPlugin(ctx context.Context, answer any, args ...string) error {
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, c.Plugin, append(args, "-o=json", "--kubeconfig="+c.Admin)...)
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	if err == nil {
		err = json.Unmarshal(stdout.Bytes(), answer)
	}
	if err != nil {
		return fmt.Errorf("kubectl reclaim %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return nil
}
