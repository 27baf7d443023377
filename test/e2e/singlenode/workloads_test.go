//go:build unix

package singlenode

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// In TestWorkloads, Kubernetes' controllers replace pods that use a claim.
func TestWorkloads(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.run([]scenario{
		{"a Deployment with strategy Recreate is rolled out", modeAll, testRecreate},
		{"the pod of a Job frees its claim once it has completed", modeAll, testJob},
	},
		scenario{"a ReplicaSet replaces its pod at once", modeAll, testReplicaSet},
		scenario{"a Deployment with maxSurge 0 is rolled out", modeAll, testNoSurge},
		scenario{"a Deployment with maxSurge waits, and an Event says what to do", modeAll, testSurge},
		scenario{"a drained node is followed by another", modeAll, testEviction},
	)
}

// template is of pods that use a claim, of a version that a rollout changes.
func template(app, claim string) v1.PodTemplateSpec {
	return v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels(app)}, Spec: podSpec(claim)}
}

func labels(app string) map[string]string { return map[string]string{"app": app} }

// nextVersion patches the template of a workload.
const nextVersion = `{"spec":{"template":{"metadata":{"annotations":{"version":"2"}}}}}`

func isNext(pod *v1.Pod) bool { return pod.Annotations["version"] == "2" }

func runsNext(pod *v1.Pod) bool { return isNext(pod) && isRunning(pod) }

// testReplicaSet deletes the pod of a ReplicaSet while its node is away: the next pod is created at once, and waits
// until the node is back and has ended the first.
func testReplicaSet(env *environment) {
	m := env.machine()
	claim := env.claim()
	tpl := template("web", claim)
	tpl.Spec.NodeSelector = map[string]string{v1.LabelHostname: m.name}
	_, err := env.Client.AppsV1().ReplicaSets(env.Namespace).Create(env.Ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels("web")}, Template: tpl},
	}, metav1.CreateOptions{})
	env.Must(err)
	first := env.onePod("running", isRunning)
	m.lose()
	env.Must(env.Client.CoreV1().Pods(env.Namespace).Delete(env.Ctx, first.Name, metav1.DeleteOptions{}))
	next := env.onePod("created", func(pod *v1.Pod) bool { return pod.UID != first.UID })
	env.waitEvent(next.UID, "ClaimInUse", claim, first.Name, "is terminating", "explain pod/"+first.Name)
	m.resume()
	if now := env.onePod("running", isRunning); now.UID != next.UID {
		env.T.Errorf("pod %s runs, want %s", now.Name, next.Name)
	}
}

// deployment creates a Deployment of one pod that uses a claim, and waits until it runs.
func (env *environment) deployment(strategy appsv1.DeploymentStrategy) (claim string, pod *v1.Pod) {
	env.T.Helper()
	claim = env.claim()
	_, err := env.Client.AppsV1().Deployments(env.Namespace).Create(env.Ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels("web")},
			Strategy: strategy, Template: template("web", claim)},
	}, metav1.CreateOptions{})
	env.Must(err)
	return claim, env.onePod("running", isRunning)
}

// patchDeployment changes the Deployment.
func (env *environment) patchDeployment(patch string) {
	env.T.Helper()
	_, err := env.Client.AppsV1().Deployments(env.Namespace).Patch(env.Ctx, "web", types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	env.Must(err)
}

// waitRolledOut waits until the Deployment has nothing left to do.
func (env *environment) waitRolledOut() {
	env.T.Helper()
	env.onePod("running in its next version", runsNext)
	env.Eventually("the rollout has ended", func() bool {
		d, err := env.Client.AppsV1().Deployments(env.Namespace).Get(env.Ctx, "web", metav1.GetOptions{})
		env.Must(err)
		return d.Status.ObservedGeneration == d.Generation && d.Status.Replicas == 1 && d.Status.UpdatedReplicas == 1 &&
			d.Status.AvailableReplicas == 1
	})
}

func rolling(surge, unavailable int) appsv1.DeploymentStrategy {
	return appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt(surge)),
			MaxUnavailable: ptr.To(intstr.FromInt(unavailable))}}
}

func testRecreate(env *environment) {
	env.deployment(appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType})
	env.patchDeployment(nextVersion)
	env.waitRolledOut()
}

func testNoSurge(env *environment) {
	env.deployment(rolling(0, 1))
	env.patchDeployment(nextVersion)
	env.waitRolledOut()
}

// testSurge follows each piece of the Event's advice.
func testSurge(env *environment) {
	const noSurge = `{"spec":{"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}}}`
	const recreate = `{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}`
	for _, advice := range []string{noSurge, recreate} {
		claim, first := env.deployment(rolling(1, 0))
		env.patchDeployment(nextVersion)
		next := env.onePod("created in its next version", isNext)
		env.waitEvent(next.UID, "ClaimInUse", claim, first.Name, "strategy Recreate", "maxSurge: 0")
		env.onePod("running", isRunning)
		env.patchDeployment(advice)
		env.waitRolledOut()
		env.Must(env.Client.AppsV1().Deployments(env.Namespace).Delete(env.Ctx, "web",
			metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))
		env.Eventually("its pods are gone", func() bool { return len(env.pods(anyPod)) == 0 })
		env.waitFree(claim)
	}
}

// testStatefulSet rolls a set out. Its pods have two provisioned claims each.
func testStatefulSet(env *environment) {
	const replicas = 2
	tpl := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels("db")}, Spec: podSpec()}
	var claims []v1.PersistentVolumeClaim
	for _, name := range []string{"data", "log"} {
		claims = append(claims, v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: env.claimSpec(env.class)})
	}
	sets := env.Client.AppsV1().StatefulSets(env.Namespace)
	_, err := sets.Create(env.Ctx, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](replicas), ServiceName: "db", Template: tpl,
			Selector: &metav1.LabelSelector{MatchLabels: labels("db")}, VolumeClaimTemplates: claims}}, metav1.CreateOptions{})
	env.Must(err)
	count := func(want func(*v1.Pod) bool) func() bool {
		return func() bool { return len(env.pods(want)) == replicas }
	}
	env.Eventually("the set runs", count(isRunning))
	_, err = sets.Patch(env.Ctx, "db", types.StrategicMergePatchType, []byte(nextVersion), metav1.PatchOptions{})
	env.Must(err)
	env.Eventually("the set runs in its next version", count(runsNext))
	for i := range replicas {
		for _, name := range []string{"data", "log"} {
			pod := env.onePod("running", func(pod *v1.Pod) bool { return pod.Name == fmt.Sprintf("db-%d", i) })
			if claim := env.get(name + "-" + pod.Name); claim == nil || holderOf(claim) != pod.UID {
				env.T.Errorf("claim %s is not locked for pod %s: %+v", name, pod.Name, claim)
			}
		}
	}
}

// claimSpec is of a claim for a volume of a class.
func (env *environment) claimSpec(class string) v1.PersistentVolumeClaimSpec {
	return v1.PersistentVolumeClaimSpec{StorageClassName: &class,
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		Resources:   v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}}}
}

// testJob has the pod of a Job complete: it stays, and its claim can be used after the time for the unmount.
func testJob(env *environment) {
	claim := env.claim()
	tpl := template("job", claim)
	tpl.Spec.RestartPolicy = v1.RestartPolicyNever
	_, err := env.Client.BatchV1().Jobs(env.Namespace).Create(env.Ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{Template: tpl},
	}, metav1.CreateOptions{})
	env.Must(err)
	first := env.onePod("running", isRunning)
	next := env.pod(claim)
	env.waits(next, "ClaimInUse", claim, first.Name)
	began := time.Now()
	env.complete(first)
	env.runs(next)
	if took := time.Since(began); took < unmountGrace {
		env.T.Errorf("the claim was passed on after %s, before the time for the unmount has passed", took)
	}
	env.expectLocked(claim, next)
	pods := env.pods(anyPod)
	if !slices.ContainsFunc(pods, func(pod *v1.Pod) bool { return pod.UID == first.UID }) {
		env.T.Error("the pod of the Job is gone")
	}
}

// testEviction drains pods of a Deployment with strategy Recreate, as kubectl drain does.
func testEviction(env *environment) {
	claim, pod := env.deployment(appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType})
	env.Must(env.Client.CoreV1().Pods(env.Namespace).EvictV1(env.Ctx, evictionOf(pod.Name)))
	next := env.onePod("running in its place", func(now *v1.Pod) bool { return isRunning(now) && now.UID != pod.UID })
	if o := env.get(claim); o == nil || holderOf(o) != next.UID {
		env.T.Errorf("claim %s is not locked for pod %s: %+v", claim, next.Name, o)
	}
}
