//go:build linux

package nodes_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes/stamps"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// pausing has a pod do nothing.
func pausing(pod *v1.Pod) {
	pod.Spec = withNode(nodes.WriterSpec(), pod.Spec.NodeName)
	pod.Spec.Containers[0].Args = []string{"pause"}
}

// writing has a pod write to its claims.
func writing(claims ...string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec = withNode(nodes.WriterSpec(claims...), pod.Spec.NodeName) }
}

func withNode(spec v1.PodSpec, node string) v1.PodSpec {
	spec.NodeName = node
	return spec
}

// TestNodes is one test, because each part would need nodes of its own.
func TestNodes(t *testing.T) {
	env := newEnvironment(t)
	begun := time.Now()
	pool := nodes.ForTest(t, env.plane, nodes.Options{Names: []string{"node-1", "node-2"}, Links: true,
		Progress: os.Stderr})
	t.Logf("two nodes in %s", time.Since(begun).Round(100*time.Millisecond))
	for _, attach := range []bool{true, false} {
		t.Run(fmt.Sprintf("a pod writes to a volume, attached %v", attach), func(t *testing.T) {
			env.forSubtest(t).testVolume(pool, attach)
		})
	}
	t.Run("containers run while the kubelet does not", func(t *testing.T) {
		env.forSubtest(t).testKubelet(pool.Node("node-1"), pool.Node("node-2"))
	})
	t.Run("a pod outlives a cut of the network", func(t *testing.T) {
		env.forSubtest(t).testDisconnected(pool.Node("node-1"), pool.Node("node-2"))
	})
	t.Run("a node that is frozen writes nothing", func(t *testing.T) { env.forSubtest(t).testFrozen(pool) })
	t.Run("an agent asks a server", func(t *testing.T) { env.forSubtest(t).testFencer(pool.Node("node-1")) })
	t.Run("a loss of power ends all", func(t *testing.T) {
		env.forSubtest(t).testPower(pool.Node("node-2"))
	})
}

// testVolume writes to a volume, and looks for mounts and calls.
func (env *environment) testVolume(pool *nodes.Pool, attach bool) {
	name := fmt.Sprintf("attach-%v.test", attach)
	driver := pool.DriverForTest(env.T, nodes.DriverOptions{Options: mockdriver.Options{Name: name}, Attach: attach})
	env.Driver, env.CSI = name, driver.Controller()
	vol, err := env.Make(env.withTimeout(), objects.Spec{Name: "volume-" + strings.TrimSuffix(name, ".test"),
		Policy: v1.PersistentVolumeReclaimRetain})
	env.must(err)
	pod, err := env.MakePod(env.Context(), objects.PodSpec{Name: "writer", Node: "node-1", Change: writing(vol.ClaimName)})
	env.must(err)
	written, err := driver.WaitStamps(env.withTimeout(), vol.Handle,
		func(all []stamps.Stamp) bool { return len(all) >= 5 })
	env.must(err)
	if s := written[0]; s.Pod != pod.UID || s.Name != pod.Name || s.Node != "node-1" {
		env.Errorf("stamp %+v", s)
	}
	mounts, err := pool.Node("node-1").Mounts()
	env.must(err)
	if len(mounts) != 1 || mounts[0].PodUID != pod.UID || mounts[0].Volume != vol.Name {
		env.Errorf("mounts %+v, want that of PV %s for pod %s", mounts, vol.Name, pod.UID)
	}
	if elsewhere, err := pool.Node("node-2").Mounts(); err != nil || len(elsewhere) != 0 {
		env.Errorf("mounts of another node %+v, %v", elsewhere, err)
	}
	env.must(pod.Delete(env.Context()))
	env.must(pod.WaitGone(env.withTimeout()))
	last := "NodeUnstageVolume"
	if attach {
		last = "ControllerUnpublishVolume"
	}
	calls, err := driver.WaitCalls(env.withTimeout(), func(calls []ledger.Call) bool {
		return len(calls) > 0 && calls[len(calls)-1].Method == last && calls[len(calls)-1].Code == "OK"
	}, "ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume",
		"ControllerUnpublishVolume")
	env.must(err)
	var order []string
	for _, call := range calls {
		if call.Node != "node-1" {
			env.Errorf("call %+v for another node", call)
		}
		order = append(order, strings.TrimSuffix(call.Method, "Volume"))
	}
	want := "NodeStage NodePublish NodeUnpublish NodeUnstage"
	if attach {
		want = "ControllerPublish " + want + " ControllerUnpublish"
	}
	// A call may be repeated: external-attacher attaches again if its watch shows its own write late.
	if got := strings.Join(slices.Compact(order), " "); got != want {
		env.Errorf("calls %s, want %s", got, want)
	}
	if mounts, err := pool.Node("node-1").Mounts(); err != nil || len(mounts) != 0 {
		env.Errorf("mounts after the end: %+v, %v", mounts, err)
	}
}

// testKubelet stops, kills and restarts a kubelet under a pod.
func (env *environment) testKubelet(node, other *nodes.Node) {
	pod := env.runPod(node)
	canary := env.runPodNamed("canary", other)
	env.must(node.Partition())
	zero := int64(0)
	env.must(env.client.CoreV1().Pods(env.Namespace).Delete(env.Context(), pod.Name,
		metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	env.must(pod.WaitGone(env.withTimeout()))
	env.end(other, canary)
	env.expectRuns(node, pod, true)
	env.must(node.Heal())
	env.waitEnded(node, pod)

	pod = env.runPod(node)
	before := env.containerOf(node, pod)
	env.must(node.Crash())
	env.expectRuns(node, pod, true)
	env.must(node.Restart(env.withTimeout()))
	if after := env.containerOf(node, pod); after.ID != before.ID || after.PID != before.PID {
		env.Errorf("container %+v after the restart, want %+v", after, before)
	}
	env.must(pod.Delete(env.Context()))
	env.must(pod.WaitGone(env.withTimeout()))
	env.waitEnded(node, pod)
}

// testDisconnected cuts the network of a kubelet under a pod.
func (env *environment) testDisconnected(node, other *nodes.Node) {
	pod := env.runPod(node)
	canary := env.runPodNamed("canary", other)
	env.must(node.Disconnect())
	env.must(pod.Delete(env.Context()))
	env.end(other, canary)
	env.expectRuns(node, pod, true)
	env.must(node.Connect())
	env.must(pod.WaitGone(env.withTimeout()))
	env.waitEnded(node, pod)
}

// testFrozen freezes a node under a pod that writes, and ends that.
func (env *environment) testFrozen(pool *nodes.Pool) {
	node, other := pool.Node("node-2"), pool.Node("node-1")
	driver := pool.DriverForTest(env.T, nodes.DriverOptions{Options: mockdriver.Options{Name: "frozen.test"}})
	env.Driver, env.CSI = driver.Name(), driver.Controller()
	vol, err := env.Make(env.withTimeout(), objects.Spec{Name: "frozen", Policy: v1.PersistentVolumeReclaimRetain})
	env.must(err)
	write := func(name, on string, change func(*v1.Pod)) *objects.Pod {
		pod, err := env.MakePod(env.Context(), objects.PodSpec{Name: name, Node: on, Change: change})
		env.must(err)
		return pod
	}
	written := func(pod *objects.Pod) (n int) {
		all, err := driver.Stamps(vol.Handle)
		env.must(err)
		for _, s := range all {
			if s.Pod == pod.UID {
				n++
			}
		}
		return n
	}
	wait := func(pod *objects.Pod, more int) {
		before := written(pod)
		env.eventually("pod "+pod.Name+" writes", func(context.Context) error {
			if written(pod) < before+more {
				return errNotYet
			}
			return nil
		})
	}
	first := write("first", node.Name(), writing(vol.ClaimName))
	wait(first, 5)
	env.must(node.Freeze(env.Context()))
	before := written(first)
	second := write("second", other.Name(), writing(vol.ClaimName)) // a clock
	wait(second, 20)
	if after := written(first); after != before {
		env.Errorf("a pod of a node that is frozen has written %d times", after-before)
	}
	env.must(node.Thaw(env.Context()))
	wait(first, 5)
	for _, pod := range []*objects.Pod{first, second} {
		env.must(pod.Delete(env.Context()))
		env.must(pod.WaitGone(env.withTimeout()))
	}
}

// testFencer has a pod ask a server, which refuses and then agrees.
func (env *environment) testFencer(node *nodes.Node) {
	asked := make(chan string, 2)
	var status atomic.Int32
	status.Store(http.StatusConflict)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.FormValue("FENCE_NODE") + " " + r.FormValue("POD_UID")
		w.WriteHeader(int(status.Load()))
	}))
	defer server.Close()
	for _, want := range []v1.PodPhase{v1.PodFailed, v1.PodSucceeded} {
		pod, err := env.MakePod(env.Context(), objects.PodSpec{Name: "fencer", Node: node.Name(), Change: func(pod *v1.Pod) {
			pod.Spec = withNode(nodes.FencerSpec(server.URL), pod.Spec.NodeName)
			pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "FENCE_NODE", Value: "node-9"}, {Name: "POD_UID", Value: "none"}}
		}})
		env.must(err)
		env.must(pod.Wait(env.withTimeout(), string(want), func(pod *v1.Pod) bool { return pod.Status.Phase == want }))
		if got := <-asked; got != "node-9 " {
			env.Errorf("the server was asked %q", got)
		}
		env.must(pod.Delete(env.Context()))
		env.must(pod.WaitGone(env.withTimeout()))
		status.Store(http.StatusOK)
	}
}

// testPower takes the power from a node.
func (env *environment) testPower(node *nodes.Node) {
	pod := env.runPod(node)
	before := env.containerOf(node, pod)
	if bootID := env.bootID(node); bootID == "" {
		env.Error("no boot ID")
	}
	old := env.bootID(node)
	env.must(node.PowerOff())
	env.must(node.PowerOff()) // which does nothing
	env.expectRuns(node, pod, false)
	if node.Heal() == nil || node.Restart(env.Context()) == nil {
		env.Error("a kubelet without power does what it is asked for")
	}
	begun := time.Now()
	env.must(node.Boot(env.withTimeout()))
	env.Logf("booted in %s", time.Since(begun).Round(100*time.Millisecond))
	if got := env.bootID(node); got == old {
		env.Errorf("boot ID %s, as before", got)
	}
	env.eventually("the pod's container is started again", func(ctx context.Context) error {
		runs, err := node.Runs(ctx, pod.UID)
		if err != nil || !runs {
			return fmt.Errorf("%w: %v", errNotYet, err) //nolint:errorlint // it may be nil
		}
		return nil
	})
	if after := env.containerOf(node, pod); after.ID == before.ID {
		env.Errorf("container %s runs again", after.ID)
	}
	env.must(pod.Delete(env.Context()))
	env.must(pod.WaitGone(env.withTimeout()))
}

// end deletes a pod, and waits until its container has ended: as long as a kubelet takes that hears of it.
func (env *environment) end(node *nodes.Node, pod *objects.Pod) {
	env.Helper()
	env.must(pod.Delete(env.Context()))
	env.must(pod.WaitGone(env.withTimeout()))
	env.waitEnded(node, pod)
}

func (env *environment) runPod(node *nodes.Node) *objects.Pod {
	env.Helper()
	return env.runPodNamed("pod", node)
}

func (env *environment) runPodNamed(name string, node *nodes.Node) *objects.Pod {
	env.Helper()
	pod, err := env.MakePod(env.Context(), objects.PodSpec{Name: name, Node: node.Name(), Change: pausing})
	env.must(err)
	_, err = pod.WaitRunning(env.withTimeout())
	env.must(err)
	return pod
}

func (env *environment) expectRuns(node *nodes.Node, pod *objects.Pod, want bool) {
	env.Helper()
	runs, err := node.Runs(env.Context(), pod.UID)
	env.must(err)
	if runs != want {
		env.Errorf("the pod runs: %v, want %v", runs, want)
	}
}

func (env *environment) waitEnded(node *nodes.Node, pod *objects.Pod) {
	env.Helper()
	env.eventually("the pod's container ends", func(ctx context.Context) error {
		runs, err := node.Runs(ctx, pod.UID)
		if err == nil && runs {
			err = errNotYet
		}
		return err
	})
}

func (env *environment) containerOf(node *nodes.Node, pod *objects.Pod) nodes.Container {
	env.Helper()
	containers, err := node.Containers(env.Context())
	env.must(err)
	for _, c := range containers {
		if c.PodUID == pod.UID && c.Pod == pod.Name && c.Namespace == env.Namespace && c.Name == "writer" {
			return c
		}
	}
	env.Fatalf("pod %s has no container on %s, which runs %+v", pod.UID, node.Name(), containers)
	return nodes.Container{}
}

// bootID returns the node's boot ID from the API.
func (env *environment) bootID(node *nodes.Node) string {
	env.Helper()
	object, err := env.client.CoreV1().Nodes().Get(env.Context(), node.Name(), metav1.GetOptions{})
	env.must(err)
	return object.Status.NodeInfo.BootID
}

// TestKilledRunLeavesNoResources kills a run with a node and a pod: its processes end, and nothing stays mounted. The
// next run removes its directory and cgroups. An interrupted run ends in the same way.
func TestKilledRunLeavesNoResources(t *testing.T) {
	nodes.SkipUnlessSupported(t)
	env := &environment{T: t}
	temporary, err := os.MkdirTemp("", "n") // not a directory of the test: sockets need short paths
	env.must(err)
	env.Cleanup(func() { _ = os.RemoveAll(temporary) })
	run := exec.Command(os.Args[0])
	run.Env = append(os.Environ(), roleVariable+"=run", "TMPDIR="+temporary)
	run.Stderr = os.Stderr
	stdout, err := run.StdoutPipe()
	env.must(err)
	env.must(run.Start())
	env.Cleanup(func() { _ = run.Process.Kill(); _ = run.Wait() })
	dir := ""
	for lines := bufio.NewScanner(stdout); dir == "" && lines.Scan(); {
		dir, _ = strings.CutPrefix(lines.Text(), "folder ")
	}
	if dir == "" {
		env.Fatal("the run ended before it had a pod")
	}
	containers, err := filepath.Glob(filepath.Join(dir, "*", "state", "*", "k8s.io", "*"))
	env.must(err)
	if there, cgroups := processesOf(dir, containers), cgroupsOf(containers); len(there) < 6 || len(cgroups) < 2 ||
		len(containers) != 2 {
		env.Fatalf("the run in %q has %d processes, containers %q and cgroups %q", dir, len(there), containers, cgroups)
	}
	env.must(run.Process.Kill())
	env.eventually("end of its processes", func(context.Context) error {
		if left := processesOf(dir, containers); len(left) > 0 {
			return fmt.Errorf("%w: %q", errNotYet, left)
		}
		return nil
	})
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), dir) {
		env.Errorf("%v: something is mounted in %s:\n%s", err, dir, mounts)
	}
	env.eventually("removal of the directory and cgroups", func(context.Context) error {
		nodes.RemoveOrphans(temporary)
		if _, err := os.Stat(dir); err == nil || len(cgroupsOf(containers)) > 0 {
			return fmt.Errorf("%w: %v", errNotYet, cgroupsOf(containers))
		}
		return nil
	})
}

// processesOf returns the programs of all processes that name the directory or are in a cgroup of these containers.
func processesOf(dir string, containers []string) []string {
	var found []string
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range all {
		command, _ := os.ReadFile(filepath.Join(process, "cmdline"))
		cgroup, _ := os.ReadFile(filepath.Join(process, "cgroup"))
		in := slices.ContainsFunc(containers, func(container string) bool {
			return strings.Contains(string(cgroup), filepath.Base(container))
		})
		if in || strings.Contains(string(command), dir) {
			name, _, _ := strings.Cut(string(command), "\x00")
			found = append(found, filepath.Base(process)+" "+name)
		}
	}
	return found
}

// cgroupsOf returns the cgroups of these containers.
func cgroupsOf(containers []string) []string {
	var found []string
	for _, container := range containers {
		for _, pattern := range []string{"/sys/fs/cgroup/k8s.io/", "/sys/fs/cgroup/*/k8s.io/"} {
			cgroups, _ := filepath.Glob(pattern + filepath.Base(container))
			found = append(found, cgroups...)
		}
	}
	return found
}
