//go:build linux

package nodes

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	agent "github.com/csi-reclaimer/csi-reclaimer/pkg/fencing/agents"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes/stamps"
)

// TestFencing judges by the stamps in the volume. They show whether the pod of a fenced node is replaced only after the
// node's processes have ended, and how long that takes. Each scenario has its own node.
func TestFencing(t *testing.T) {
	t.Parallel()
	f := startFencing(t, "frozen", "silent", "lied-to", "rebooted")
	t.Run("one node", func(t *testing.T) {
		for node, scenarios := range map[string][]fencingScenario{
			"frozen": {
				{"a node that stands still", testFrozenNode},
				{"a remediator that taints the node", testRemediation},
			},
			"silent":  {{"a node that is cut off and runs on", testSilentNode}},
			"lied-to": {{"agents that hang and lie", testAgentLies}},
			"rebooted": {
				{"an agent that reboots", testAgentReboots},
				{"a fence of volumes that is deleted", testFenceDeleted},
			},
		} {
			t.Run(node, func(t *testing.T) {
				t.Parallel()
				for _, scenario := range scenarios {
					t.Run(scenario.name, func(t *testing.T) {
						begun := time.Now()
						scenario.run(f.scenario(t, node))
						t.Logf("in %s", time.Since(begun).Round(100*time.Millisecond))
					})
				}
			})
		}
	})
	t.Run("all nodes are cut off", func(t *testing.T) { testStorm(f.scenario(t, "silent")) })
}

type fencingScenario struct {
	name string
	run  func(*fencing)
}

// powersOff has agents power the scenario's node off.
func (f *fencing) powersOff() {
	node := f.pool.Node(f.node)
	off := func(context.Context) error { return node.PowerOff() } //nolint:contextcheck // half a loss of power is none
	f.agents.on("fence", f.node, off)
}

// testFrozenNode freezes a node, like a paused virtual machine, which would continue to write when it is resumed.
func testFrozenNode(f *fencing) {
	f.powersOff()
	f.createPolicy(f.agent("power", "fencer", v1alpha1.CoversUntilUnfenced))
	d := f.startDatabase("db", time.Second)
	f.Must(f.pool.Node(f.node).Freeze(f.Ctx))
	f.measureReplaced(d, time.Now())
	f.Must(f.pool.Node(f.node).Boot(f.Ctx))
	f.expectReturned(d)
}

// testSilentNode cuts the network of a kubelet. Its pod continues to write until the node is fenced. The agent undoes
// the fence, too.
func testSilentNode(f *fencing) {
	f.powersOff()
	node := f.pool.Node(f.node)
	f.agents.on("unfence", f.node, node.Boot)
	agent := f.agent("power", "fencer", v1alpha1.CoversUntilUnfenced)
	agent.Job.Undo = true
	f.createPolicy(agent)
	d := f.startDatabase("db", time.Second)
	f.Must(node.Disconnect())
	cut := time.Now()
	f.measureReplaced(d, cut)
	_, off := f.agents.fenced(f.node)
	if last := f.lastStamp(d, d.first); last.Wall.Before(cut.Add(patience)) || last.Wall.After(off) {
		f.T.Errorf("the pod of the node that was cut off at %s and fenced at %s wrote last at %s", cut, off, last.Wall)
	}
	f.Must(node.Connect())
	f.unfence(f.Ctx, v1alpha1.UnfenceWhenReleased)
	f.expectReturned(d)
}

func (f *fencing) writersOf(d *database) []stamps.Writer {
	f.T.Helper()
	all, err := f.driver.Stamps(d.volume.Handle)
	f.Must(err)
	return stamps.Writers(all)
}

// lastStamp returns the last stamp of a pod.
func (f *fencing) lastStamp(d *database, pod *v1.Pod) (last stamps.Stamp) {
	f.T.Helper()
	all, err := f.driver.Stamps(d.volume.Handle)
	f.Must(err)
	for _, s := range all {
		if s.Pod == pod.UID {
			last = s
		}
	}
	return last
}

// measureReplaced measures from the failure of the node to the first write of the new pod.
func (f *fencing) measureReplaced(d *database, failed time.Time) {
	f.T.Helper()
	asked := &milestone{what: "the agent's pod runs"}
	asked.reached = func() bool { asked.at, _ = f.agents.fenced(f.node); return !asked.at.IsZero() }
	off := &milestone{what: "the node is off"}
	off.reached = func() bool { _, off.at = f.agents.fenced(f.node); return !off.at.IsZero() }
	writes := &milestone{what: "the new pod writes"}
	writes.reached = func() bool {
		writers := f.writersOf(d)
		if len(writers) < 2 {
			return false
		}
		writes.at = f.firstStamp(d, writers[1])
		return true
	}
	f.measure("the first write of the new pod", failed,
		&milestone{what: "NotReady", reached: func() bool { return f.isTainted(v1.TaintNodeUnreachable) }},
		&milestone{what: "NodeFence", reached: func() bool { return f.fence().UID != "" }},
		asked, off,
		&milestone{what: "proof", reached: func() bool { return f.fence().Status.Proof != nil }},
		&milestone{what: "taint", reached: func() bool { return f.isTainted(v1.TaintNodeOutOfService) }},
		&milestone{what: "a new pod", reached: func() bool { now := d.now(); return now != nil && now.UID != d.first.UID }},
		writes)
	d.waitReplaced("NodeFenced")
}

// firstStamp returns when a writer wrote first.
func (f *fencing) firstStamp(d *database, writer stamps.Writer) time.Time {
	f.T.Helper()
	all, err := f.driver.Stamps(d.volume.Handle)
	f.Must(err)
	return all[writer.First].Wall
}

// expectReturned waits for the end of the fence, and has a pod of the database run on the node again.
func (f *fencing) expectReturned(d *database) {
	f.T.Helper()
	booted := time.Now()
	f.until("the fence has ended", func() bool {
		return meta.IsStatusConditionTrue(f.fence().Status.Conditions, v1alpha1.ConditionReturned)
	})
	f.T.Logf("returned after %s", time.Since(booted).Round(100*time.Millisecond))
	f.until("the node has no taint", func() bool { return !f.isTainted("") })
	second := d.now()
	d.delete()
	third := d.waitPod(d.name, second.UID)
	f.waitWritten(d.volume, third.UID, 5)
	f.expectRuns(f.node, third.UID, true)
	f.expectNoOverlap(d.volume)
}

// testAgentLies has an agent without a result in its time, which releases nothing. The next one falsely reports the
// node as fenced, so two pods write to one volume: this is the cost of a wrong agent. The returning node reveals it.
func testAgentLies(f *fencing) {
	f.agents.on("fence", f.node, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	d := f.startDatabase("db", time.Second)
	f.Must(f.pool.Node(f.node).Disconnect())
	f.waitNotReady(f.node)
	f.until("the pod is terminating", func() bool { return d.now().DeletionTimestamp != nil })
	hangs := f.agent("hangs", "fencer", v1alpha1.CoversUntilUnfenced)
	hangs.Timeout.Duration = 30 * time.Second // in which its pod starts, also on a busy machine
	f.createFence(hangs, f.agent("lies", "liar", v1alpha1.CoversUntilUnfenced))
	f.until("the first agent is asked", func() bool {
		asked, _ := f.agents.fenced(f.node)
		return !asked.IsZero()
	})
	d.expectHeld()
	f.until("the first agent is given up", func() bool {
		attempts := f.fence().Status.Attempts
		return len(attempts) > 0 && attempts[0].EndedAt != nil
	})
	// The Job has the same time limit: whichever of the two ends it first.
	if got := f.fence().Status.Attempts[0]; got.Agent != "hangs" || got.Result != v1alpha1.ResultTimedOut &&
		got.Result != v1alpha1.ResultFailed {
		f.T.Errorf("the agent that hangs: %+v", got)
	}
	f.until("two pods write to the volume", func() bool {
		all, err := f.driver.Stamps(d.volume.Handle)
		f.Must(err)
		overlaps := stamps.Overlaps(all)
		return len(overlaps) == 1 && overlaps[0].First.Pod == d.first.UID && overlaps[0].Late > 10
	})
	f.expectReleased(d.name, "NodeFenced")
	f.expectRuns(f.node, d.first.UID, true)

	f.Must(f.pool.Node(f.node).Connect())
	connected := time.Now()
	f.waitEnded(f.node, d.first.UID)
	all, err := f.driver.Stamps(d.volume.Handle)
	f.Must(err)
	f.T.Logf("TWO WRITERS because of an agent that lies: %s", stamps.Overlaps(all)[0])
	f.waitFenceEvent("ProofContradicted")
	f.T.Logf("ProofContradicted %s after the node is back", time.Since(connected).Round(100*time.Millisecond))
	if fence := f.fence(); fence.Status.Proof != nil ||
		meta.IsStatusConditionTrue(fence.Status.Conditions, v1alpha1.ConditionFenced) {
		f.T.Errorf("a proof that is contradicted stands: %+v", fence.Status)
	}
	f.until("the node has no taint", func() bool { return !f.isTainted("") })
	f.unfence(f.Ctx, v1alpha1.UnfenceNow)
	f.until("the fence has ended", func() bool {
		return meta.IsStatusConditionTrue(f.fence().Status.Conditions, v1alpha1.ConditionReturned)
	})
}

// testAgentReboots shows that a reboot is a proof only for pods that were terminating before it.
func testAgentReboots(f *fencing) {
	f.powersOff() // which a reboot begins with
	before, after := f.startDatabase("before", time.Hour), f.startDatabase("after", time.Hour)
	f.Must(f.pool.Node(f.node).Disconnect())
	f.waitNotReady(f.node)
	before.delete()
	f.createFence(f.agent("reboots", "fencer", v1alpha1.CoversReboot))
	before.waitReplaced("NodeFenced")
	after.delete()
	after.waitSaid("NodeUnreachable")
	if now := after.now(); now == nil || now.UID != after.first.UID || !isHeld(now) {
		f.T.Errorf("WRONG END: a pod that was not terminating before the reboot is released by it: %+v", now)
	}
	if f.isTainted(v1.TaintNodeOutOfService) {
		f.T.Error("a node that may start pods again is out of service")
	}
	f.Must(f.pool.Node(f.node).Connect())
	f.Must(f.pool.Node(f.node).Boot(f.Ctx))
	after.waitReplaced("Finished")
	f.expectReturned(after)
}

// testStorm cuts off all nodes at once, for longer than the policy waits. The network is then to blame, and no node is
// fenced.
func testStorm(f *fencing) {
	policy := &v1alpha1.FencePolicy{ObjectMeta: metav1.ObjectMeta{Name: f.node}}
	policy.Spec = v1alpha1.FencePolicySpec{UnreachableAfter: metav1.Duration{Duration: patience},
		WaitForTolerations: new(bool), Agents: []v1alpha1.Agent{f.agent("power", "liar", v1alpha1.CoversUntilUnfenced)}}
	_, err := f.fences.Policies.Create(f.Ctx, policy, metav1.CreateOptions{})
	f.Must(err)
	d := f.startDatabase("db", time.Hour)
	for _, n := range f.pool.Nodes() {
		f.Must(n.Partition())
		f.T.Cleanup(func() { f.Must(n.Heal()) })
	}
	for _, n := range f.pool.Nodes() {
		f.waitNotReady(n.Name())
	}
	over := time.Now().Add(patience + 10*time.Second)
	f.until("the policy's patience is over", func() bool {
		f.expectNoFence()
		return time.Now().After(over)
	})
	f.waitHalted("ViewLost")
	f.waitWritten(d.volume, d.first.UID, 10)
	f.Must(f.pool.Node(spare).Heal())
	f.waitHalted("ManyUnreachable")
	f.Must(f.pool.Node(f.node).Heal()) // before the others, or it may be fenced while few are away
	f.Must(f.pool.Node(f.node).WaitReady(f.WithTimeout()))
	for _, n := range f.pool.Nodes() {
		f.Must(n.Heal())
	}
	f.until("the policy may fence again", func() bool {
		return meta.IsStatusConditionTrue(f.policyStatus().Conditions, v1alpha1.ConditionActive)
	})
	f.expectNoFence()
	f.waitWritten(d.volume, d.first.UID, 10)
	f.expectNoOverlap(d.volume)
}

// waitHalted waits until the policy shows this reason for its halt, and as its judgement of the scenario's node.
func (f *fencing) waitHalted(reason string) {
	f.T.Helper()
	f.until("the policy halts because of "+reason, func() bool {
		f.expectNoFence()
		status := f.policyStatus()
		active := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionActive)
		return active != nil && active.Status == metav1.ConditionFalse && active.Reason == reason &&
			slices.ContainsFunc(status.Nodes, func(n v1alpha1.NodeJudgement) bool {
				return n.Name == f.node && n.Reason == reason
			})
	})
}

// expectNoFence checks that no node is fenced.
func (f *fencing) expectNoFence() {
	f.T.Helper()
	list, err := f.fences.Fences.List(f.Ctx, metav1.ListOptions{})
	f.Must(err)
	if len(list.Items) > 0 {
		f.T.Fatalf("WRONG FENCE: %+v", list.Items)
	}
}

func (f *fencing) policyStatus() v1alpha1.FencePolicyStatus {
	f.T.Helper()
	policy, err := f.fences.Policies.Get(f.Ctx, f.node, metav1.GetOptions{})
	f.Must(err)
	return policy.Status
}

// Groups of other projects, whose operators the tests play.
const (
	medik8s   = "fence-agents-remediation.medik8s.io"
	csiAddons = "csiaddons.openshift.io"
)

// installOperators has the API server serve the kinds of other projects, and lets volume-guard use them, as an operator
// does. The class and the template of the agents have the name "other".
func (f *fencing) installOperators(namespace string) {
	f.T.Helper()
	f.Must(manifests.Apply(f.Ctx, f.Plane.Admin(), "../../test/nodes/testdata/kinds.yaml"))
	guard := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: guardNamespace, Name: fixture.VolumeGuardName}
	role := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "volume-guard-fence-agent-" + name}
	}
	_, err := f.Client.RbacV1().RoleBindings(namespace).Create(f.Ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "remediation"}, Subjects: []rbacv1.Subject{guard}, RoleRef: role("remediation")},
		metav1.CreateOptions{})
	f.Must(err)
	f.ClusterRoleBindings().Create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "network"}, Subjects: []rbacv1.Subject{guard}, RoleRef: role("network")})
	for _, o := range []map[string]any{
		{"apiVersion": csiAddons + "/v1alpha1", "kind": "NetworkFenceClass", "spec": map[string]any{"provisioner": f.Driver}},
		{"apiVersion": medik8s + "/v1alpha1", "kind": "FenceAgentsRemediationTemplate", "spec": map[string]any{
			"template": map[string]any{"spec": map[string]any{"remediationStrategy": "OutOfServiceTaint"}}}},
	} {
		of, to := &unstructured.Unstructured{Object: o}, f.objects(csiAddons, "networkfenceclasses", "")
		if of.GetKind() != "NetworkFenceClass" {
			to = f.objects(medik8s, "fenceagentsremediationtemplates", namespace)
		}
		of.SetName("other")
		_, err := to.Create(f.Ctx, of, metav1.CreateOptions{})
		f.Must(err)
	}
}

// objects are those of a kind of another project, in a namespace or "" for none.
func (f *fencing) objects(group, plural, namespace string) dynamic.ResourceInterface {
	f.T.Helper()
	client, err := dynamic.NewForConfig(f.Plane.Admin())
	f.Must(err)
	of := client.Resource(schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: plural})
	if namespace == "" {
		return of
	}
	return of.Namespace(namespace)
}

// playCSIAddons carries out the NetworkFences until the scenario ends: the storage refuses a volume to the node, or
// admits it again.
func (f *fencing) playCSIAddons(volume string) {
	ctx, stop := context.WithCancel(f.Ctx)
	ended := make(chan struct{})
	f.T.Cleanup(func() { stop(); <-ended })
	fences := f.objects(csiAddons, "networkfences", "")
	go func() {
		defer close(ended)
		last := ""
		err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			list, err := fences.List(ctx, metav1.ListOptions{LabelSelector: agent.FenceLabel})
			if err != nil || len(list.Items) != 1 {
				return false, nil //nolint:nilerr // an operator lists again
			}
			state, _, _ := unstructured.NestedString(list.Items[0].Object, "spec", "fenceState")
			if state == last {
				return false, nil
			}
			do, says := f.driver.Refuse, "fencing"
			if state == "Unfenced" {
				do, says = f.driver.Admit, "unfencing"
			}
			if err := do(volume, f.node); err != nil {
				return false, err
			}
			last = state
			_, err = fences.Patch(ctx, list.Items[0].GetName(), types.MergePatchType, fmt.Appendf(nil,
				`{"status":{"result":"Succeeded","message":"%s operation successful"}}`, says), metav1.PatchOptions{}, "status")
			return false, err
		})
		if err != nil && ctx.Err() == nil {
			f.T.Errorf("play csi-addons: %v", err)
		}
	}()
}

// reportAddress reports an address of the node as csi-addons does.
func (f *fencing) reportAddress(cidr string) {
	f.T.Helper()
	_, err := f.objects(csiAddons, "csiaddonsnodes", f.Namespace).Create(f.Ctx, &unstructured.Unstructured{
		Object: map[string]any{
			"apiVersion": csiAddons + "/v1alpha1", "kind": "CSIAddonsNode", "metadata": map[string]any{"name": f.node},
			"spec": map[string]any{"driver": map[string]any{"name": f.Driver, "nodeID": f.node}},
			"status": map[string]any{"networkFenceClientStatus": []any{map[string]any{"networkFenceClassName": "other",
				"ClientDetails": []any{map[string]any{"id": f.node, "cidrs": []any{cidr}}}}}},
		}}, metav1.CreateOptions{})
	f.Must(err)
}

// testFenceDeleted fences a node that is cut off from a volume, which a pod on another node then writes to. The node
// returns without a reboot, and a health check deletes its NodeFence: the writes of before must not reach the volume.
func testFenceDeleted(f *fencing) {
	d := f.startDatabase("db", time.Hour)
	f.playCSIAddons(d.volume.Handle)
	f.Must(f.pool.Node(f.node).Disconnect())
	f.waitNotReady(f.node)
	// All kubelets here have the address of this machine, by which no node is fenced.
	f.reportAddress("198.51.100.7/32")
	f.createFence(v1alpha1.Agent{Name: "storage", Covers: v1alpha1.CoversVolumes,
		NetworkFence: &v1alpha1.NetworkFenceAgent{Driver: f.Driver, NetworkFenceClassName: "other",
			Volumes: v1alpha1.VolumesAll}})
	f.until("the node is fenced from the volume", func() bool { return f.fence().Status.Proof != nil })
	second := f.writer("second", spare, d.volume.ClaimName)
	f.waitWritten(d.volume, second.UID, 10)

	f.Must(f.pool.Node(f.node).Connect())
	f.Must(f.pool.Node(f.node).WaitReady(f.WithTimeout()))
	f.deleteFence(f.node)
	f.passFence()
	f.expectRuns(f.node, d.first.UID, true)
	f.waitWritten(d.volume, second.UID, 50)
	f.expectNoOverlap(d.volume)
	f.waitFenceEvent("NeedsReboot")
	if fence := f.fence(); fence.DeletionTimestamp == nil || fence.Status.Proof == nil || len(fence.Finalizers) == 0 {
		f.T.Errorf("WRONG END: the fence of a node that was not rebooted: %+v", fence)
	}

	f.Must(second.Delete(f.Ctx))
	f.Must(second.WaitGone(f.WithTimeout()))
	f.Must(f.pool.Node(f.node).Reboot(f.Ctx))
	f.until("the fence has ended", func() bool { return f.fence().UID == "" })
	f.waitWritten(d.volume, d.first.UID, 10)
	f.expectNoOverlap(d.volume)
}

// testRemediation has a remediator of medik8s power a node off that is cut off, and declare it out of service before it
// reports its success. The node boots by itself, and the taint goes with the remediation.
func testRemediation(f *fencing) {
	node := f.pool.Node(f.node)
	d := f.startDatabase("db", time.Hour)
	f.Must(node.Disconnect())
	f.waitNotReady(f.node)
	d.delete()
	d.waitSaid("NodeUnreachable")
	d.expectHeld()
	f.createFence(v1alpha1.Agent{Name: "medik8s", Covers: v1alpha1.CoversReboot,
		Timeout: metav1.Duration{Duration: longWait}, Remediation: &v1alpha1.RemediationAgent{Name: "other",
			APIVersion: medik8s + "/v1alpha1", Kind: "FenceAgentsRemediationTemplate", Namespace: f.agents.namespace}})
	remediations := f.objects(medik8s, "fenceagentsremediations", f.agents.namespace)
	exists := func() bool {
		_, err := remediations.Get(f.Ctx, f.node, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			f.Must(err)
		}
		return err == nil
	}
	f.until("the remediation is there", exists)
	f.Must(node.PowerOff())
	d.expectStays()
	f.taintOutOfService(f.node, true)
	f.T.Cleanup(func() { f.withCleanupContext().taintOutOfService(f.node, false) })
	tainted := time.Now()
	d.waitReplaced("OutOfService")
	f.T.Logf("replaced %s after the taint", time.Since(tainted).Round(100*time.Millisecond))
	_, err := remediations.Patch(f.Ctx, f.node, types.MergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Succeeded","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	f.Must(err)
	f.until("the remediation is believed", func() bool { return f.fence().Status.Proof != nil })
	f.Must(node.Connect())
	f.Must(node.Boot(f.Ctx))
	f.until("the remediation is gone", func() bool { return !exists() })
	f.taintOutOfService(f.node, false)
	f.expectReturned(d)
}
