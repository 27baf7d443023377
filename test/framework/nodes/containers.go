//go:build linux

package nodes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// Container is a container whose process runs on a node.
type Container struct {
	// ID is containerd's, and PID the number of its first process as the node sees it.
	ID  string
	PID int
	// Namespace, Pod and PodUID name its pod, and Name the container in there.
	Namespace, Pod string
	PodUID         types.UID
	Name           string
}

// Labels that containerd's CRI plugin has from the kubelet.
const (
	labelKind      = "io.cri-containerd.kind"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelPod       = "io.kubernetes.pod.name"
	labelUID       = "io.kubernetes.pod.uid"
	labelContainer = "io.kubernetes.container.name"
)

// Containers returns the containers whose processes run on the node. It asks the node's containerd, and not the API
// server or the kubelet. A node that is powered off runs none. Sandboxes (pause containers) are omitted.
func (n *Node) Containers(ctx context.Context) ([]Container, error) {
	running, err := n.tasks(ctx)
	if err != nil {
		return nil, fmt.Errorf("list containers of node %q: %w", n.name, err)
	}
	var containers []Container
	for id, pid := range running {
		labels, err := n.labelsOf(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("list containers of node %q: %w", n.name, err)
		}
		if labels[labelKind] != "container" {
			continue
		}
		containers = append(containers, Container{ID: id, PID: pid, Namespace: labels[labelNamespace],
			Pod: labels[labelPod], PodUID: types.UID(labels[labelUID]), Name: labels[labelContainer]})
	}
	return containers, nil
}

// Runs reports whether a container of a pod runs on the node.
func (n *Node) Runs(ctx context.Context, pod types.UID) (bool, error) {
	containers, err := n.Containers(ctx)
	for _, c := range containers {
		if c.PodUID == pod {
			return true, err
		}
	}
	return false, err
}

// Kill kills the containers of a pod that run on the node (SIGKILL). The kubelet starts them again, unless it has seen
// that the pod is terminating.
func (n *Node) Kill(ctx context.Context, pod types.UID) error {
	containers, err := n.Containers(ctx)
	for _, c := range containers {
		if c.PodUID != pod {
			continue
		}
		if _, killed := n.ctr(ctx, "tasks", "kill", "--signal", "SIGKILL", c.ID); killed != nil &&
			!strings.Contains(killed.Error(), "not found") {
			err = errors.Join(err, fmt.Errorf("kill container %s of node %q: %w", c.ID, n.name, killed))
		}
	}
	return err
}

// Proc returns a file of /proc of a container's first process, such as "status", as proc(5) describes it.
func (n *Node) Proc(ctx context.Context, of Container, file string) (string, error) {
	text, err := n.output(ctx, "cat", fmt.Sprintf("/proc/%d/%s", of.PID, file))
	if err != nil {
		return "", fmt.Errorf("read /proc of container %q of node %q: %w", of.Name, n.name, err)
	}
	return text, nil
}

// PodLog returns the log of a pod's containers from the node's container runtime: each line with its time and stream.
// It is empty once the kubelet has removed the pod.
func (n *Node) PodLog(ctx context.Context, pod *corev1.Pod) (string, error) {
	script := fmt.Sprintf("cat /var/log/pods/%s_%s_%s/*/*.log 2>/dev/null || true", pod.Namespace, pod.Name, pod.UID)
	text, err := n.output(ctx, "sh", "-c", script)
	if err != nil {
		return "", fmt.Errorf("read log of pod %s/%s on node %q: %w", pod.Namespace, pod.Name, n.name, err)
	}
	return text, nil
}

// Shell runs a script of sh on the node, and returns its exit status.
func (n *Node) Shell(ctx context.Context, script string, stdout, stderr io.Writer) (status int, err error) {
	n.mu.Lock()
	on := n.machine != nil
	command := n.inside("sh", "-c", script)
	n.mu.Unlock()
	if !on {
		return 0, errOff
	}
	command.Stdout, command.Tee = stdout, stderr
	exit := (*exec.ExitError)(nil)
	if err = process.Run(ctx, command); errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// output runs a program on the node and returns its output.
func (n *Node) output(ctx context.Context, name string, args ...string) (string, error) {
	n.mu.Lock()
	on := n.machine != nil
	command := n.inside(name, args...)
	n.mu.Unlock()
	if !on {
		return "", errOff
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	var out bytes.Buffer
	command.Stdout = &out
	err := process.Run(ctx, command)
	return out.String(), err
}

// tasks returns the process numbers of running containers, by container ID.
func (n *Node) tasks(ctx context.Context) (map[string]int, error) {
	out, err := n.ctr(ctx, "tasks", "ls")
	if err != nil {
		return nil, err
	}
	running := map[string]int{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		fields := strings.Fields(lines.Text()) // TASK PID STATUS
		// A task whose state containerd could not find out may run.
		if len(fields) != 3 || fields[0] == "TASK" || fields[2] == "STOPPED" || fields[2] == "CREATED" {
			continue
		}
		if running[fields[0]], err = strconv.Atoi(fields[1]); err != nil {
			return nil, fmt.Errorf("unexpected %q", lines.Text())
		}
	}
	return running, nil
}

// labelsOf asks once for each container, since labels do not change. A container that has ended has none.
func (n *Node) labelsOf(ctx context.Context, id string) (map[string]string, error) {
	n.mu.Lock()
	known, ok := n.labels[id]
	n.mu.Unlock()
	if ok {
		return known, nil
	}
	out, err := n.ctr(ctx, "containers", "info", id)
	if err != nil && strings.Contains(err.Error(), "not found") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var info struct{ Labels map[string]string }
	if len(out) > 0 {
		if err := json.Unmarshal(out, &info); err != nil {
			return nil, fmt.Errorf("container %s: %w", id, err)
		}
	}
	if len(info.Labels) > 0 {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.labels[id] = info.Labels
	}
	return info.Labels, nil
}

// ctr runs containerd's client and returns its output, which is empty for a node that is powered off.
func (n *Node) ctr(ctx context.Context, args ...string) ([]byte, error) {
	n.mu.Lock()
	on := n.machine != nil
	command := n.inside("ctr", append([]string{"-n", "k8s.io"}, args...)...)
	n.mu.Unlock()
	if !on {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	var out bytes.Buffer
	command.Stdout = &out
	err := process.Run(ctx, command)
	return out.Bytes(), err
}

// Mount is a volume that is mounted for a pod.
type Mount struct {
	PodUID types.UID
	// Volume is the name of the pod's directory for it: for a CSI volume the name of the PV.
	Volume string
	Path   string
}

// Mounts returns the CSI volumes that are mounted for pods of the node. It asks the kernel, and not the API server or
// the kubelet.
func (n *Node) Mounts() ([]Mount, error) {
	points, err := n.mountPoints()
	if err != nil {
		return nil, fmt.Errorf("list mounts of node %q: %w", n.name, err)
	}
	var mounts []Mount
	for _, path := range points {
		below, ok := strings.CutPrefix(path, n.KubeletDir()+"/pods/")
		parts := strings.Split(below, "/") // UID/volumes/kubernetes.io~csi/PV/mount
		if ok && len(parts) == 5 && parts[2] == "kubernetes.io~csi" {
			mounts = append(mounts, Mount{PodUID: types.UID(parts[0]), Volume: parts[3], Path: path})
		}
	}
	return mounts, nil
}

// mountPoints returns the mount points below the node's directory, in the order of the mounts.
func (n *Node) mountPoints() ([]string, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/mountinfo", n.pool.space.PID()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var points []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text()) // proc(5): the fifth is the mount point
		if len(fields) < 5 {
			return nil, errors.Join(errors.New("unexpected line in mountinfo"), lines.Err())
		}
		if strings.HasPrefix(fields[4], n.dir+"/") {
			points = append(points, fields[4])
		}
	}
	return points, lines.Err()
}

const (
	// cgroupRoot is where the system has its cgroups: one tree, or with version 1 a directory for each controller.
	cgroupRoot = "/sys/fs/cgroup"
	// criCgroup is the parent of all containers' cgroups, which containerd names by ID.
	criCgroup = "k8s.io"
	// bundles is where containerd has a directory for each container that runs, by ID, below its state directory.
	bundles = "io.containerd.runtime.v2.task/k8s.io"
	// cgroupPatience is how long the kernel may take to see that the processes of a cgroup have ended.
	cgroupPatience = time.Second
)

// cgroupVersion2 reports whether the system has the one tree of version 2, and nothing else.
func cgroupVersion2() bool {
	_, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers"))
	return err == nil
}

// removeCgroups removes the cgroups of a killed containerd's containers, by its state directory. A cgroup that cannot
// be removed costs nothing but its name.
func removeCgroups(state string) {
	containers, _ := filepath.Glob(filepath.Join(state, bundles, "*"))
	for _, container := range containers {
		id := filepath.Base(container)
		for _, root := range []string{cgroupRoot, filepath.Join(cgroupRoot, "*")} {
			trees, _ := filepath.Glob(filepath.Join(root, criCgroup, id))
			for _, tree := range trees {
				removeCgroup(tree)
			}
		}
	}
}

func removeCgroup(tree string) {
	var dirs []string
	_ = filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	slices.Reverse(dirs) // children first
	for _, dir := range dirs {
		for begun := time.Now(); time.Since(begun) < cgroupPatience; time.Sleep(5 * time.Millisecond) {
			if err := os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
		}
	}
}
