//go:build linux

package nodes

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
)

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
	_, err = f.Client.RbacV1().ClusterRoleBindings().Create(f.Ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "network"}, Subjects: []rbacv1.Subject{guard}, RoleRef: role("network")},
		metav1.CreateOptions{})
	f.Must(err)
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

// testFenceDeleted fences a node that is cut off from a volume, which a pod on another node then writes to. The node
// returns without a reboot, and a health check deletes its NodeFence: the writes of before must not reach the volume.
func testFenceDeleted(f *fencing) {
	d := f.startDatabase("db", time.Hour)
	f.playCSIAddons(d.volume.Handle)
	f.Must(f.pool.Node(f.node).Disconnect())
	f.waitNotReady(f.node)
	f.createFence(v1alpha1.Agent{Name: "storage", Covers: v1alpha1.CoversVolumes,
		NetworkFence: &v1alpha1.NetworkFenceAgent{Driver: f.Driver, NetworkFenceClassName: "other",
			Addresses: v1alpha1.AddressesInternalIP, Volumes: v1alpha1.VolumesAll}})
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

// deleteFence deletes a NodeFence, as a health check does.
func (f *fencing) deleteFence(name string) {
	f.T.Helper()
	f.Must(f.fences.Fences.Delete(f.Ctx, name, metav1.DeleteOptions{}))
}

// passFence returns once volume-guard has ended a NodeFence that was deleted after all others.
func (f *fencing) passFence() {
	f.T.Helper()
	const none = "no-such-node"
	_, err := f.fences.Fences.Create(f.Ctx, &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: none},
		Spec: v1alpha1.NodeFenceSpec{Reason: "a canary", Agents: []v1alpha1.Agent{f.agent("power", "liar",
			v1alpha1.CoversUntilUnfenced)}}}, metav1.CreateOptions{})
	f.Must(err)
	get := func() (*v1alpha1.NodeFence, error) { return f.fences.Fences.Get(f.Ctx, none, metav1.GetOptions{}) }
	f.until("the canary is in hand", func() bool {
		fence, err := get()
		f.Must(err)
		return len(fence.Finalizers) > 0
	})
	f.deleteFence(none)
	f.until("the canary has ended", func() bool { _, err := get(); return apierrors.IsNotFound(err) })
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
