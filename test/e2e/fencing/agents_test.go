//go:build unix

package fencing

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/fencing/agents"
)

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
	_, err := env.Client.CoreV1().PodTemplates(env.Namespace).Create(env.Ctx, &v1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Template: v1.PodTemplateSpec{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "none"}},
			RestartPolicy: v1.RestartPolicyNever, NodeSelector: map[string]string{v1.LabelHostname: env.spare.name}}},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		env.Must(err)
	}
}

// jobs returns the Jobs of a fence for an action and an attempt, 0 for all.
func (f *fence) jobs(action string, attempt int) []batchv1.Job {
	f.T.Helper()
	list, err := f.Client.BatchV1().Jobs(f.Namespace).List(f.Ctx, metav1.ListOptions{
		LabelSelector: agents.FenceLabel + "=" + string(f.uid)})
	f.Must(err)
	return slices.DeleteFunc(list.Items, func(job batchv1.Job) bool {
		return variable(job, "FENCE_ACTION") != action || variable(job, "FENCE_NODE") != f.name ||
			attempt > 0 && variable(job, "FENCE_ATTEMPT") != strconv.Itoa(attempt)
	})
}

// variable returns an environment variable of the pods of a Job.
func variable(job batchv1.Job, name string) string {
	for _, v := range job.Spec.Template.Spec.Containers[0].Env {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}

// waitJob waits until the one Job for an action and an attempt has a pod that runs.
func (f *fence) waitJob(action string, attempt int) (job batchv1.Job) {
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
	pods, err := f.Client.CoreV1().Pods(f.Namespace).List(f.Ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel})
	f.Must(err)
	for i := range pods.Items {
		pod := &pods.Items[i]
		text += fmt.Sprintf("pod %s on node %q: %s %+v\n", pod.Name, pod.Spec.NodeName, pod.Status.Phase,
			pod.Status.Conditions)
	}
	return text + "fence: " + describe(f.get())
}

// podOf returns the pod of a Job that runs, nil for none.
func (f *fence) podOf(job batchv1.Job) *v1.Pod {
	f.T.Helper()
	list, err := f.Client.CoreV1().Pods(f.Namespace).List(f.Ctx, metav1.ListOptions{
		LabelSelector: batchv1.ControllerUidLabel + "=" + string(job.UID)})
	f.Must(err)
	for i := range list.Items {
		if runs(&list.Items[i], f.spare.name) {
			return &list.Items[i]
		}
	}
	return nil
}

// endJob has the pod of a Job end, and the Job with it.
func (f *fence) endJob(job batchv1.Job, phase v1.PodPhase) {
	f.T.Helper()
	if phase == v1.PodFailed {
		_, err := f.Client.BatchV1().Jobs(f.Namespace).Patch(f.Ctx, job.Name, types.MergePatchType,
			[]byte(`{"spec":{"backoffLimit":0}}`), metav1.PatchOptions{})
		f.Must(err)
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
