//go:build linux

package nodes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	records "github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes/stamps"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// singleNode is the environment of a scenario of TestSingleNode: a node and two namespaces. The same events happen in
// both, at the same time and on the same nodes. The volumes are not attached, so any number of nodes can mount them.
type singleNode struct {
	// plain is a namespace without labels, and locked a namespace with all claims locked.
	plain, locked *safety
	// node runs the pods while it can, and else spare does.
	node string
	line *proxy.Proxy
}

// in returns both namespaces.
func (s *singleNode) in() []*safety { return []*safety{s.plain, s.locked} }

// startSingleNode starts the spare node and others, and volume-guard with pod safety and single-node, which reaches the
// API server by way of a proxy.
func startSingleNode(t *testing.T, names ...string) *singleNodeCluster {
	t.Helper()
	begun := time.Now()
	c := &singleNodeCluster{safety: &safety{environment: startNodes(t, "share.csi-reclaimer.io",
		nodes.Options{Names: append(names, spare)}, evicting()...)}}
	controllers, v := []string{"pod-safety", "single-node"}, c.Plane.Version()
	account := c.installGuard(controllers, append(manifests.PodSafety(v), manifests.SingleNode(v)...))
	var err error
	c.line, err = proxy.Start(account, proxy.Options{Crash: c.crash})
	c.Must(err)
	t.Cleanup(func() { c.Must(c.line.Close()) })
	c.guard = c.runGuard(c.line.Config(), controllers)
	t.Cleanup(c.restarts.Wait)
	t.Logf("control plane, nodes, driver and volume-guard in %s", time.Since(begun).Round(100*time.Millisecond))
	return c
}

// singleNodeCluster is shared by all scenarios of TestSingleNode.
type singleNodeCluster struct {
	*safety
	line     *proxy.Proxy
	restarts sync.WaitGroup
	restart  sync.Mutex
}

// crash kills volume-guard, and starts it again once the proxy has broken its connections.
func (c *singleNodeCluster) crash() {
	c.guard.Kill()
	c.restarts.Go(func() {
		c.restart.Lock()
		defer c.restart.Unlock()
		c.guard.Kill() // a process that was started after another of several concurrent writes
		if err := c.guard.Restart(); err != nil {
			c.T.Error(err)
		}
	})
}

// scenario returns a scenario for a node, and cleans up at the end.
func (c *singleNodeCluster) scenario(t *testing.T, node string) *singleNode {
	t.Helper()
	s := &singleNode{node: node, line: c.line, plain: c.inNamespace(t, ""), locked: c.inNamespace(t, "enforce")}
	s.locked.lockClaims()
	t.Cleanup(func() {
		s.locked.showFailure()
		for _, each := range s.in() {
			each.endWorkloads(node)
		}
	})
	return s
}

// lockClaims has all claims of the namespace locked, and returns once its new pods have the gate.
func (s *safety) lockClaims() {
	s.T.Helper()
	s.Namespaces().Merge(s.Namespace, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, singlenode.Label, singlenode.AllValue))
	s.Eventually("pods get the gate in the write that creates them", func() bool {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: nodes.WriterSpec("probe")}
		made, err := s.Client.CoreV1().Pods(s.Namespace).Create(s.Ctx, pod,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) { // by one policy, until the other one adds the gate
			s.Must(err)
		}
		return err == nil && isGated(made)
	})
}

func isGated(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates,
		func(g v1.PodSchedulingGate) bool { return g.Name == records.VolumeGate })
}

// endWorkloads restores the node and ends the scenario's workloads in a namespace.
func (s *safety) endWorkloads(node string) {
	ctx := s.CleanupContext()
	s.boot(node)
	s.cordon(ctx, node, false)
	s.Must(s.Client.AppsV1().Deployments(s.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	for {
		list, err := s.Client.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{})
		s.Must(err)
		if len(list.Items) == 0 {
			return
		}
		for i := range list.Items {
			s.endPod(ctx, &list.Items[i])
		}
		select {
		case <-ctx.Done():
			s.T.Errorf("%d pods are left", len(list.Items))
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// endPod deletes a pod and ends it regardless of its grace period. In a failed scenario, it may wait for evidence.
func (s *safety) endPod(ctx context.Context, pod *v1.Pod) {
	if s.T.Failed() {
		s.confirm(ctx, pod)
	}
	err := s.Client.CoreV1().Pods(s.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		s.Must(err)
	}
	if node := s.pool.Node(pod.Spec.NodeName); node != nil && pod.DeletionTimestamp != nil {
		s.Must(node.Kill(ctx, pod.UID))
	}
}

// workload is a Deployment of one pod that writes to its claim until it is killed, and the pod that it began with.
type workload struct {
	*safety
	name   string
	locked bool
	first  *v1.Pod
	volume *objects.Volume
}

// recreate and rolling are the two ways in which a Deployment ends its pod before it creates the next one.
var (
	recreate = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	rolling  = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge: ptr.To(intstr.FromInt32(0)), MaxUnavailable: ptr.To(intstr.FromInt32(1))}}
)

// lateEnd is the grace period of the workloads: longer than a scenario needs them to write on. hurry cuts it short.
const lateEnd = 5 * time.Minute

// start starts a workload in each namespace, and waits until it writes on the scenario's node. Its pods tolerate for so
// long that their node is unreachable.
func (s *singleNode) start(name string, strategy appsv1.DeploymentStrategy, tolerates time.Duration) (all workloads) {
	for _, each := range s.in() {
		claim := each.CreateClaim(each.CreateStorageClass(), func(spec *objects.ClaimSpec) { spec.Name = name })
		spec := nodes.WriterSpec(name)
		stubborn(lateEnd)(&spec)
		preferring(s.node, tolerates)(&spec)
		each.createDeployment(name, strategy, spec)
		all = append(all, &workload{safety: each, name: name, locked: each == s.locked,
			volume: each.WaitBound(claim).Volume})
	}
	for _, w := range all {
		w.until("the pod is there", func() bool { w.first = w.replacement(); return w.first != nil })
		w.waitWritten(w.volume, w.first.UID, 5)
		w.expectRuns(s.node, w.first.UID, true)
		w.first = w.pod(w.first.Name)
	}
	return all
}

// createDeployment creates one of one pod.
func (s *safety) createDeployment(name string, strategy appsv1.DeploymentStrategy, spec v1.PodSpec) {
	s.T.Helper()
	labels := map[string]string{"app": name}
	s.Deployments().Create(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels}, Strategy: strategy,
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	})
}

// workloads are the workloads of one name.
type workloads []*workload

func (all workloads) each(do func(*workload)) {
	for _, w := range all {
		do(w)
	}
}

// pod returns a pod, or nil.
func (w *workload) pod(name string) *v1.Pod {
	w.T.Helper()
	pod, err := w.Client.CoreV1().Pods(w.Namespace).Get(w.Ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.Must(err)
	return pod
}

// replacement returns a pod of the workload that is neither the first one nor deleted, or nil.
func (w *workload) replacement() *v1.Pod {
	w.T.Helper()
	list, err := w.Client.CoreV1().Pods(w.Namespace).List(w.Ctx, metav1.ListOptions{LabelSelector: "app=" + w.name})
	w.Must(err)
	for i := range list.Items {
		if p := &list.Items[i]; p.DeletionTimestamp == nil && (w.first == nil || p.UID != w.first.UID) {
			return p
		}
	}
	return nil
}

// delete is kubectl delete pod with a grace period, in seconds; negative for the pod's own.
func (w *workload) delete(grace int64) error {
	o := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(w.first.UID))}
	if grace >= 0 {
		o.GracePeriodSeconds = &grace
	}
	return w.Client.CoreV1().Pods(w.Namespace).Delete(w.Ctx, w.first.Name, o)
}

// moved waits for the effect of the scenario. In the plain namespace, the first pod and its replacement write at the
// same time, on two nodes. In the locked namespace, the replacement waits for the lock of the first pod, which writes
// alone.
func (w *workload) moved() {
	w.T.Helper()
	if w.locked {
		w.expectWaits()
	} else {
		w.waitTwoWriters()
	}
}

func (w *workload) waitTwoWriters() {
	w.T.Helper()
	var overlaps []stamps.Overlap
	w.until("two pods write to the volume", func() bool {
		all, err := w.driver.Stamps(w.volume.Handle)
		w.Must(err)
		overlaps = stamps.Overlaps(all)
		return len(overlaps) > 0 && overlaps[0].Late >= 10
	})
	o := overlaps[0]
	if o.First.Pod != w.first.UID || o.Second.Pod == w.first.UID || o.First.Node == o.Second.Node {
		w.T.Errorf("%s: overlap %s, want one of the first pod and its replacement, on two nodes", w.name, o)
	}
	w.T.Logf("TWO WRITERS without locks: %s", o)
}

// expectWaits waits until the replacement is known to wait, and checks that the first pod writes on, alone.
func (w *workload) expectWaits() {
	w.T.Helper()
	var second *v1.Pod
	w.until("volume-guard says what the replacement waits for", func() bool {
		second = w.replacement()
		return second != nil && w.hasEvent(second.UID, "ClaimInUse")
	})
	w.waitWritten(w.volume, w.first.UID, 10)
	w.expectRuns(w.first.Spec.NodeName, w.first.UID, true)
	if now := w.pod(second.Name); now == nil || !isGated(now) || now.Spec.NodeName != "" {
		w.T.Errorf("%s: the replacement is not gated: %+v", w.name, now)
	}
	if lock := w.lock(); lock != string(w.first.UID)+" "+w.first.Name {
		w.T.Errorf("%s: the claim has the lock %q, want that of pod %s %s", w.name, lock, w.first.UID, w.first.Name)
	}
	w.expectNoOverlap(w.volume)
}

// lock returns the lock of the claim.
func (w *workload) lock() string {
	w.T.Helper()
	claim := w.Claims().Get(w.name)
	return claim.Annotations[singlenode.LockAnnotation]
}

// hurry has the first pod end before its grace period does, unless it is gone.
func (w *workload) hurry() {
	w.T.Helper()
	w.until("the kubelet ends the first pod", func() bool {
		return w.pod(w.first.Name) == nil || w.hasEvent(w.first.UID, "Killing")
	})
	w.Must(w.pool.Node(w.first.Spec.NodeName).Kill(w.Ctx, w.first.UID))
}

// waitReplaced waits until the replacement writes. With locks, it checks that the first pod has written before that.
func (w *workload) waitReplaced() {
	w.T.Helper()
	w.until("the replacement writes", func() bool {
		second := w.replacement()
		if second == nil {
			return false
		}
		all, err := w.driver.Stamps(w.volume.Handle)
		w.Must(err)
		return count(all, second.UID) >= 10
	})
	if w.locked {
		w.expectRuns(w.first.Spec.NodeName, w.first.UID, false)
		w.expectNoOverlap(w.volume)
	}
}

// hasEvent reports whether a pod has an Event with a reason.
func (s *safety) hasEvent(pod types.UID, reason string) bool {
	s.T.Helper()
	return len(s.Events(v1.ObjectReference{UID: pod}, reason)) > 0
}
