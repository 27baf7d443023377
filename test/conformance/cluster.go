//go:build unix

package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

const (
	// home is volume-guard's namespace: the policies exempt only its account there.
	home = "csi-reclaimer"
	// driverName is the name of the CSI driver, and of its StorageClass, which is the default one.
	driverName = "conformance.csi-reclaimer.io"
	nodeName   = "node-1"
	// patience bounds the start of each part, far above its usual time.
	patience = 2 * time.Minute
)

// cluster is a control plane with a played node, a CSI driver and the parts that are judged.
type cluster struct {
	suite    Suite
	parts    Parts
	binary   string   // of the end-to-end suite
	logs     string   // folder of the logs of programs
	tunnel   string   // the socket by which the API server reaches real nodes
	env      []string // of the suite
	progress io.Writer

	plane      *controlplane.ControlPlane
	client     kubernetes.Interface
	kubeconfig string // with all permissions
	driver     *mockdriver.Driver
	pool       nodePool // of real nodes
	stops      []func() error
}

// startCluster returns a cluster that is to be stopped also after an error.
func startCluster(ctx context.Context, r Result, binary, logs string, progress io.Writer) (*cluster, error) {
	c := &cluster{suite: r.Suite, parts: r.Parts, binary: binary, logs: logs, progress: progress}
	steps := []func(context.Context) error{c.startPlane, c.startDriver, c.startNode, c.makeClass, c.startProvisioner}
	switch {
	case c.suite.Manifests != "":
		steps = []func(context.Context) error{c.startPlaneWithTunnel, c.startRealNodes, c.startVendor}
	case c.suite.Images != "":
		steps = []func(context.Context) error{c.startPlaneWithTunnel, c.startRealNodes, c.startMocked}
	case c.suite.RealNodes:
		steps = []func(context.Context) error{c.startPlaneWithTunnel, c.startRealNodes, c.startMockDriver, c.makeClass,
			c.startProvisioner}
	}
	if c.suite.Driver != "" && c.suite.Manifests == "" {
		steps = append(steps, c.startSidecars)
	}
	if c.parts == Ours && len(c.suite.Guard) > 0 {
		steps = append(steps, c.startGuard)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return c, fmt.Errorf("start cluster with %s parts: %w", c.parts, err)
		}
	}
	return c, nil
}

// stop ends all parts, the last one first.
func (c *cluster) stop() error {
	var errs []error
	for _, stop := range slices.Backward(c.stops) {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
}

func (c *cluster) atEnd(stop func() error) { c.stops = append(c.stops, stop) }

func (c *cluster) startPlane(ctx context.Context) error { return c.startPlaneWith(ctx) }

func (c *cluster) startPlaneWith(ctx context.Context, apiServer ...string) (err error) {
	options := controlplane.Options{Scheduler: true, Progress: c.progress, Controllers: []string{"*"},
		APIServerArgs: apiServer, Snapshots: c.suite.Driver != "" || c.suite.Images != ""}
	if c.parts == Ours {
		for _, controller := range c.suite.Replaced {
			options.Controllers = append(options.Controllers, "-"+controller)
		}
	}
	if c.plane, err = controlplane.Start(ctx, controlplane.Newest, options); err != nil {
		return err
	}
	c.atEnd(c.plane.Stop)
	if c.client, err = kubernetes.NewForConfig(c.plane.Admin()); err != nil {
		return err
	}
	c.kubeconfig, err = c.plane.Kubeconfig(c.plane.Admin())
	return err
}

// startDriver starts the CSI driver of a played node. Its volumes need no attaching.
func (c *cluster) startDriver(ctx context.Context) (err error) {
	options := mockdriver.Options{Name: driverName, Profile: "no-attach", Progress: c.progress}
	if c.driver, err = mockdriver.Start(ctx, options); err != nil {
		return err
	}
	c.atEnd(c.driver.Stop)
	_, err = c.maker().MakeDriver(ctx, nil)
	return err
}

func (c *cluster) maker() objects.Maker {
	return objects.Maker{Client: c.client, Driver: driverName, CSI: c.driver.Controller()}
}

// makeClass makes the driver's StorageClass the default one, and a class of attributes for specs that are made for each
// driver.
func (c *cluster) makeClass(ctx context.Context) error {
	_, err := c.maker().MakeClass(ctx, objects.Class{Name: driverName, Change: func(class *storagev1.StorageClass) {
		class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	}})
	if err != nil || c.suite.Driver == "" {
		return err
	}
	_, err = c.client.StorageV1().VolumeAttributesClasses().Create(ctx, &storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: "conformance"}, DriverName: driverName,
		Parameters: map[string]string{"tier": "gold"}}, metav1.CreateOptions{})
	return err
}

// startNode plays a node, which starts pods once their claims are bound.
func (c *cluster) startNode(ctx context.Context) error {
	user, err := c.plane.ConfigFor(fakenode.User(nodeName), fakenode.Group)
	if err != nil {
		return err
	}
	node, err := fakenode.New(user, nodeName, fakenode.Config{WaitForClaims: true,
		Drivers: map[string]fakenode.Driver{driverName: {}}})
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- node.Run(running) }()
	c.atEnd(func() error { cancel(); return <-ended })
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	select {
	case <-node.Registered():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("play node: %w", ctx.Err())
	}
}

// startProvisioner starts csi-reclaimer with the permissions that it ships, or the stock provisioner with all: those of
// another project are not tested here.
func (c *cluster) startProvisioner(ctx context.Context) error {
	const account = "csi-reclaimer"
	namespace, err := c.plane.CreateNamespace(ctx, account)
	if err != nil {
		return err
	}
	err = errors.Join(rbac.GrantSidecar(ctx, c.client, namespace, account, "owner"),
		rbac.GrantCapacity(ctx, c.client, namespace, account))
	if err != nil {
		return err
	}
	kubeconfig, err := c.account(ctx, namespace, account)
	if err != nil {
		return err
	}
	o := program.Options{Name: "csi-reclaimer", Env: []string{"NAMESPACE=" + namespace, "POD_NAMESPACE=" + namespace}}
	if c.parts == Stock {
		o.Name, kubeconfig = "csi-provisioner", c.kubeconfig
		if o.Binary, err = program.BuildProvisioner(ctx, c.progress); err != nil {
			return err
		}
	}
	o.Args = []string{"--csi-address=" + c.driver.Socket(), "--kubeconfig=" + kubeconfig}
	if c.suite.Driver != "" {
		o.Args = append(o.Args, "--enable-capacity", "--capacity-for-immediate-binding", "--capacity-ownerref-level=-1")
	}
	return c.run(ctx, o)
}

// startSidecars starts the stock programs beside a provisioner: they resize and modify volumes, and take snapshots.
// Their permissions are not tested here, either.
func (c *cluster) startSidecars(ctx context.Context) error {
	for _, name := range []string{"csi-resizer", "csi-snapshotter", "snapshot-controller"} {
		binary, err := program.BuildStock(ctx, name, c.progress)
		if err != nil {
			return err
		}
		args := []string{"--kubeconfig=" + c.kubeconfig, "--kube-api-qps=100", "--kube-api-burst=200"}
		if name != "snapshot-controller" {
			args = append(args, "--csi-address="+c.driver.Socket())
		}
		if err := c.run(ctx, program.Options{Name: name, Binary: binary, Args: args}); err != nil {
			return err
		}
	}
	return nil
}

// nothingLeft is a spec of this project, after those of the suite, whose claims and snapshots are deleted.
func (c *cluster) nothingLeft(ctx context.Context) Spec {
	spec := Spec{Name: "After these specs, the driver has no volume and no snapshot", State: Passed}
	left := ""
	err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(context.Context) (bool, error) {
		volumes, err := c.driver.Volumes()
		snapshots, wrong := c.driver.Snapshots()
		left = fmt.Sprintf("%d volumes and %d snapshots are left", len(volumes), len(snapshots))
		return len(volumes)+len(snapshots) == 0, errors.Join(err, wrong)
	})
	if err != nil {
		spec.State, spec.Reason = Failed, fmt.Sprintf("%s: %v", left, err)
	}
	return spec
}

// startGuard starts volume-guard with the suite's controllers, and with the permissions and manifests for them.
func (c *cluster) startGuard(ctx context.Context) error {
	const account = "volume-guard"
	_, err := c.client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}},
		metav1.CreateOptions{})
	if err != nil {
		return err
	}
	var files []string
	for controller, of := range map[string]func(controlplane.Version) []string{"pod-safety": manifests.PodSafety,
		"single-node": manifests.SingleNode} {
		if slices.Contains(c.suite.Guard, controller) {
			files = append(files, of(c.plane.Version())...)
		}
	}
	if err := manifests.Apply(ctx, c.plane.Admin(), files...); err != nil {
		return err
	}
	if _, err := rbac.GrantGuardController(ctx, c.client, home, account, c.suite.Guard...); err != nil {
		return err
	}
	if err := c.labelNamespaces(ctx); err != nil {
		return err
	}
	kubeconfig, err := c.account(ctx, home, account)
	if err != nil {
		return err
	}
	return c.run(ctx, program.Options{Name: account, Args: []string{"--kubeconfig=" + kubeconfig,
		"--leader-election=false", "--controllers=-intree," + strings.Join(c.suite.Guard, ",")}})
}

// account returns the path of a kubeconfig of a service account.
func (c *cluster) account(ctx context.Context, namespace, name string) (kubeconfig string, err error) {
	account, err := c.plane.ServiceAccount(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	return c.plane.Kubeconfig(account)
}

// run starts a program that ends with the cluster. Only ours say when they are ready.
func (c *cluster) run(ctx context.Context, o program.Options) error {
	o.Progress, o.Dir = c.progress, c.logs
	p, err := program.Start(ctx, o)
	if err != nil {
		return err
	}
	c.atEnd(p.Stop)
	if o.Binary != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return p.WaitReady(ctx)
}
