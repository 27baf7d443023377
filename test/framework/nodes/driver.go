//go:build linux

package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes/stamps"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// attacherGrace is more than external-attacher takes to end.
const attacherGrace = 10 * time.Second

// DriverOptions say which driver to run on the nodes.
type DriverOptions struct {
	// Options of the mock driver. Name is required, new in the cluster, and short: it is in the paths of sockets.
	mockdriver.Options
	// Attach makes external-attacher attach volumes to nodes (CSIDriver with attachRequired). Otherwise the driver has the
	// profile no-attach, unless the options name another.
	Attach bool
	// CSIDriver alters the CSIDriver object before it is made. Optional.
	CSIDriver func(*storagev1.CSIDriver)
}

// Driver is a CSI driver on all nodes of a pool. Pods can write to its volumes.
type Driver struct {
	*mockdriver.Driver
	pool     *Pool
	attacher *process.Process // nil without Attach
}

// StartDriver starts a driver and returns once each node has it. Nodes that are off or partitioned are not waited for.
// It runs until [Driver.Stop] or the end of the calling program.
//
// The driver's own process can be killed and restarted as any mock driver's ([mockdriver.Driver]).
func (p *Pool) StartDriver(ctx context.Context, o DriverOptions) (*Driver, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	d := &Driver{pool: p}
	if err := d.start(ctx, o); err != nil {
		stopped := d.Stop() //nolint:contextcheck // ctx may have ended
		return nil, errors.Join(fmt.Errorf("start driver %q: %w", o.Name, err), stopped)
	}
	return d, nil
}

func (d *Driver) start(ctx context.Context, o DriverOptions) (err error) {
	if d.pool.options.commonDir() {
		return errors.New("the pool has a pod network: its drivers are pods")
	}
	if err := d.pool.makeCSIDriver(ctx, o); err != nil {
		return err
	}
	o.Launcher = []string{"nsenter", "--mount=" + d.pool.spaceFile("mnt"), "--"}
	if o.Profile == "" && !o.Attach {
		o.Profile = "no-attach"
	}
	for _, n := range d.pool.nodes {
		o.Args = append(o.Args, "--kubelet="+n.name+"="+n.KubeletDir())
	}
	if d.Driver, err = mockdriver.Start(ctx, o.Options); err != nil {
		return err
	}
	if o.Attach {
		if err := d.startAttacher(ctx); err != nil {
			return err
		}
	}
	for _, n := range d.pool.nodes {
		if err := n.waitDriver(ctx, o.Name); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pool) makeCSIDriver(ctx context.Context, o DriverOptions) error {
	object := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: o.Name},
		Spec: storagev1.CSIDriverSpec{AttachRequired: &o.Attach}}
	if o.CSIDriver != nil {
		o.CSIDriver(object)
	}
	_, err := p.client.StorageV1().CSIDrivers().Create(ctx, object, metav1.CreateOptions{})
	return err
}

// waitDriver waits until the kubelet has registered the driver.
func (n *Node) waitDriver(ctx context.Context, driver string) error {
	if !n.talks() {
		return nil
	}
	err := n.poll(ctx, func() error {
		csiNode, err := n.pool.client.StorageV1().CSINodes().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, d := range csiNode.Spec.Drivers {
			if d.Name == driver {
				return nil
			}
		}
		return errors.New("it is not in the CSINode")
	})
	if err != nil {
		return fmt.Errorf("wait until node %q has driver %q: %w\n%s", n.name, driver, err, n.KubeletLog(logLines))
	}
	return nil
}

// attacherBinary compiles external-attacher when it is first needed.
var attacherBinary = sync.OnceValues(func() (string, error) {
	return program.BuildStock(context.Background(), "csi-attacher", nil)
})

func (d *Driver) startAttacher(ctx context.Context) error {
	binary, err := attacherBinary()
	if err != nil {
		return err
	}
	// The program of another project runs with all permissions, which are not tested here.
	kubeconfig := filepath.Join(d.pool.Dir(), d.Name()+".kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, d.pool.cluster.Admin()); err != nil {
		return err
	}
	d.attacher, err = process.Start(process.Command{Path: binary, Args: []string{"--csi-address=" + d.Socket(),
		"--kubeconfig=" + kubeconfig, "--kube-api-qps=100", "--kube-api-burst=200", "--retry-interval-start=100ms", "-v=4"}})
	if err != nil {
		return err
	}
	return d.attacher.WaitLog(ctx, "Starting CSI attacher")
}

// Stamps returns the stamps that pods have written to a volume, by its handle, in the order of the writes. It returns
// none before the first write, and none for a deleted volume.
func (d *Driver) Stamps(handle string) ([]stamps.Stamp, error) {
	return stamps.Read(filepath.Join(d.VolumesDir(), handle, "data", stamps.FileName))
}

// Refuse has the writes to a volume of all pods on a node hang, and Admit ends that. A write that is under way, or is
// about to begin, may still be done.
func (d *Driver) Refuse(handle, node string) error {
	return os.WriteFile(d.refusedFile(handle, node), nil, 0o600)
}

// Admit ends a Refuse.
func (d *Driver) Admit(handle, node string) error { return os.Remove(d.refusedFile(handle, node)) }

func (d *Driver) refusedFile(handle, node string) string {
	return filepath.Join(d.VolumesDir(), handle, "data", stamps.RefusedFile(node))
}

// WaitStamps waits until enough is true of the stamps of a volume, and returns them.
func (d *Driver) WaitStamps(ctx context.Context, handle string, enough func([]stamps.Stamp) bool) ([]stamps.Stamp,
	error) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		all, err := d.Stamps(handle)
		if err != nil || enough(all) {
			return all, err
		}
		select {
		case <-ctx.Done():
			return all, fmt.Errorf("wait for stamps in volume %q, which has %d, by %v: %w", handle, len(all),
				stamps.Writers(all), context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// AttacherLog returns the last lines of external-attacher's log, if it runs.
func (d *Driver) AttacherLog(lines int) string {
	if d.attacher == nil {
		return ""
	}
	return d.attacher.LogTail(lines)
}

// Stop ends the driver and external-attacher, and deletes the CSIDriver object. Pods that use its volumes should be
// gone: their kubelets cannot unmount them any more.
func (d *Driver) Stop() error {
	var err error
	if d.attacher != nil {
		err = d.attacher.Stop(attacherGrace)
		d.attacher.Close()
	}
	if d.Driver == nil {
		return err
	}
	name := d.Name()
	err = errors.Join(err, d.Driver.Stop())
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	deleted := d.pool.client.StorageV1().CSIDrivers().Delete(ctx, name, metav1.DeleteOptions{})
	if deleted != nil && !apierrors.IsNotFound(deleted) {
		err = errors.Join(err, deleted)
	}
	if err != nil {
		return fmt.Errorf("stop driver %q: %w", name, err)
	}
	return nil
}

// DeletionInUse is a DeleteVolume call that the driver received for a volume that was attached, staged or published.
type DeletionInUse struct {
	Volume string
	At     time.Time
	// Method is the call that began the use: ControllerPublishVolume, NodeStageVolume or NodePublishVolume, on Node and,
	// except for the first, at Path.
	Method, Node, Path string
}

func (d DeletionInUse) String() string {
	return fmt.Sprintf("volume %s was to be deleted at %s, after %s on node %s", d.Volume,
		d.At.Format(time.TimeOnly+".000"), strings.TrimSpace(d.Method+" "+d.Path), d.Node)
}

// DeletedInUse returns the deletions that came while the volume was in use on any node: one for each use. The driver's
// answer does not matter.
func (d *Driver) DeletedInUse() ([]DeletionInUse, error) {
	calls, err := d.Calls()
	return deletedInUse(calls), err
}

// uses maps each call that ends a use of a volume to the call that begins it.
var uses = map[string]string{
	"ControllerUnpublishVolume": "ControllerPublishVolume",
	"NodeUnstageVolume":         "NodeStageVolume",
	"NodeUnpublishVolume":       "NodePublishVolume",
}

// deletedInUse orders the effects of calls by the time of their work, and deletions by the time of their request.
func deletedInUse(calls []ledger.Call) []DeletionInUse {
	type step struct {
		at     time.Time
		method string
		call   ledger.Call
	}
	var steps []step
	for _, call := range calls {
		switch {
		case call.Method == "DeleteVolume":
			steps = append(steps, step{call.Received, call.Method, call})
		case !call.Done.IsZero():
			steps = append(steps, step{call.Done, call.Method, call})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return a.at.Compare(b.at) })
	type use struct{ volume, method, node, path string }
	in := map[use]bool{}
	var found []DeletionInUse
	for _, s := range steps {
		begins := cmp.Or(uses[s.method], s.method)
		u := use{s.call.Volume, begins, s.call.Node, s.call.Path}
		switch {
		case s.method == "DeleteVolume":
			for used := range in {
				if used.volume == s.call.Volume {
					found = append(found, DeletionInUse{used.volume, s.at, used.method, used.node, used.path})
				}
			}
		case uses[s.method] != "":
			delete(in, u)
		case s.method == "ControllerPublishVolume", s.method == "NodeStageVolume", s.method == "NodePublishVolume":
			in[u] = true
		}
	}
	return found
}
