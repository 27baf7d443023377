//go:build unix

package operations

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/locks"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// podFinalizer is the finalizer by which volume-guard holds pods. No volume-guard runs in these tests.
const podFinalizer = "csi-reclaimer.io/running"

// node starts a node for this test alone.
func (env *environment) node() (node *fakenode.Node, silence func()) {
	env.T.Helper()
	return fakenode.ForTest(env.T, env.Plane, "node-"+rand.String(8), fakenode.Config{})
}

// runPod has a pod with a claim run on a node; held: with the finalizer.
func (env *environment) runPod(name, claim, node string, held bool) *objects.Pod {
	env.T.Helper()
	pod := env.CreatePod(objects.PodSpec{Name: name, Claims: []string{claim}, Node: node,
		Change: func(o *v1.Pod) {
			if held {
				o.Finalizers = []string{podFinalizer}
			}
		}})
	env.T.Cleanup(func() { env.releasePod(name) })
	env.WaitRunning(pod)
	return pod
}

// releasePod removes a pod with its finalizers, where it is still there.
func (env *environment) releasePod(name string) {
	ctx, core := env.CleanupContext(), env.Client.CoreV1().Pods(env.Namespace)
	_, _ = core.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	_ = core.Delete(ctx, name, *metav1.NewDeleteOptions(0))
}

// cutOff has the node cease to report, and be Unknown as the node controller would have it after 50 seconds.
func (env *environment) cutOff(node *fakenode.Node, silence func()) {
	env.T.Helper()
	silence()
	patch, err := json.Marshal(map[string]any{"status": v1.NodeStatus{Conditions: []v1.NodeCondition{{
		Type: v1.NodeReady, Status: v1.ConditionUnknown, Reason: "NodeStatusUnknown",
		Message: "Kubelet stopped posting node status.", LastTransitionTime: metav1.Now(),
	}}}})
	env.Must(err)
	env.Nodes().Patch(node.Name(), string(patch), "status")
}

// listPods returns the list of "kubectl reclaim pods" for the environment's namespace, by name.
func (env *environment) listPods(args ...string) (map[string]pods.Row, pods.List) {
	env.T.Helper()
	var list pods.List
	output := env.RunPlugin(append([]string{"pods", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(output), &list); err != nil {
		env.T.Fatalf("%v in\n%s", err, output)
	}
	rows := map[string]pods.Row{}
	for _, row := range list.Pods {
		rows[row.Name] = row
	}
	return rows, list
}

// TestPluginPods has two pods of one claim on a node that is cut off, one of them held.
func TestPluginPods(t *testing.T) {
	env := begin(t)
	vol := env.MakeVolume(objects.Spec{})
	node, silence := env.node()
	held := env.runPod("held", vol.ClaimName, node.Name(), true)
	env.runPod("free", vol.ClaimName, node.Name(), false)

	if rows, list := env.listPods(); len(rows) != 0 || list.HeldRunning != 1 || len(list.Unread) != 0 {
		t.Errorf("while all is well, it lists %+v", list)
	}
	if rows, _ := env.listPods("--include-running"); len(rows) != 1 || rows["held"].Reason != "NotTerminating" {
		t.Errorf("with --include-running it lists %+v", rows)
	}
	env.ExpectOutput(env.RunPlugin("pods"), "No pods in namespace "+env.Namespace, "1 more pod is held while running")

	env.cutOff(node, silence)
	env.Must(held.Delete(env.Ctx))
	rows, list := env.listPods()
	if r := rows["held"]; len(rows) != 2 || r.Status != "Terminating,NodeDown" || r.Reason != "NodeUnreachable" ||
		r.Node != node.Name() || r.UID != string(held.UID) || r.NodeDownSince == nil || r.TerminatingSince == nil {
		t.Errorf("it lists %+v", list)
	}
	if r := rows["free"]; r.Status != "NodeDown" || r.Held || r.WaitsFor != "" {
		t.Errorf("it lists %+v", list)
	}
	env.ExpectOutput(env.RunPlugin("pods", "-A", "-o", "wide"), "NAMESPACE", "WAITS FOR", "OTHER FINALIZERS",
		env.Namespace, "Terminating,NodeDown", "NodeUnreachable", vol.ClaimName)

	output := env.RunPlugin("explain", "pod/held")
	env.ExpectOutput(output, "Pod "+env.Namespace+"/held has been terminating for", "waits (NodeUnreachable)",
		node.Name()+", NotReady for", "(Ready is Unknown: Kubelet stopped posting node status)", "Heartbeat ",
		vol.ClaimName+" (ReadWriteOnce), PV "+vol.Name, "Pod free uses claim "+vol.ClaimName+" too",
		podFinalizer+": volume-guard removes it", "No evidence  Finished: ", "no replica holds its Lease",
		"kubectl reclaim delete-pod held -n "+env.Namespace+" --force")
	env.ExpectOutput(env.RunPlugin("explain", "node/"+node.Name()), "Node "+node.Name()+" has been NotReady for",
		"1 held pod waits for it; 1 pod with claims is on it. No node is fenced in this cluster.",
		"/held, Terminating,NodeDown for", "held by volume-guard (NodeUnreachable), claim "+vol.ClaimName,
		"Fence        none: the API server does not serve NodeFences", "kubectl taint nodes "+node.Name())
	for _, args := range [][]string{{"fences"}, {"fence", node.Name(), "--manual", "--reason=x", "--yes"}} {
		output, err := env.WaitExit(env.StartPlugin(args...))
		if err == nil {
			t.Errorf("%q: there are no NodeFences, and it succeeds", args)
		}
		env.ExpectOutput(output, "the API server does not serve NodeFences", "install deploy/manifests/node-fencing-crd.yaml")
	}
	env.explainPodsWithDocumentedPermissions(node.Name())
}

// explainPodsWithDocumentedPermissions runs the plugin as a user with the ClusterRole of
// docs/reference/kubectl-reclaim-permissions.md.
func (env *environment) explainPodsWithDocumentedPermissions(node string) {
	env.T.Helper()
	kube := env.grantReader("docs", env.documentedRules("reference/kubectl-reclaim-permissions.md"))
	for _, args := range [][]string{{"explain", "pod/held"}, {"explain", "namespace/" + env.Namespace},
		{"explain", "node/" + node}, {"pods", "-A", "-o", "json"}} {
		output := env.askUntilGranted(kube, args...)
		if strings.Contains(output, "Not read") || strings.Contains(output, "unread") {
			env.T.Errorf("%q: not all is read:\n%s", args, output)
		}
	}
}

// TestPluginExplainNamespace deletes a namespace whose pod is held on a node that is cut off.
func TestPluginExplainNamespace(t *testing.T) {
	env := &environment{begin(t, suite.Variant).InOtherNamespace()}
	vol := env.MakeVolume(objects.Spec{})
	node, silence := env.node()
	env.runPod("held", vol.ClaimName, node.Name(), true)
	env.ExpectOutput(env.RunPlugin("explain", "ns/"+env.Namespace), "is not terminating, and none of its pods waits")
	env.cutOff(node, silence)
	env.DeleteNamespace()
	env.Eventually("the pod is terminating", func() bool {
		rows, _ := env.listPods()
		return rows["held"].TerminatingSince != nil
	})
	// A namespace controller that deletes pods before all else reports nothing of them while they are left.
	words := `"All content successfully removed", but 1 pod is left`
	if fixture.Version().Before(controlplane.V1_33) {
		words = "pods. has 1 resource instances"
	}
	var output string
	env.Eventually("the namespace has conditions", func() bool {
		output = env.RunPlugin("explain", "namespace/"+env.Namespace)
		return strings.Contains(output, words)
	})
	env.ExpectOutput(output, "Namespace "+env.Namespace+" has been terminating for",
		"waits for 1 pod, which volume-guard holds",
		"held, Terminating,NodeDown, node "+node.Name()+", held by volume-guard (NodeUnreachable)",
		"in use by pod held", "kubectl reclaim explain pod/held -n "+env.Namespace)
}

// TestPluginDeletePod deletes pods on a node that is cut off. No volume-guard runs, so that held pods stay.
func TestPluginDeletePod(t *testing.T) {
	env := begin(t)
	vol := env.MakeVolume(objects.Spec{})
	node, silence := env.node()
	held := env.runPod("held", vol.ClaimName, node.Name(), true)
	free := env.runPod("free", vol.ClaimName, node.Name(), false)
	env.runPod("ready", vol.ClaimName, node.Name(), false)
	env.ExpectOutput(env.RunPlugin("delete-pod", "ready"), "Pod "+env.Namespace+"/ready was deleted")
	env.cutOff(node, silence)

	output, err := env.WaitExit(env.StartPlugin("delete-pod", "held", "--force"))
	if err == nil {
		t.Errorf("it is deleted without a confirmation:\n%s", output)
	}
	env.ExpectOutput(output, "Force risks", "is not Ready: nothing shows whether the processes run there",
		"the input is no terminal: nothing was changed", "next: run it in a terminal, or add --yes")
	env.ExpectOutput(env.RunPlugin("delete-pod", "held", "--force", "--dry-run=server"), "Nothing was changed")
	pod, err := held.Get(env.Ctx)
	env.Must(err)
	if pod.DeletionTimestamp != nil || len(pod.Annotations) > 0 {
		t.Fatalf("it was changed: %+v", pod.ObjectMeta)
	}

	env.ExpectOutput(env.RunPlugin("delete-pod", "held"), "was deleted. It is still there", "waits (NodeUnreachable)")
	env.ExpectOutput(env.RunPlugin("delete-pod", "held"), "was deleted before. Nothing was changed.")
	env.ExpectOutput(env.RunPlugin("delete-pod", "held", "--force", "--yes"), "was confirmed and force-deleted",
		"It is still there", "(Confirmed)", "Start volume-guard")
	pod, err = held.Get(env.Ctx)
	env.Must(err)
	if pod == nil || pod.Annotations[pods.ConfirmAnnotation] != string(held.UID) || *pod.DeletionGracePeriodSeconds != 0 {
		t.Errorf("it is not confirmed, or not force-deleted: %+v", pod)
	}
	env.ExpectOutput(env.RunPlugin("delete-pod", "free", "--force", "--yes"),
		"was confirmed and force-deleted, and is gone")
	env.Must(free.WaitGone(env.WithTimeout()))

	output, err = env.WaitExit(env.StartPlugin("delete-pod", "nobody-has-this-name"))
	if err == nil {
		t.Errorf("a pod that is not there is deleted:\n%s", output)
	}
	env.ExpectOutput(output, "not found", "next: find its name: kubectl get pv, or kubectl get pvc,pod,statefulset -A")
	env.deletePodWithDocumentedPermissions(vol, node.Name())
}

// deletePodWithDocumentedPermissions force-deletes a pod as a user with the permissions in the reference.
func (env *environment) deletePodWithDocumentedPermissions(vol *objects.Volume, node string) {
	env.T.Helper()
	kube := env.grantReader("deleter", []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"},
		Verbs: []string{"get", "patch", "delete"}}})
	env.CreatePod(objects.PodSpec{Name: "last", Claims: []string{vol.ClaimName}, Node: node})
	env.T.Cleanup(func() { env.releasePod("last") })
	output := env.askUntilGranted(kube, "delete-pod", "last", "--force", "--yes")
	env.ExpectOutput(output, "The state of node "+node+" is not known", "Not read", "and is gone")
}

// lockClaim writes the lock of a claim for a pod, as volume-guard does. No volume-guard runs in these tests.
func (env *environment) lockClaim(claim string, uid types.UID, pod string) {
	env.T.Helper()
	env.Claims().Merge(claim, fmt.Sprintf(`{"metadata":{"annotations":{"csi-reclaimer.io/used-by":"%s %s"},`+
		`"finalizers":["csi-reclaimer.io/single-node","kubernetes.io/pvc-protection"]}}`, uid, pod))
	env.T.Cleanup(func() {
		claims := env.Client.CoreV1().PersistentVolumeClaims(env.Namespace)
		_, _ = claims.Patch(env.CleanupContext(), claim, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"csi-reclaimer.io/used-by":null},"finalizers":null}}`), metav1.PatchOptions{})
	})
}

// listLocks returns the list of "kubectl reclaim locks" for the environment's namespace.
func (env *environment) listLocks() (list locks.List) {
	env.T.Helper()
	output := env.RunPlugin("locks", "-o", "json")
	if err := json.Unmarshal([]byte(output), &list); err != nil {
		env.T.Fatalf("%v in\n%s", err, output)
	}
	return list
}

// TestPluginLocks has a pod wait for the lock of a claim, whose holder is deleted on a node that is cut off.
func TestPluginLocks(t *testing.T) {
	env := &environment{begin(t).InOtherNamespace()}
	env.Namespaces().Merge(env.Namespace, `{"metadata":{"labels":{"csi-reclaimer.io/pod-safety":"enforce","csi-reclaimer.io/single-node":"all"}}}`)
	vol := env.MakeVolume(objects.Spec{})
	node, silence := env.node()
	env.ExpectOutput(env.RunPlugin("locks"), "No claim in namespace "+env.Namespace+" has a lock")
	holder := env.runPod("holder", vol.ClaimName, node.Name(), true)
	env.lockClaim(vol.ClaimName, holder.UID, "holder")
	env.CreatePod(objects.PodSpec{Name: "waits", Claims: []string{vol.ClaimName}, Change: func(o *v1.Pod) {
		o.Finalizers = []string{podFinalizer}
		o.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "csi-reclaimer.io/volume"}}
	}})
	t.Cleanup(func() { env.releasePod("waits") })

	l := env.listLocks()
	if len(l.Locks) != 1 || l.Locks[0].Holder != "holder" || l.Locks[0].Node != node.Name() ||
		l.Locks[0].Reason != "HolderRuns" || l.Locks[0].Since == nil || len(l.Locks[0].Waiting) != 1 ||
		len(l.GatedPods) != 1 || l.GatedPods[0].Reason != "ClaimInUse" || len(l.Warnings) != 1 || len(l.Unread) != 0 {
		t.Errorf("it lists %+v", l)
	}
	env.ExpectOutput(env.RunPlugin("explain", "pod/waits"), "(ClaimInUse)", "the lock of claim "+vol.ClaimName,
		"Start volume-guard with the controller single-node")
	output, err := env.WaitExit(env.StartPlugin("confirm", "pvc/"+vol.ClaimName, "--yes"))
	if err == nil {
		t.Errorf("nobody has deleted the pod, and it is confirmed:\n%s", output)
	}
	env.ExpectOutput(output, "is not being deleted", "next: delete the pod",
		"kubectl delete pod holder -n "+env.Namespace)

	env.cutOff(node, silence)
	env.Must(holder.Delete(env.Ctx))
	env.ExpectOutput(env.RunPlugin("explain", "pvc/"+vol.ClaimName), "(HolderUnreachable)",
		"Lock         pod holder, node "+node.Name(), "Waiting      pod waits", "No evidence  Finished",
		"kubectl reclaim confirm pvc/"+vol.ClaimName+" -n "+env.Namespace)
	env.ExpectOutput(env.RunPlugin("confirm", "pvc/"+vol.ClaimName, "--yes"), "Pod holder has the lock of claim "+
		vol.ClaimName, "Force risks", "was confirmed and force-deleted")
	pod, err := holder.Get(env.Ctx)
	env.Must(err)
	if pod == nil || pod.Annotations[pods.ConfirmAnnotation] != string(holder.UID) ||
		*pod.DeletionGracePeriodSeconds != 0 {
		t.Errorf("it is not confirmed, or not force-deleted: %+v", pod)
	}
}
