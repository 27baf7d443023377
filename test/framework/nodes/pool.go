//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/rundir"
)

const (
	// dirPrefix begins the names of pools' directories. It is short because the paths of sockets in them may have only 107
	// bytes.
	dirPrefix = "csi-nodes-"
	// maxDir leaves room for a kubelet's sockets. The paths of drivers' sockets are longer, and a driver reports an error.
	maxDir = 60
	// startTimeout bounds the start of a node or a driver where the caller's context has no deadline, with the programs
	// that are compiled for it. An idle machine takes seconds once they are.
	startTimeout = 10 * time.Minute
	logLines     = 15
)

// Cluster is the part of a control plane that a pool needs. A *controlplane.ControlPlane is one.
type Cluster interface {
	Version() controlplane.Version
	// Admin returns a configuration for a user with all permissions.
	Admin() *rest.Config
	// ConfigFor returns one for a user in groups.
	ConfigFor(user string, groups ...string) (*rest.Config, error)
}

// Options say which nodes to start.
type Options struct {
	// Names of the nodes, new in the cluster: DNS labels of at most 12 bytes. Required.
	Names []string
	// Kubelet has fields of the KubeletConfiguration that differ from the ones here, such as nodeLeaseDurationSeconds.
	// Optional.
	Kubelet map[string]any
	// Links has each kubelet reach the API server through a relay in this process, for [Node.Disconnect].
	Links bool
	// PodNetwork has nodes as pods of a cluster expect them: pods have addresses of their own and reach each other, and
	// the API server by the Service "kubernetes", with the token of their service account; the kubelet's directory is
	// /var/lib/kubelet. They reach nothing else, and [Pool.StartDriver] does not work: a driver is a pod.
	PodNetwork bool
	// Tunnel is the path of a Unix socket by which the API server reaches kubelets and pods of the PodNetwork, for logs,
	// exec and its proxies: see [EgressConfig]. Kubelets then serve without authentication in that network.
	Tunnel string
	// OwnKubeletDir has the kubelets' directories where they are without PodNetwork, so that [Pool.StartDriver] works.
	OwnKubeletDir bool
	// Progress receives the progress of compilations. Default: silence.
	Progress io.Writer
}

// commonDir reports whether the kubelets' directory is the usual one.
func (o Options) commonDir() bool { return o.PodNetwork && !o.OwnKubeletDir }

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?$`)

func (o Options) validate() error {
	if len(o.Names) == 0 {
		return errors.New("no names of nodes")
	}
	seen := map[string]bool{}
	for _, name := range o.Names {
		if !validName.MatchString(name) || seen[name] {
			return fmt.Errorf("node name %q: want DNS labels of at most 12 bytes, each once", name)
		}
		seen[name] = true
	}
	return nil
}

// Pool is a number of nodes on this machine. Its methods may be called from any goroutine.
type Pool struct {
	options Options
	cluster Cluster
	client  kubernetes.Interface
	dir     *rundir.Dir
	// space holds the mount namespace of all nodes and drivers, and with Options.PodNetwork their network. Its mounts
	// exist nowhere else, and go with the last process in it.
	space   *process.Process
	service *link   // from the Service "kubernetes" to the API server; nil without Options.PodNetwork
	tunnel  *tunnel // nil without Options.Tunnel
	kubelet string  // the binary
	cni     string  // the directory of the plugins
	nodes   []*Node
}

// Start starts nodes and returns once the API server has them Ready. ctx bounds the start alone; the nodes run until
// [Pool.Stop] or the end of the calling program.
func Start(ctx context.Context, cluster Cluster, o Options) (*Pool, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p := &Pool{options: o, cluster: cluster}
	if err := errors.Join(raiseInotifyLimit(), p.prepare(ctx)); err != nil {
		return nil, errors.Join(fmt.Errorf("start nodes: %w", err), p.Stop())
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, n := range p.nodes {
		group.Go(func() error { return n.Boot(groupCtx) })
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(fmt.Errorf("start nodes: %w", err), p.Stop())
	}
	return p, nil
}

func (p *Pool) prepare(ctx context.Context) (err error) {
	if err := p.options.validate(); err != nil {
		return err
	}
	if err := Supported(); err != nil {
		return err
	}
	if p.cni, err = findCNI(); err != nil {
		return err
	}
	kubelet, err := controlplane.BuildKubelet(ctx, p.cluster.Version(), p.options.Progress)
	if err != nil {
		return err
	}
	if p.client, err = kubernetes.NewForConfig(p.cluster.Admin()); err != nil {
		return err
	}
	RemoveOrphans(os.TempDir())
	if p.dir, err = rundir.Make(dirPrefix); err != nil {
		return err
	}
	// managedFields name a program by its file.
	p.kubelet = filepath.Join(p.Dir(), "kubelet")
	if err := os.Symlink(kubelet, p.kubelet); err != nil {
		return err
	}
	if len(p.Dir()) > maxDir {
		return fmt.Errorf("directory %q: sockets below it would have paths that are too long; set TMPDIR", p.Dir())
	}
	if err := p.makeSpace(ctx); err != nil {
		return err
	}
	if p.options.PodNetwork {
		if err := p.makeNetwork(ctx); err != nil {
			return fmt.Errorf("make network of pods: %w", err)
		}
	}
	if err := writeImages(ctx, p.imagesFile(), p.options.Progress); err != nil {
		return err
	}
	for i, name := range p.options.Names {
		n, err := p.newNode(name, nodeAddress(i))
		if err != nil {
			return err
		}
		p.nodes = append(p.nodes, n)
	}
	return nil
}

// RemoveOrphans removes the remains of killed programs from this machine: directories of pools under base, with their
// cgroups. Their processes and mounts have ended with them. [Start] calls it for the system's directory for temporary
// files.
func RemoveOrphans(base string) {
	rundir.RemoveOrphans(base, dirPrefix, func(path string) {
		states, _ := filepath.Glob(filepath.Join(path, "*", "state"))
		for _, state := range states {
			removeCgroups(state)
		}
	})
}

// makeSpace makes the mount namespace of the pool. Mounts in the pool's directory propagate between it and the nodes'
// namespaces, as in a kubelet's directory: a driver's mounts for a pod must arrive at the node, and a node's mounts at
// the driver.
func (p *Pool) makeSpace(ctx context.Context) (err error) {
	const script = `mount --bind "$0" "$0" && mount --make-shared "$0" && echo ready && exec sleep infinity`
	args := []string{"--mount", "--propagation", "private", "sh", "-c", script, p.Dir()}
	if p.options.PodNetwork {
		args = append([]string{"--net"}, args...)
	}
	p.space, err = process.Start(process.Command{Name: "mount namespace of nodes", Path: "unshare", Args: args})
	if err != nil {
		return err
	}
	return p.space.WaitLog(ctx, "ready")
}

// spaceFile names one of the pool's namespaces: mnt, or net, which is the machine's without Options.PodNetwork.
func (p *Pool) spaceFile(kind string) string {
	return fmt.Sprintf("/proc/%d/ns/%s", p.space.PID(), kind)
}

// Dir is the pool's directory.
func (p *Pool) Dir() string { return p.dir.Path() }

func (p *Pool) imagesFile() string { return filepath.Join(p.Dir(), "images.tar") }

// Nodes returns all nodes in the order of their names in the options.
func (p *Pool) Nodes() []*Node { return p.nodes }

// Node returns the node of that name, or nil.
func (p *Pool) Node(name string) *Node {
	for _, n := range p.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// ImportImages gives the images of an archive to all nodes that are on, as "ctr images import" does. They keep them
// until the pool ends.
func (p *Pool) ImportImages(ctx context.Context, archive string) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range p.nodes {
		group.Go(func() error {
			if err := n.importImages(ctx, archive); err != nil {
				return fmt.Errorf("import images into node %q: %w", n.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// Stop powers all nodes off and removes their files from this machine. Their objects stay in the API.
func (p *Pool) Stop() error {
	var ending errgroup.Group
	for _, n := range p.nodes {
		ending.Go(n.PowerOff)
	}
	err := ending.Wait()
	for _, n := range p.nodes {
		if n.link != nil {
			n.link.close()
		}
	}
	if p.service != nil {
		p.service.close()
	}
	if p.tunnel != nil {
		p.tunnel.close()
	}
	if p.space != nil {
		p.space.Close()
		p.space = nil
	}
	if p.dir != nil {
		err = errors.Join(err, p.dir.Remove())
		p.dir = nil
	}
	if err != nil {
		return fmt.Errorf("stop nodes: %w", err)
	}
	return nil
}

// failedLogLines is how much of a kubelet's log a failed test shows.
const failedLogLines = 40

// RequiredVariable, set to "required", has tests fail on a machine that cannot run nodes. Otherwise they are skipped.
const RequiredVariable = "NODES"

// SkipUnlessSupported skips the test on a machine that cannot run nodes, or fails it: see [RequiredVariable].
func SkipUnlessSupported(t process.TB) {
	t.Helper()
	switch err := Supported(); {
	case err == nil:
	case os.Getenv(RequiredVariable) == "required":
		t.Fatalf("%v", err)
	default:
		t.Skipf("%v", err)
	}
}

// ForTest starts nodes that end with the test, and removes their objects then. It shows the logs of the kubelets if
// the test has failed.
func ForTest(t process.TB, cluster Cluster, o Options) *Pool {
	t.Helper()
	p, err := Start(t.Context(), cluster, o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		p.ShowLogs(t)
		if err := p.Stop(); err != nil {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
		defer cancel()
		for _, n := range p.nodes {
			if err := fakenode.Remove(ctx, p.client, n.name); err != nil {
				t.Errorf("%v", err)
			}
		}
	})
	return p
}

// ShowLogs shows the end of each kubelet's log if the test has failed.
func (p *Pool) ShowLogs(t process.TB) {
	for _, n := range p.nodes {
		if t.Failed() {
			t.Logf("log of the kubelet of %s:\n%s", n.name, n.KubeletLog(failedLogLines))
		}
	}
}

// DriverForTest starts a driver that ends with the test, and shows its log if the test has failed. Pods that use its
// volumes must be gone by then: register their cleanup later than this one.
func (p *Pool) DriverForTest(t process.TB, o DriverOptions) *Driver {
	t.Helper()
	d, err := p.StartDriver(t.Context(), o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of external-attacher of %s:\n%s", o.Name, d.AttacherLog(failedLogLines))
		}
		if err := d.Stop(); err != nil {
			t.Errorf("%v", err)
		}
	})
	return d
}
