//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

const (
	pollInterval = 50 * time.Millisecond
	// portAttempts is how often other ports are tried when a program takes one between our look and our use.
	portAttempts = 5
)

// errOff says that a node is powered off.
var errOff = errors.New("node is powered off")

// Node is one node: a containerd, a kubelet and their processes. It has its own process and mount namespaces, and the
// network of the machine or of the pool. Its methods may be called from any goroutine.
type Node struct {
	pool    *Pool
	name    string
	dir     string // survives a loss of power, as a disk does
	address string // with Options.PodNetwork
	link    *link  // nil without Options.Links

	mu         sync.Mutex
	machine    *process.Process // its end ends all processes of the node; nil while it is powered off
	init       int              // the process number of the node's first process
	containerd *process.Process
	kubelet    *process.Process
	// partitioned means that the kubelet is stopped, or its link is cut.
	partitioned bool
	labels      map[string]map[string]string // of containers that were seen, by ID
}

func (p *Pool) newNode(name, address string) (*Node, error) {
	n := &Node{pool: p, name: name, address: address, dir: filepath.Join(p.Dir(), name),
		labels: map[string]map[string]string{}}
	for _, dir := range []string{n.KubeletDir(), n.file("containerd"), n.file("cni"), n.file("sysctl")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	return n, n.writeFiles()
}

// Name is the node's name.
func (n *Node) Name() string { return n.name }

// Address is the node's own address, with Options.PodNetwork.
func (n *Node) Address() string { return n.address }

// KubeletDir is the kubelet's --root-dir, in which it mounts the volumes of its pods. With Options.PodNetwork, the node
// itself has it in /var/lib/kubelet, where manifests of CSI drivers expect it.
func (n *Node) KubeletDir() string { return n.file("kubelet") }

func (n *Node) file(name string) string { return filepath.Join(n.dir, name) }

// Boot starts a node that is powered off, with a boot ID of its own, and returns once the API server has it Ready.
func (n *Node) Boot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := n.boot(ctx); err != nil {
		return fmt.Errorf("boot node %q: %w", n.name, err)
	}
	return nil
}

func (n *Node) boot(ctx context.Context) error {
	first, err := n.powerOn(ctx)
	if err != nil {
		return err
	}
	if err := n.startContainerd(ctx, first); err != nil {
		return err
	}
	return n.startKubelet(ctx)
}

// machineScript is the first process of a node. It mounts the parts that a machine has of its own, and reaps processes.
// /run is empty as after each boot, and directories that programs write to regardless of their flags are separate. The
// kubelet finds the kernel's settings as it requires, since it would otherwise change this machine's. It reads the
// node's own boot ID at Linux's usual path.
const machineScript = `set -e
node="$0"
for dir in /run /var/lib /var/log; do mount -t tmpfs node $dir; done
mkdir /var/lib/containerd && mount --bind "$node/containerd" /var/lib/containerd
if [ -n "$1" ]; then mkdir "$1" && mount --bind "$node/kubelet" "$1"; fi
cd "$node/sysctl" && find . -type f | while read -r key; do mount --bind "$key" "/proc/sys/$key"; done
mount --bind "$node/boot_id" /proc/sys/kernel/random/boot_id
cd /
echo booted
while :; do sleep 3600 & wait; done`

// powerOn starts the first process, and reports whether it is the first time.
func (n *Node) powerOn(ctx context.Context) (first bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.machine != nil {
		return false, errors.New("it is on")
	}
	_, err = os.Stat(n.file("boot_id"))
	first = os.IsNotExist(err)
	if err := os.WriteFile(n.file("boot_id"), []byte(uuid.NewUUID()+"\n"), 0o644); err != nil {
		return false, err
	}
	kubeletDir := ""
	if n.pool.options.commonDir() {
		kubeletDir = commonKubeletDir
	}
	machine, err := process.Start(process.Command{Name: n.name, Path: "nsenter", Args: []string{
		"--mount=" + n.pool.spaceFile("mnt"), "--net=" + n.pool.spaceFile("net"),
		"unshare", "--pid", "--fork", "--kill-child", "--mount", "--propagation", "unchanged", "--mount-proc",
		"sh", "-c", machineScript, n.dir, kubeletDir,
	}})
	if err != nil {
		return false, err
	}
	n.machine = machine
	if err := machine.WaitLog(ctx, "booted"); err != nil {
		return false, err
	}
	n.init, err = childOf(machine.PID())
	return first, err
}

// childOf returns the one child of a process.
func childOf(pid int) (int, error) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(children)))
}

// inside is a command that runs on the node.
func (n *Node) inside(name string, args ...string) process.Command {
	enter := []string{"--target", strconv.Itoa(n.init), "--mount", "--pid", "--net", "--", name}
	return process.Command{Name: name + " of " + n.name, Path: "nsenter", Args: append(enter, args...),
		Env: []string{"PATH=" + os.Getenv("PATH") + ":" + sbin}}
}

func (n *Node) startContainerd(ctx context.Context, first bool) error {
	command := n.inside("containerd", "--config", n.file("containerd.toml"))
	command.LogFile = n.file("containerd.log")
	started, err := process.Start(command)
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.containerd = started
	n.mu.Unlock()
	if err := started.WaitLog(ctx, "containerd successfully booted"); err != nil {
		return err
	}
	if !first {
		return nil
	}
	return n.importImages(ctx, n.pool.imagesFile())
}

func (n *Node) importImages(ctx context.Context, archive string) error {
	return process.Run(ctx, n.inside("ctr", "-n", "k8s.io", "images", "import", "--snapshotter", "native", archive))
}

// startKubelet starts the kubelet and waits until the API server has heard from it that the node is Ready.
func (n *Node) startKubelet(ctx context.Context) error {
	var err error
	for range portAttempts {
		begun := time.Now()
		if err = n.runKubelet(); err != nil {
			return err
		}
		if err = n.waitHeard(ctx, begun); err == nil || !strings.Contains(n.KubeletLog(logLines), "address already in use") {
			break
		}
	}
	return err
}

func (n *Node) runKubelet() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.machine == nil {
		return errOff
	}
	if n.kubelet != nil && n.kubelet.Running() {
		return errors.New("its kubelet runs")
	}
	ports, err := controlplane.FreePorts(1)
	if err != nil {
		return err
	}
	command := n.inside(n.pool.kubelet, n.kubeletArgs(ports[0])...)
	command.Name, command.LogFile = "kubelet of "+n.name, n.file("kubelet.log")
	previous := n.kubelet
	if n.kubelet, err = process.Start(command); err != nil {
		return err
	}
	if previous != nil {
		previous.Close()
	}
	return nil
}

// waitHeard waits until the node is Ready, by a kubelet that has renewed its Lease since.
func (n *Node) waitHeard(ctx context.Context, since time.Time) error {
	kubelet := n.currentKubelet()
	err := n.poll(ctx, func() error {
		select {
		case <-kubelet.Done():
			return fmt.Errorf("%w: %v", errEnded, kubelet.Err()) //nolint:errorlint // it may be nil
		default:
		}
		lease, err := n.pool.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(since) {
			return errors.New("its Lease is not renewed yet")
		}
		if err := n.ready(ctx, since); err != nil {
			return err
		}
		return n.booted(ctx)
	})
	if err != nil {
		return fmt.Errorf("wait until it is Ready: %w\n%s", err, kubelet.LogTail(logLines))
	}
	return nil
}

// errEnded says that the kubelet has ended by itself.
var errEnded = errors.New("the kubelet has ended")

// ready returns nil if the API server has the node Ready, as its kubelet has said since then.
func (n *Node) ready(ctx context.Context, since time.Time) error {
	node, err := n.pool.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		switch {
		case c.Type != corev1.NodeReady:
		case c.Status != corev1.ConditionTrue:
			return fmt.Errorf("it is not Ready but %s: %s", c.Status, c.Message)
		case c.LastHeartbeatTime.Add(time.Second).Before(since): // the API has whole seconds
			return fmt.Errorf("its condition is of %s, before the kubelet's start", c.LastHeartbeatTime)
		default:
			return nil
		}
	}
	return errors.New("it has no condition Ready")
}

// booted returns nil if the API server has the node's boot ID.
func (n *Node) booted(ctx context.Context) error {
	want, err := n.BootID()
	if err != nil {
		return err
	}
	node, err := n.pool.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
	if err == nil && node.Status.NodeInfo.BootID != want {
		err = fmt.Errorf("its boot ID is %q, not %q", node.Status.NodeInfo.BootID, want)
	}
	return err
}

// WaitReady returns once the node is Ready in the API, no matter which program wrote that.
func (n *Node) WaitReady(ctx context.Context) error {
	if err := n.poll(ctx, func() error { return n.ready(ctx, time.Time{}) }); err != nil {
		return fmt.Errorf("wait until node %q is Ready: %w", n.name, err)
	}
	return nil
}

// KubeletRuns reports whether the process of the kubelet runs, also if it is stopped or cut off.
func (n *Node) KubeletRuns() bool {
	kubelet := n.currentKubelet()
	return kubelet != nil && kubelet.Running()
}

func (n *Node) currentKubelet() *process.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.kubelet
}

// KubeletLog returns the last lines of the kubelet's log.
func (n *Node) KubeletLog(lines int) string {
	if kubelet := n.currentKubelet(); kubelet != nil {
		return kubelet.LogTail(lines)
	}
	return ""
}

// poll repeats question until it has no error, or the kubelet has ended.
func (n *Node) poll(ctx context.Context, question func() error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error // from before ctx ended: later errors say only that
	for {
		err := question()
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}
