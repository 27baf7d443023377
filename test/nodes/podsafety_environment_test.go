//go:build linux

package nodes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	records "github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes/stamps"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

const (
	// guardNamespace is volume-guard's namespace in the manifests: the policies exempt only its account there.
	guardNamespace = "csi-reclaimer"
	// unmountGrace is volume-guard's here, far below its default.
	unmountGrace = 3 * time.Second
	// longWait bounds Kubernetes' own slow actions: the pod garbage collector ignores the pods of a deleted Node for 40
	// seconds, and then acts every 20.
	longWait = 4 * time.Minute
)

// safety is the environment of a pod safety scenario: a namespace that enforces it, on nodes that all scenarios share.
type safety struct {
	*environment
	guard *program.Program
}

// startSafety starts two nodes, and volume-guard with pod safety.
func startSafety(t *testing.T) *safety {
	t.Helper()
	begun := time.Now()
	env := startNodes(t, "safe.csi-reclaimer.io", nodes.Options{Names: []string{node1, node2}})
	s := &safety{environment: env,
		guard: env.startGuard([]string{"pod-safety"}, manifests.PodSafety(env.Plane.Version()))}
	t.Logf("control plane, nodes, driver and volume-guard in %s", time.Since(begun).Round(100*time.Millisecond))
	return s
}

// startNodes starts a control plane with additional arguments of the controller manager, and nodes with a driver that
// does not attach.
func startNodes(t *testing.T, driver string, o nodes.Options, managerArgs ...string) *environment {
	t.Helper()
	nodes.SkipUnlessSupported(t)
	plane := controlplane.ForTest(t, fixture.Version(), controlplane.Options{
		Scheduler: true, ControllerManagerQPS: 5000,
		// A node counts as unreachable sooner than after 50 seconds.
		ControllerManagerArgs: append(managerArgs, "--node-monitor-grace-period=20s", "--node-monitor-period=1s"),
	})
	env := &environment{Environment: fixture.NewOn(t, plane, driver)}
	env.CreateServiceAccount("csi-reclaimer")
	env.GrantRole("owner")
	o.Progress, o.Kubelet = os.Stderr, leases
	env.useNodes(nodes.ForTest(t, plane, o), driver, false)
	env.StartSidecar(fixture.FastRetries()...)
	return env
}

// leases have a kubelet renew its Lease four times in that time, so that one on a busy machine does not count as away.
var leases = map[string]any{"nodeLeaseDurationSeconds": 12}

// startGuard applies manifests, as an operator does, and starts volume-guard with these controllers, and with its
// shipped account and permissions.
func (env *environment) startGuard(controllers, files []string) *program.Program {
	env.T.Helper()
	return env.runGuard(env.installGuard(controllers, files), controllers)
}

// installGuard applies manifests, and returns volume-guard's account with the permissions for these controllers.
func (env *environment) installGuard(controllers, files []string) *rest.Config {
	env.T.Helper()
	env.Namespaces().Create(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: guardNamespace}})
	env.Must(manifests.Apply(env.Ctx, env.Plane.Admin(), files...))
	_, err := rbac.GrantGuardController(env.Ctx, env.Client, guardNamespace, fixture.VolumeGuardName, controllers...)
	env.Must(err)
	account, err := env.Plane.ServiceAccount(env.Ctx, guardNamespace, fixture.VolumeGuardName)
	env.Must(err)
	return account
}

// runGuard starts volume-guard with these controllers.
func (env *environment) runGuard(account *rest.Config, controllers []string) *program.Program {
	env.T.Helper()
	kubeconfig := filepath.Join(env.T.TempDir(), "kubeconfig")
	env.Must(controlplane.WriteKubeconfig(kubeconfig, account))
	binary, err := fixture.VolumeGuardBinary(env.Ctx)
	env.Must(err)
	g, err := program.Start(env.Ctx, program.Options{
		Name: fixture.VolumeGuardName, Binary: binary, Dir: env.T.TempDir(), Args: []string{
			"--kubeconfig=" + kubeconfig, "--controllers=" + strings.Join(controllers, ",") + ",-intree",
			"--leader-election=false", "--unmount-grace=" + unmountGrace.String(), "--retry-interval-start=50ms",
			"--retry-interval-max=500ms",
		},
	})
	env.Must(err)
	env.StopAtEnd(g)
	env.Must(g.WaitReady(env.WithTimeout()))
	return g
}

// scenario returns the environment with its own namespace in this mode, "" for none, and cleans up at the end.
func (s *safety) scenario(t *testing.T, mode string) *safety {
	t.Helper()
	sub := s.inNamespace(t, mode)
	for _, n := range s.pool.Nodes() {
		sub.Must(n.WaitReady(sub.WithTimeout()))
	}
	t.Cleanup(func() {
		sub.showFailure()
		sub.end()
	})
	return sub
}

// inNamespace returns the same in a namespace of its own with this mode, "" for none.
func (s *safety) inNamespace(t *testing.T, mode string) *safety {
	t.Helper()
	env := &environment{Environment: fixture.NewOn(t, s.Plane, s.Driver), pool: s.pool, driver: s.driver}
	env.AdoptDriver(s.driver.Driver)
	sub := &safety{environment: env, guard: s.guard}
	if mode == "" {
		return sub
	}
	env.Namespaces().Merge(env.Namespace, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, podsafety.NamespaceLabel, mode))
	env.Eventually("pods are held in the write that creates them", func() bool {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: nodes.WriterSpec("probe")}
		made, err := env.Client.CoreV1().Pods(env.Namespace).Create(env.Ctx, pod,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		env.Must(err)
		return isHeld(made) || s.Plane.Version().Before(controlplane.V1_36)
	})
	return sub
}

// end ends the scenario's workloads. A failed scenario may leave pods that wait for evidence.
func (s *safety) end() {
	ctx := s.CleanupContext()
	if s.T.Failed() {
		list, err := s.Client.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{})
		s.Must(err)
		for i := range list.Items {
			s.confirm(ctx, &list.Items[i])
		}
	}
	s.removePods()
}

// showFailure prints the state of a failed scenario.
func (s *safety) showFailure() {
	if !s.T.Failed() {
		return
	}
	s.T.Logf("log of volume-guard about this scenario:\n%s", strings.Join(s.guardLog(""), ""))
	list, err := s.Client.CoreV1().Pods(s.Namespace).List(s.CleanupContext(), metav1.ListOptions{})
	s.Must(err)
	for i := range list.Items {
		s.T.Logf("pod %s: %s", list.Items[i].Name, describe(&list.Items[i]))
	}
}

// describe returns the fields from which evidence is read.
func describe(pod *v1.Pod) string {
	text := fmt.Sprintf("UID %s on %s: phase %s, generation %d, status.observedGeneration %d, deletion %v, grace %v, "+
		"finalizers %v", pod.UID, pod.Spec.NodeName, pod.Status.Phase, pod.Generation, pod.Status.ObservedGeneration,
		pod.DeletionTimestamp, ptr.Deref(pod.DeletionGracePeriodSeconds, -1), pod.Finalizers)
	for _, c := range pod.Status.Conditions {
		text += fmt.Sprintf("\n  condition %s %s %s of generation %d", c.Type, c.Status, c.Reason, c.ObservedGeneration)
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		text += fmt.Sprintf("\n  container %s: %+v", c.Name, c.State)
	}
	for _, m := range pod.ManagedFields {
		if m.Subresource == "status" && strings.Contains(string(m.FieldsV1.GetRawBytes()), `"f:phase"`) {
			text += "\n  phase written by " + m.Manager
		}
	}
	return text
}

func isHeld(pod *v1.Pod) bool { return slices.Contains(pod.Finalizers, records.RunningFinalizer) }

// until waits for a condition, for longer than Eventually.
func (s *safety) until(what string, so func() bool) {
	s.T.Helper()
	err := wait.PollUntilContextTimeout(s.Ctx, 50*time.Millisecond, longWait, true,
		func(context.Context) (bool, error) { return so(), nil })
	if err != nil {
		s.T.Fatalf("never: %s", what)
	}
}

// database is a StatefulSet of one pod that writes to its volume, and the pod that it began with.
type database struct {
	*safety
	name   string
	first  *v1.Pod
	volume *objects.Volume
}

// longEnd is the grace period of a pod to which something happens while it ends: enough for that on a busy machine.
const longEnd = 20 * time.Second

// stubborn has a writer write on after SIGTERM, until the end of this grace period.
func stubborn(grace time.Duration) func(*v1.PodSpec) {
	return func(spec *v1.PodSpec) {
		spec.TerminationGracePeriodSeconds = ptr.To(int64(grace.Seconds()))
		spec.Containers[0].Args = append([]string{"--ignore-term"}, spec.Containers[0].Args...)
	}
}

// startDatabase starts a database on a node. Its replacement then goes to the other node.
func (s *safety) startDatabase(name, node, other string, changes ...func(*v1.PodSpec)) *database {
	s.T.Helper()
	s.cordon(s.Ctx, node, false)
	s.cordon(s.Ctx, other, true)
	s.createStatefulSet(name, s.CreateStorageClass(), changes...)
	d := s.waitDatabase(name, node)
	s.cordon(s.Ctx, other, false)
	s.cordon(s.Ctx, node, true)
	return d
}

// waitDatabase waits until the pod of a StatefulSet writes on a node, is held where that is asked for, and the policies
// are in force.
func (s *safety) waitDatabase(name, node string) *database {
	s.T.Helper()
	d := &database{safety: s, name: name + "-0", volume: s.WaitBound(s.waitClaimOf("volume-0-" + name + "-0")).Volume}
	d.first = s.waitPod(d.name, "")
	s.waitWritten(d.volume, d.first.UID, 5)
	s.expectRuns(node, d.first.UID, true)
	s.Eventually("the pod is held", func() bool { return isHeld(d.now()) })
	s.Eventually("force deletions are refused", func() bool {
		return apierrors.IsForbidden(d.forceDelete(metav1.DryRunAll))
	})
	d.first = d.now()
	return d
}

// now returns the pod of the name, or nil.
func (d *database) now() *v1.Pod {
	d.T.Helper()
	pod, err := d.Client.CoreV1().Pods(d.Namespace).Get(d.Ctx, d.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	d.Must(err)
	return pod
}

func (d *database) delete() {
	d.T.Helper()
	d.Pods().Delete(d.name)
}

// forceDelete is kubectl delete pod --force.
func (d *database) forceDelete(dryRun ...string) error {
	return d.Client.CoreV1().Pods(d.Namespace).Delete(d.Ctx, d.name,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), DryRun: dryRun})
}

// confirm confirms by hand that the processes of a pod have ended.
func (s *safety) confirm(ctx context.Context, pod *v1.Pod) {
	s.T.Helper()
	_, err := s.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, records.ConfirmAnnotation, pod.UID), metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		s.Must(err)
	}
}

// expectHeld checks that the pod goes on writing, alone, and that its object is there, held and terminating.
func (d *database) expectHeld() {
	d.T.Helper()
	d.waitWritten(d.volume, d.first.UID, 10)
	d.expectRuns(d.first.Spec.NodeName, d.first.UID, true)
	if now := d.now(); now == nil || now.UID != d.first.UID || now.DeletionTimestamp == nil || !isHeld(now) {
		d.T.Errorf("WRONG END: the pod's process writes, and its object is not held: %+v", now)
	}
	if writers := d.writers(); len(writers) != 1 {
		d.T.Errorf("TWO WRITERS: %v", writers)
	}
}

// expectStays checks that the object of the pod is there and held, whether or not its processes run.
func (d *database) expectStays() {
	d.T.Helper()
	if now := d.now(); now == nil || now.UID != d.first.UID || !isHeld(now) {
		d.T.Errorf("the pod was released without evidence: %+v", now)
	}
}

// writers returns the pods that have written to the volume.
func (d *database) writers() (pods []types.UID) {
	d.T.Helper()
	all, err := d.driver.Stamps(d.volume.Handle)
	d.Must(err)
	for _, w := range stamps.Writers(all) {
		if !slices.Contains(pods, w.Pod) {
			pods = append(pods, w.Pod)
		}
	}
	return pods
}

// waitReplaced waits until the replacement of the pod writes. It checks that the pod was released for this reason and
// runs no more, and that no two pods wrote at the same time.
func (d *database) waitReplaced(reason podsafety.Reason) *v1.Pod {
	d.T.Helper()
	began := time.Now()
	var second *v1.Pod
	d.until("the pod is replaced", func() bool {
		second = d.now()
		return second != nil && second.UID != d.first.UID
	})
	d.T.Logf("replaced %s later", time.Since(began).Round(10*time.Millisecond))
	d.until("the replacement writes", func() bool {
		// Taint eviction deletes pods by name: an eviction that was due for the first may end its replacement.
		if now := d.now(); now != nil && now.UID != d.first.UID {
			second = now
		}
		all, err := d.driver.Stamps(d.volume.Handle)
		d.Must(err)
		return count(all, second.UID) >= 10
	})
	d.expectRuns(d.first.Spec.NodeName, d.first.UID, false)
	d.expectNoOverlap(d.volume)
	d.expectReleased(d.name, reason)
	return second
}

// guardLog returns the lines of volume-guard's log about the scenario's namespace, with this text.
func (s *safety) guardLog(text string) (lines []string) {
	s.T.Helper()
	log, err := os.ReadFile(s.guard.LogPath())
	s.Must(err)
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, s.Namespace+"/") && strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

var reasonInLog = regexp.MustCompile(`action="RemoveFinalizer" reason="(\w+)"`)

// released returns the reason of the release of the first pod of a name, empty if it was not released.
func (s *safety) released(pod string) string {
	s.T.Helper()
	for _, line := range s.guardLog(`pod="` + s.Namespace + "/" + pod + `"`) {
		if match := reasonInLog.FindStringSubmatch(line); match != nil {
			return match[1]
		}
	}
	return ""
}

// expectReleased waits until volume-guard has logged why it released a pod, which it does after the write.
func (s *safety) expectReleased(pod string, want podsafety.Reason) {
	s.T.Helper()
	s.Eventually("the release of pod "+pod+" is logged", func() bool { return s.released(pod) != "" })
	if got := s.released(pod); got != string(want) {
		s.T.Errorf("pod %s was released for reason %q, want %q", pod, got, want)
	}
}

// waitSaid waits until volume-guard has an Event with this reason on the pod.
func (d *database) waitSaid(reason podsafety.Reason) {
	d.T.Helper()
	d.until("Event "+string(reason)+" about the pod", func() bool {
		return len(d.Events(v1.ObjectReference{UID: d.first.UID}, string(reason))) > 0
	})
}
