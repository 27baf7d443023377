//go:build unix

package fencing

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/fencing/agents"
)

// fence is the NodeFence of a machine.
type fence struct {
	*environment
	of   *machine
	name string
	uid  types.UID
}

// fence asks by hand for the fence of a machine by these agents.
func (env *environment) fence(m *machine, agents ...v1alpha1.Agent) *fence {
	env.T.Helper()
	return env.fenceWith(m, v1alpha1.NodeFenceSpec{Reason: "test", Agents: agents})
}

func (env *environment) fenceWith(m *machine, spec v1alpha1.NodeFenceSpec) *fence {
	env.T.Helper()
	o, err := env.fences.Fences.Create(env.Ctx, &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: m.name},
		Spec: spec}, metav1.CreateOptions{})
	env.Must(err)
	return &fence{environment: env, of: m, name: o.Name, uid: o.UID}
}

// get returns the NodeFence, or nil if it is gone.
func (f *fence) get() *v1alpha1.NodeFence {
	f.T.Helper()
	o, err := f.fences.Fences.Get(f.Ctx, f.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	f.Must(err)
	if o.UID != f.uid {
		return nil
	}
	return o
}

// wait waits until the NodeFence is as wanted, and returns it.
func (f *fence) wait(what string, want func(*v1alpha1.NodeFence) bool) (now *v1alpha1.NodeFence) {
	f.T.Helper()
	if !f.Happens(func() bool { now = f.get(); return now != nil && want(now) }) {
		f.T.Fatalf("NodeFence %s is never %s: %s", f.name, what, describe(now))
	}
	return now
}

func describe(o *v1alpha1.NodeFence) string {
	if o == nil {
		return "it is gone"
	}
	text, err := json.Marshal(o.Status)
	return fmt.Sprintf("%s %v", text, err)
}

func (f *fence) waitPhase(phase v1alpha1.Phase) *v1alpha1.NodeFence {
	f.T.Helper()
	return f.wait(string(phase), func(o *v1alpha1.NodeFence) bool { return o.Status.Phase == phase })
}

// waitFenced waits until an agent has proven that the node is fenced, and checks which.
func (f *fence) waitFenced(agent string) {
	f.T.Helper()
	o := f.wait("fenced", isFenced)
	if o.Status.Proof == nil || o.Status.Proof.Agent != agent {
		f.T.Errorf("NodeFence %s is proven by another agent than %s: %s", f.name, agent, describe(o))
	}
}

func isFenced(o *v1alpha1.NodeFence) bool {
	return meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionFenced)
}

// waitReturned waits until the fence has ended, and checks why, and that nothing of it is left on the node.
func (f *fence) waitReturned(reasons ...string) *v1alpha1.NodeFence {
	f.T.Helper()
	o := f.waitPhase(v1alpha1.PhaseReturned)
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReturned)
	if c == nil || !slices.Contains(reasons, c.Reason) || isFenced(o) ||
		meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionReleased) {
		f.T.Errorf("NodeFence %s has not ended as %q: %s", f.name, reasons, describe(o))
	}
	if isTainted(f.of.node()) {
		f.T.Errorf("node %s has returned and is tainted", f.name)
	}
	return o
}

func (f *fence) waitGone() {
	f.T.Helper()
	f.Eventually("NodeFence "+f.name+" is gone", func() bool { return f.get() == nil })
}

// patch merges into the spec.
func (f *fence) patch(spec string) {
	f.T.Helper()
	_, err := f.fences.Fences.Patch(f.Ctx, f.name, types.MergePatchType, []byte(`{"spec":`+spec+`}`),
		metav1.PatchOptions{})
	f.Must(err)
}

// confirm gives a person's word about this very NodeFence.
func (f *fence) confirm(words string) {
	f.T.Helper()
	f.patch(fmt.Sprintf(`{"confirmation":%q,"confirmationUID":%q}`, words, f.get().UID))
}

// delete deletes the NodeFence, as kubectl delete --wait=false does.
func (f *fence) delete() {
	f.T.Helper()
	f.Must(f.fences.Fences.Delete(f.Ctx, f.name, metav1.DeleteOptions{}))
}

// expectAttempts checks the attempts, each as "agent: result".
func (f *fence) expectAttempts(want ...string) {
	f.T.Helper()
	o := f.get()
	var got []string
	for _, a := range o.Status.Attempts {
		got = append(got, a.Agent+": "+string(a.Result))
	}
	if !slices.Equal(got, want) {
		f.T.Errorf("NodeFence %s has the attempts %q, want %q: %s", f.name, got, want, describe(o))
	}
}

// expectNotReleased checks that nothing was released: the node is not tainted, and the pod is held.
func (f *fence) expectNotReleased(w *workload) {
	f.T.Helper()
	if isTainted(f.of.node()) {
		f.T.Errorf("WRONG RELEASE: node %s is tainted", f.name)
	}
	w.expectHeld()
}

// waitEvent waits for an Event on the NodeFence.
func (f *fence) waitEvent(reason, text string) {
	f.T.Helper()
	f.waitEventOn("NodeFence", f.name, reason, text)
}

// waitEventOn waits for an Event on a cluster-scoped object.
func (env *environment) waitEventOn(kind, name, reason, text string) {
	env.T.Helper()
	env.WaitEvent(v1.ObjectReference{Namespace: metav1.NamespaceDefault, Kind: kind, Name: name}, reason, text)
}

// Actions of Jobs.
const (
	doFence   = "fence"
	doUnfence = "unfence"
)

// jobAgent returns an agent with Jobs on the spare node, in the environment's namespace.
func (env *environment) jobAgent(name string, changes ...func(*v1alpha1.Agent)) v1alpha1.Agent {
	env.T.Helper()
	env.createPodTemplate(name)
	return env.agentOfJobs(name, changes...)
}

func (env *environment) agentOfJobs(name string, changes ...func(*v1alpha1.Agent)) v1alpha1.Agent {
	agent := v1alpha1.Agent{Name: name, Covers: v1alpha1.CoversUntilUnfenced,
		Job: &v1alpha1.JobAgent{Namespace: env.Namespace, PodTemplateName: name}}
	for _, change := range changes {
		change(&agent)
	}
	return agent
}

// Changes of agents.
func undoing(agent *v1alpha1.Agent)   { agent.Job.Undo = true }
func rebooting(agent *v1alpha1.Agent) { agent.Covers = v1alpha1.CoversReboot }

// short has an agent end soon, and long enough to be seen on a busy machine.
func short(a *v1alpha1.Agent) { a.Timeout.Duration = 30 * time.Second }

// createPodTemplate creates the PodTemplate of an agent, unless it is there.
func (env *environment) createPodTemplate(name string) {
	env.T.Helper()
	if env.PodTemplates().Find(name) != nil {
		return
	}
	env.PodTemplates().Create(&v1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Template: v1.PodTemplateSpec{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "none"}},
			RestartPolicy: v1.RestartPolicyNever, NodeSelector: map[string]string{v1.LabelHostname: env.spare.name}}},
	})
}

// jobs returns the Jobs of a fence for an action and an attempt, 0 for all.
func (f *fence) jobs(action string, attempt int) []*batchv1.Job {
	f.T.Helper()
	return slices.DeleteFunc(f.Jobs().List(agents.FenceLabel+"="+string(f.uid)), func(job *batchv1.Job) bool {
		return variable(job, "FENCE_ACTION") != action || variable(job, "FENCE_NODE") != f.name ||
			attempt > 0 && variable(job, "FENCE_ATTEMPT") != strconv.Itoa(attempt)
	})
}

// variable returns an environment variable of the pods of a Job.
func variable(job *batchv1.Job, name string) string {
	for _, v := range job.Spec.Template.Spec.Containers[0].Env {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}

// waitJob waits until the one Job for an action and an attempt has a pod that runs.
func (f *fence) waitJob(action string, attempt int) (job *batchv1.Job) {
	f.T.Helper()
	if !f.Happens(func() bool {
		all := f.jobs(action, attempt)
		if len(all) > 1 {
			f.T.Fatalf("there are %d Jobs to %s node %s in attempt %d", len(all), action, f.name, attempt)
		}
		if len(all) == 0 || all[0].DeletionTimestamp != nil {
			return false
		}
		job = all[0]
		return f.podOf(job) != nil
	}) {
		f.T.Fatalf("no Job runs to %s %s, attempt %d: %s", action, f.name, attempt, f.describeJobs())
	}
	return job
}

// describeJobs describes the pods of the Jobs in the environment's namespace, and the fence.
func (f *fence) describeJobs() (text string) {
	for _, pod := range f.Pods().List(batchv1.JobNameLabel) {
		text += fmt.Sprintf("pod %s on node %q: %s %+v\n", pod.Name, pod.Spec.NodeName, pod.Status.Phase,
			pod.Status.Conditions)
	}
	return text + "fence: " + describe(f.get())
}

// podOf returns the pod of a Job that runs, nil for none.
func (f *fence) podOf(job *batchv1.Job) *v1.Pod {
	f.T.Helper()
	for _, pod := range f.Pods().List(batchv1.ControllerUidLabel + "=" + string(job.UID)) {
		if runs(pod, f.spare.name) {
			return pod
		}
	}
	return nil
}

// endJob has the pod of a Job end, and the Job with it.
func (f *fence) endJob(job *batchv1.Job, phase v1.PodPhase) {
	f.T.Helper()
	if phase == v1.PodFailed {
		f.Jobs().Merge(job.Name, `{"spec":{"backoffLimit":0}}`)
	}
	_, err := f.kubelet.CoreV1().Pods(f.Namespace).Patch(f.Ctx, f.podOf(job).Name, types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase), metav1.PatchOptions{}, "status")
	f.Must(err)
}

// completeJob has the Job for an action and an attempt do its work.
func (f *fence) completeJob(action string, attempt int) {
	f.T.Helper()
	f.endJob(f.waitJob(action, attempt), v1.PodSucceeded)
}

// outlet is the name of the agent that is a remediation, and of its template.
const outlet = "outlet"

// remediationAgent returns an agent that is a remediation of a template in the environment's namespace.
func (env *environment) remediationAgent(changes ...func(*v1alpha1.Agent)) v1alpha1.Agent {
	env.T.Helper()
	template := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "fencing.test/v1", "kind": "PowerCyclingTemplate", "metadata": map[string]any{"name": outlet},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"outlet": outlet}}},
	}}
	_, err := env.object("fencing.test", "v1", "powercyclingtemplates", env.Namespace).Create(env.Ctx, template,
		metav1.CreateOptions{})
	env.Must(err)
	agent := v1alpha1.Agent{Name: outlet, Covers: v1alpha1.CoversUntilUnfenced,
		Remediation: &v1alpha1.RemediationAgent{APIVersion: "fencing.test/v1", Kind: "PowerCyclingTemplate",
			Namespace: env.Namespace, Name: outlet}}
	for _, change := range changes {
		change(&agent)
	}
	return agent
}

// createRemediation creates a remediation of a node that is of no fence.
func (env *environment) createRemediation(node string) {
	env.T.Helper()
	_, err := env.object("fencing.test", "v1", "powercyclings", env.Namespace).Create(env.Ctx,
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": "fencing.test/v1", "kind": "PowerCycling",
			"metadata": map[string]any{"name": node}, "spec": map[string]any{"outlet": "other"}}}, metav1.CreateOptions{})
	env.Must(err)
}

func (f *fence) remediations() dynamic.ResourceInterface {
	return f.object("fencing.test", "v1", "powercyclings", f.Namespace)
}

// remediation returns the remediation of the node, nil for none.
func (f *fence) remediation() *unstructured.Unstructured {
	f.T.Helper()
	o, err := f.remediations().Get(f.Ctx, f.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	f.Must(err)
	return o
}

// waitRemediation waits until the remediation of the template is created for the node.
func (f *fence) waitRemediation() {
	f.T.Helper()
	f.Eventually("a remediation is created for "+f.name, func() bool {
		o := f.remediation()
		if o == nil || o.GetDeletionTimestamp() != nil {
			return false
		}
		of, _, _ := unstructured.NestedString(o.Object, "spec", "outlet")
		return of == outlet
	})
}

// report has the remediator say whether it has succeeded: "True", "False" or "Unknown".
func (f *fence) report(succeeded string) {
	f.T.Helper()
	_, err := f.remediations().Patch(f.Ctx, f.name, types.MergePatchType, fmt.Appendf(nil,
		`{"status":{"conditions":[{"type":"Succeeded","status":%q,"message":"The outlet says so."}]}}`, succeeded),
		metav1.PatchOptions{}, "status")
	f.Must(err)
}

// networkFenceAgent returns an agent that is a NetworkFence of csi-addons for the environment's driver.
func (env *environment) networkFenceAgent(name string) v1alpha1.Agent {
	return v1alpha1.Agent{Name: name, Covers: v1alpha1.CoversVolumes,
		NetworkFence: &v1alpha1.NetworkFenceAgent{Driver: env.Driver, NetworkFenceClassName: name,
			Addresses: v1alpha1.AddressesInternalIP, Volumes: v1alpha1.VolumesAll}}
}

// createNetworkFenceClass creates the class of an agent, for the environment's driver.
func (env *environment) createNetworkFenceClass(name string) {
	env.T.Helper()
	_, err := env.object("csiaddons.openshift.io", "v1alpha1", "networkfenceclasses", "").Create(env.Ctx,
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "csiaddons.openshift.io/v1alpha1", "kind": "NetworkFenceClass",
			"metadata": map[string]any{"name": name}, "spec": map[string]any{"provisioner": env.Driver}}},
		metav1.CreateOptions{})
	env.Must(err)
}

// createCSIAddonsNode has the environment's driver report an address of a machine for a NetworkFenceClass.
func (env *environment) createCSIAddonsNode(m *machine, class string) {
	env.T.Helper()
	nodes := env.object("csiaddons.openshift.io", "v1alpha1", "csiaddonsnodes", env.Namespace)
	o, err := nodes.Create(env.Ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "csiaddons.openshift.io/v1alpha1", "kind": "CSIAddonsNode",
		"metadata": map[string]any{"name": m.name},
		"spec":     map[string]any{"driver": map[string]any{"name": env.Driver, "nodeID": m.name}},
	}}, metav1.CreateOptions{})
	env.Must(err)
	o.Object["status"] = map[string]any{"networkFenceClientStatus": []any{map[string]any{
		"networkFenceClassName": class,
		"ClientDetails":         []any{map[string]any{"id": "a", "cidrs": []any{"192.0.2.1/32"}}}}}}
	_, err = nodes.UpdateStatus(env.Ctx, o, metav1.UpdateOptions{})
	env.Must(err)
}

func (env *environment) networkFences() dynamic.ResourceInterface {
	return env.object("csiaddons.openshift.io", "v1alpha1", "networkfences", "")
}

// waitNetworkFence waits until the NetworkFence of a fence asks for a state, and has the driver carry that out.
func (f *fence) waitNetworkFence(state string) *unstructured.Unstructured {
	f.T.Helper()
	var o *unstructured.Unstructured
	f.Eventually("the NetworkFence of "+f.name+" asks for "+state, func() bool {
		list, err := f.networkFences().List(f.Ctx, metav1.ListOptions{
			LabelSelector: agents.FenceLabel + "=" + string(f.uid)})
		f.Must(err)
		if len(list.Items) != 1 {
			return false
		}
		o = &list.Items[0]
		asked, _, _ := unstructured.NestedString(o.Object, "spec", "fenceState")
		return asked == state
	})
	return o
}

// reportNetworkFence writes the driver's result of a NetworkFence.
func (f *fence) reportNetworkFence(o *unstructured.Unstructured, result, message string) {
	f.T.Helper()
	_, err := f.networkFences().Patch(f.Ctx, o.GetName(), types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"result":%q,"message":%q}}`, result, message), metav1.PatchOptions{}, "status")
	f.Must(err)
}
