//go:build unix

package fencing

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	records "github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// workload is a StatefulSet of one with a claim. Its pod runs on one machine, and on the spare one when that is away.
type workload struct {
	*environment
	on   *machine
	name string
	// first is the pod that runs on the machine.
	first  types.UID
	volume *objects.Volume
}

// workload creates a StatefulSet, and waits until its pod runs on the machine, and is held where volume-guard holds
// pods.
func (env *environment) workload(on *machine, changes ...func(*v1.PodTemplateSpec)) *workload {
	env.T.Helper()
	w := &workload{environment: env, on: on, name: "web-" + rand.String(5)}
	w.volume = env.MakeVolume(objects.Spec{Handle: w.name, Policy: v1.PersistentVolumeReclaimRetain})
	template := w.template()
	for _, change := range changes {
		change(&template)
	}
	_, err := env.Client.AppsV1().StatefulSets(env.Namespace).Create(env.Ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: w.name},
		Spec: appsv1.StatefulSetSpec{ServiceName: w.name, Template: template,
			Selector: &metav1.LabelSelector{MatchLabels: template.Labels}},
	}, metav1.CreateOptions{})
	env.Must(err)
	env.Eventually("the pod of "+w.name+" runs on "+on.name, func() bool {
		pod := w.pod()
		return runs(pod, on.name) && (isHeld(pod) || !env.holds)
	})
	w.first = w.pod().UID
	return w
}

// lost returns a machine that is lost, and its workload.
func (env *environment) lost(name string, changes ...func(*v1.PodTemplateSpec)) (*machine, *workload) {
	env.T.Helper()
	m := env.machine(name, nil)
	w := env.workload(m, changes...)
	m.lose()
	return m, w
}

func (w *workload) template() v1.PodTemplateSpec {
	hosts := func(names ...string) []v1.NodeSelectorRequirement {
		return []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: names}}
	}
	return v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": w.name}},
		Spec: v1.PodSpec{
			Containers:                    []v1.Container{{Name: "main", Image: "none"}},
			TerminationGracePeriodSeconds: ptr.To[int64](5),
			Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: w.volume.ClaimName}}}},
			Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
					NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: hosts(w.on.name, w.spare.name)}}},
				PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{Weight: 100,
					Preference: v1.NodeSelectorTerm{MatchExpressions: hosts(w.on.name)}}},
			}},
		},
	}
}

// impatient has pods deleted as soon as their node is unreachable.
func impatient(template *v1.PodTemplateSpec) {
	for _, key := range []string{v1.TaintNodeUnreachable, v1.TaintNodeNotReady} {
		template.Spec.Tolerations = append(template.Spec.Tolerations, v1.Toleration{Key: key,
			Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](0)})
	}
}

// pod returns the set's pod, nil for none.
func (w *workload) pod() *v1.Pod {
	w.T.Helper()
	pod, err := w.Client.CoreV1().Pods(w.Namespace).Get(w.Ctx, w.name+"-0", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.Must(err)
	return pod
}

func runs(pod *v1.Pod, node string) bool {
	return pod != nil && pod.Spec.NodeName == node && pod.Status.Phase == v1.PodRunning && pod.DeletionTimestamp == nil
}

func isHeld(pod *v1.Pod) bool {
	return pod != nil && slices.Contains(pod.Finalizers, records.RunningFinalizer)
}

// waitTerminating waits until the first pod was deleted, and is held.
func (w *workload) waitTerminating() {
	w.T.Helper()
	w.Eventually("the pod of "+w.name+" is terminating", func() bool { return w.expectHeld().DeletionTimestamp != nil })
}

// waitReplaced waits until another pod of the set runs on one of these nodes.
func (w *workload) waitReplaced(nodes ...string) {
	w.T.Helper()
	var pod *v1.Pod
	if !w.Happens(func() bool {
		pod = w.pod()
		is := func(node string) bool { return runs(pod, node) && pod.UID != w.first }
		return slices.ContainsFunc(nodes, is)
	}) {
		w.T.Fatalf("another pod of %s never runs on %s: %+v", w.name, nodes, pod)
	}
}

// expectHeld checks that the first pod is there, and held, and returns it.
func (w *workload) expectHeld() *v1.Pod {
	w.T.Helper()
	pod := w.pod()
	if pod == nil || pod.UID != w.first || !isHeld(pod) {
		w.T.Fatalf("WRONG RELEASE: the pod of %s on node %s is gone or released: %+v", w.name, w.on.name, pod)
	}
	return pod
}
