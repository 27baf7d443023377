//go:build unix

package podadmission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// controlledBy has a pod be owned by something of a kind.
func controlledBy(kind string, controller bool) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: kind, Name: "owner", UID: "owner", Controller: &controller}}
	}
}

// TestNewPodsAreHeld expects the finalizer in the write that creates a pod, from the policy or, on a Kubernetes without
// it, from the webhook.
func TestNewPodsAreHeld(t *testing.T) {
	namespaces := map[string]string{enforce: namespace(t, enforce), warn: namespace(t, warn), "off": namespace(t, "")}
	waitHolds(t, namespaces[enforce])
	const grace = 30
	mirror := map[string]string{v1.MirrorPodAnnotationKey: "x"}
	claims := []v1.Volume{objects.ClaimVolume("v", "c")}
	for sentence, c := range map[string]struct {
		change func(*v1.Pod)
		held   bool
		grace  int64
	}{
		"with a claim": {func(p *v1.Pod) { p.Spec.Volumes = claims }, true, grace},
		"with an ephemeral volume": {func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{objects.EphemeralVolume("v", "none")}
		}, true, grace},
		"with a claim among other volumes": {func(p *v1.Pod) {
			p.Spec.Volumes = append([]v1.Volume{{Name: "e"}}, claims...)
		}, true, grace},
		"with a claim and another finalizer": {func(p *v1.Pod) {
			p.Spec.Volumes, p.Finalizers = claims, []string{"example.com/other"}
		}, true, grace},
		"with the finalizer already": {func(p *v1.Pod) {
			p.Spec.Volumes, p.Finalizers = claims, []string{podsafety.Finalizer}
		}, true, grace},
		"bound from the start":        {func(p *v1.Pod) { p.Spec.Volumes, p.Spec.NodeName = claims, ownNode }, true, grace},
		"with a claim, without grace": {func(p *v1.Pod) { p.Spec.Volumes = claims; bornWithoutGrace(p) }, true, 1},
		"of a StatefulSet":            {controlledBy("StatefulSet", true), true, grace},
		"owned by a StatefulSet":      {controlledBy("StatefulSet", false), false, grace},
		"of a ReplicaSet":             {controlledBy("ReplicaSet", true), false, grace},
		"without a volume":            {func(*v1.Pod) {}, false, grace},
		"with other volumes":          {func(p *v1.Pod) { p.Spec.Volumes = []v1.Volume{{Name: "e"}} }, false, grace},
		"without volumes, nor grace":  {bornWithoutGrace, false, 1},
		"with a grace period of 1": {func(p *v1.Pod) {
			p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
		}, false, 1},
		"mirror of a static pod": {func(p *v1.Pod) {
			p.Spec.Volumes, p.Annotations, p.Spec.NodeName = claims, mirror, ownNode
		}, false, grace},
		"mirror of one without grace": {func(p *v1.Pod) {
			p.Annotations, p.Spec.NodeName = mirror, ownNode
			bornWithoutGrace(p)
		}, false, 1},
		"named by the API server": {func(p *v1.Pod) {
			p.Spec.Volumes, p.Name, p.GenerateName = claims, "", "generated-"
		}, true, grace},
	} {
		for mode, namespace := range namespaces {
			pod := podOf(namespace, "pod", "")
			c.change(pod)
			wantGrace, sent := c.grace, pod.Spec.TerminationGracePeriodSeconds
			if mode != enforce && sent != nil {
				wantGrace = *sent
			}
			held := c.held && mode == enforce || slices.Contains(pod.Finalizers, podsafety.Finalizer)
			others := slices.DeleteFunc(slices.Clone(pod.Finalizers), func(f string) bool { return f == podsafety.Finalizer })
			pod, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			must(t, err)
			got, want := fmt.Sprint(pod.Finalizers, *pod.Spec.TerminationGracePeriodSeconds), others
			if held {
				want = append(want, podsafety.Finalizer)
			}
			if want := fmt.Sprint(want, wantGrace); got != want {
				t.Errorf("%s, pod safety %s: finalizers and grace period %s, want %s", sentence, mode, got, want)
			}
		}
	}
}

// An empty list in a request is no list that the finalizer can be appended to.
func TestPodWithEmptyFinalizersIsHeld(t *testing.T) {
	namespace := namespace(t, enforce)
	waitHolds(t, namespace)
	var made v1.Pod
	must(t, client.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Param("dryRun", metav1.DryRunAll).
		SetHeader("Content-Type", "application/json").Body([]byte(`{"apiVersion": "v1", "kind": "Pod",
			"metadata": {"name": "pod", "finalizers": []}, "spec": {"containers": [{"name": "c", "image": "i"}],
			"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}`)).Do(t.Context()).Into(&made))
	if got := fmt.Sprint(made.Finalizers); got != "["+podsafety.Finalizer+"]" {
		t.Errorf("finalizers %s", got)
	}
}

// restoreAtEnd creates the objects again that RemoveAdmission deletes.
func restoreAtEnd(t *testing.T) {
	t.Helper()
	adds := holdFile
	if cluster.Version().Before(controlplane.V1_36) {
		adds = holdWebhookFile
	}
	var all []object
	for _, o := range append(manifest(t, adds), manifest(t, policiesFile)...) {
		if o.GetName() == podsafety.Name || o.GetName() == podsafety.StaysName {
			all = append(all, live(t, o)) // with the certificate's authority
		}
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() { must(t, apply(ctx, all...)) })
}

// After RemoveAdmission, new pods are not held, and an administrator can remove the finalizer.
func TestRemoveAdmission(t *testing.T) {
	ctx, namespace := t.Context(), namespace(t, enforce)
	t.Cleanup(func() { forget(t, namespace) })
	waitHolds(t, namespace)
	restoreAtEnd(t)
	pod := podOf(namespace, "pod", "")
	pod.Spec.Volumes = []v1.Volume{objects.ClaimVolume("v", "c")}
	pods := client.CoreV1().Pods(namespace)
	pod, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	must(t, err)
	as := newUser(t, cluster.Admin())
	// The API server begins with each policy at a time of its own.
	trying := &user{Clientset: as.Clientset, dryRun: []string{metav1.DryRunAll}}
	until(t, "the finalizer to stay", func() bool {
		return suite.Judge(patches(removesOurs)(ctx, trying, pod)).RefusedBy == holdStays
	})
	if v := suite.Judge(patches(removesOurs)(ctx, as, pod)); v.RefusedBy != holdStays {
		t.Fatalf("with the admission in force: %v", v)
	}
	adds := "mutatingadmissionpolicybinding/"
	if cluster.Version().Before(controlplane.V1_36) {
		adds = "mutatingwebhookconfiguration/"
	}
	want := adds + podsafety.Name + " validatingadmissionpolicybinding/" + podsafety.StaysName
	for _, want := range []string{want, ""} { // the second time finds nothing to delete
		deleted, err := podsafety.RemoveAdmission(ctx, cluster.Admin())
		must(t, err)
		if got := strings.Join(deleted, " "); got != want {
			t.Errorf("deleted %q, want %q", got, want)
		}
	}
	until(t, "pods not to be held", func() bool {
		pod := podOf(namespace, "probe", "")
		pod.Spec.Volumes = []v1.Volume{objects.ClaimVolume("v", "c")}
		made, err := pods.Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		must(t, err)
		return len(made.Finalizers) == 0
	})
	until(t, "the finalizer to be removed", func() bool { return patches(removesOurs)(ctx, as, pod) == nil })
}

// workloads is a namespace that enforces pod safety, with a node that plays its pods and a stand-in for the
// controller.
type workloads struct {
	*testing.T
	namespace string
	node      string
}

func newWorkloads(t *testing.T) workloads {
	t.Helper()
	w := workloads{t, namespace(t, enforce), "node-" + rand.String(8)}
	fakenode.ForTest(t, cluster, w.node, fakenode.Config{})
	waitHolds(t, w.namespace)
	w.release()
	return w
}

// release removes the finalizer from pods whose kubelet has deleted them, as volume-guard's account, until the test
// ends.
func (w workloads) release() {
	config, err := cluster.ServiceAccount(w.Context(), home, account)
	must(w.T, err)
	grantPods(w.T)
	guard, err := kubernetes.NewForConfig(config)
	must(w.T, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	ended := make(chan struct{})
	w.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			for _, pod := range w.podsWith(ctx, func(pod *v1.Pod) bool {
				return ptr.Deref(pod.DeletionGracePeriodSeconds, -1) == 0 && slices.Contains(pod.Finalizers, podsafety.Finalizer)
			}) {
				_ = patches(removesOurs)(ctx, &user{Clientset: guard}, pod) // another round follows
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
}

// podsWith lists pods; none on an error.
func (w workloads) podsWith(ctx context.Context, is func(*v1.Pod) bool) (pods []*v1.Pod) {
	list, err := client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	for i := range list.Items {
		if is(&list.Items[i]) {
			pods = append(pods, &list.Items[i])
		}
	}
	return pods
}

// runningHeld waits for n pods that run and are held, and returns them.
func (w workloads) runningHeld(n int) (pods []*v1.Pod) {
	w.Helper()
	until(w.T, fmt.Sprintf("%d pods to run, held", n), func() bool {
		pods = w.podsWith(w.Context(), func(pod *v1.Pod) bool {
			return pod.Status.Phase == v1.PodRunning && pod.DeletionTimestamp == nil &&
				slices.Contains(pod.Finalizers, podsafety.Finalizer)
		})
		return len(pods) == n
	})
	return pods
}

func (w workloads) gone(what string) {
	w.Helper()
	until(w.T, what+" to be gone", func() bool {
		list, err := client.CoreV1().Pods(w.namespace).List(w.Context(), metav1.ListOptions{})
		must(w.T, err)
		return len(list.Items) == 0
	})
}

// claim makes a claim and the volume that it is bound to.
func (w workloads) claim(name string) {
	w.Helper()
	ctx := context.WithoutCancel(w.Context())
	size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}
	modes := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	volume := w.namespace + "-" + name
	_, err := client.CoreV1().PersistentVolumes().Create(ctx, &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume},
		Spec: v1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, ClaimRef: &v1.ObjectReference{Namespace: w.namespace, Name: name},
			PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/none"}},
		},
	}, metav1.CreateOptions{})
	must(w.T, err)
	w.Cleanup(func() {
		_ = client.CoreV1().PersistentVolumes().Delete(ctx, volume, metav1.DeleteOptions{})
	})
	_, err = client.CoreV1().PersistentVolumeClaims(w.namespace).Create(ctx, &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: modes, StorageClassName: ptr.To(""), VolumeName: volume,
			Resources: v1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{})
	must(w.T, err)
}

// template is of pods with a claim, on the test's node.
func (w workloads) template(claim string) v1.PodTemplateSpec {
	pod := podOf("", "", "")
	pod.Labels = map[string]string{"app": "web"}
	pod.Spec.NodeSelector = map[string]string{v1.LabelHostname: w.node}
	pod.Spec.Volumes = []v1.Volume{objects.ClaimVolume("v", claim)}
	return v1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
}

var web = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}

// TestStatefulSetWithHeldPods rolls a StatefulSet out, drains its pods, and scales it to zero.
func TestStatefulSetWithHeldPods(t *testing.T) {
	w := newWorkloads(t)
	ctx := t.Context()
	for _, name := range []string{"v-web-0", "v-web-1"} {
		w.claim(name)
	}
	template := w.template("")
	template.Spec.Volumes = nil
	template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0) // becomes 1, and no deletion needs a confirmation
	sets := client.AppsV1().StatefulSets(w.namespace)
	_, err := sets.Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](2), Selector: web, Template: template,
			VolumeClaimTemplates: []v1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "v"},
				Spec: v1.PersistentVolumeClaimSpec{
					AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: ptr.To(""),
					Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
				},
			}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	first := w.runningHeld(2)
	_, err = sets.Patch(ctx, "web", types.MergePatchType,
		[]byte(`{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`), metav1.PatchOptions{})
	must(t, err)
	until(t, "the rolling update", func() bool {
		set, err := sets.Get(ctx, "web", metav1.GetOptions{})
		must(t, err)
		return set.Status.ObservedGeneration == set.Generation && set.Status.UpdatedReplicas == 2 &&
			set.Status.ReadyReplicas == 2 && set.Status.CurrentRevision == set.Status.UpdateRevision
	})
	second := w.runningHeld(2)
	if slices.ContainsFunc(second, func(pod *v1.Pod) bool { return pod.UID == first[0].UID || pod.UID == first[1].UID }) {
		t.Error("a pod was not replaced")
	}
	admin := newUser(t, cluster.Admin())
	for _, pod := range second { // as kubectl drain does
		must(t, evicts(nil)(ctx, admin, pod))
	}
	until(t, "the drained pods to be replaced", func() bool {
		return !slices.ContainsFunc(w.runningHeld(2),
			func(pod *v1.Pod) bool { return pod.UID == second[0].UID || pod.UID == second[1].UID })
	})
	_, err = sets.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
	must(t, err)
	w.gone("the pods of a StatefulSet that is scaled to none")
}

// TestJobWithHeldPods expects a Job to complete, and its pods to be deleted with it.
func TestJobWithHeldPods(t *testing.T) {
	w := newWorkloads(t)
	ctx := t.Context()
	w.claim("data")
	template := w.template("data")
	template.Spec.RestartPolicy = v1.RestartPolicyNever
	template.Labels = nil
	jobs := client.BatchV1().Jobs(w.namespace)
	_, err := jobs.Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{Template: template},
	}, metav1.CreateOptions{})
	must(t, err)
	pod := w.runningHeld(1)[0]
	config, err := cluster.ConfigFor(fakenode.User(w.node), fakenode.Group)
	must(t, err)
	must(t, setsPhase(v1.PodSucceeded)(ctx, newUser(t, config), pod))
	until(t, "the Job to complete", func() bool {
		job, err := jobs.Get(ctx, "job", metav1.GetOptions{})
		must(t, err)
		return job.Status.Succeeded == 1 && job.Status.CompletionTime != nil
	})
	must(t, jobs.Delete(ctx, "job", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))
	w.gone("the pods of the Job")
}

// TestDeploymentIsGarbageCollected deletes a Deployment in the foreground, so it goes after its pods.
func TestDeploymentIsGarbageCollected(t *testing.T) {
	w := newWorkloads(t)
	ctx := t.Context()
	w.claim("data")
	deployments := client.AppsV1().Deployments(w.namespace)
	_, err := deployments.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Selector: web, Template: w.template("data")},
	}, metav1.CreateOptions{})
	must(t, err)
	w.runningHeld(2)
	must(t, deployments.Delete(ctx, "web",
		metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}))
	until(t, "the Deployment to be gone", func() bool {
		_, err := deployments.Get(ctx, "web", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	w.gone("the pods of a Deployment that is gone")
}

// TestNamespaceWithHeldPodsIsDeleted also has pods that were created without a grace period.
func TestNamespaceWithHeldPodsIsDeleted(t *testing.T) {
	suite.Deep(t, suite.WaitsForClock) // the namespace controller tries again after 15 seconds
	w := newWorkloads(t)
	ctx := t.Context()
	w.claim("data")
	for _, name := range []string{"a", "b"} {
		pod := podOf(w.namespace, name, w.node)
		pod.Spec.Volumes = []v1.Volume{objects.ClaimVolume("v", "data")}
		// The namespace controller looks again after half of the longest grace period.
		pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
		if name == "b" {
			bornWithoutGrace(pod)
		}
		_, err := client.CoreV1().Pods(w.namespace).Create(ctx, pod, metav1.CreateOptions{})
		must(t, err)
	}
	w.runningHeld(2)
	must(t, client.CoreV1().Namespaces().Delete(ctx, w.namespace, metav1.DeleteOptions{}))
	until(t, "the namespace to be gone", func() bool {
		_, err := client.CoreV1().Namespaces().Get(ctx, w.namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
