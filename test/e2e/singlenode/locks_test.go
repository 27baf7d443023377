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
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// TestClaims runs pods with each kind of claim.
func TestClaims(t *testing.T) {
	t.Parallel()
	env := newProvisioningEnvironment(t)
	env.run([]scenario{
		{"a StatefulSet is rolled out", modeAll, testStatefulSet},
		{"a claim is bound at once", modeAll, testImmediate},
		{"an ephemeral volume", modeAll, testEphemeral},
		{"a claim is deleted under a pod that has its lock and no node", "", testDeletedWithLock},
		{"a claim that is not bound may be selected", modeSelect, testSelectedLate},
	},
		scenario{"many pods use several claims in all orders", modeAll, testOrders},
		scenario{"a claim is bound to a volume for the node of its pod", modeAll, testLate},
		scenario{"the claim of an ephemeral volume belongs to something else", modeAll, testForeignEphemeral},
		scenario{"a claim is created after its pod", modeAll, testMissing},
		scenario{"a claim is deleted and created again under a pod that waits for it", modeAll, testRecreated},
		scenario{"a namespace asks for selected claims", modeSelect, testSelected},
		scenario{"claims for many nodes are left alone", modeAll, testManyNodes},
	)
}

// testOrders creates pods that use two of three claims each, in both orders: each runs in the end, and is deleted then.
func testOrders(env *environment) {
	claims := []string{env.claim(), env.claim(), env.claim()}
	const rounds = 2
	left := 0
	for range rounds {
		for _, first := range claims {
			for _, second := range claims {
				if first != second {
					env.podWith([]string{first, second})
					left++
				}
			}
		}
	}
	env.Eventually("each pod has run", func() bool {
		for _, pod := range env.pods(isRunning) {
			env.Pods().Delete(pod.Name)
			left--
		}
		return left == 0
	})
	env.Eventually("no pod is left", func() bool { return len(env.pods(anyPod)) == 0 })
	for _, claim := range claims {
		env.waitFree(claim)
	}
}

// inTurn has two pods use a claim: the second runs when the first is gone.
func (env *environment) inTurn(claim string) {
	env.T.Helper()
	first := env.runningPod(claim)
	env.expectLocked(claim, first)
	second := env.pod(claim)
	env.waits(second, "ClaimInUse", claim, first.Name, "on node", "is not being deleted")
	env.remove(first)
	env.runs(second)
	env.expectLocked(claim, second)
	env.remove(second)
	env.waitFree(claim)
}

// together has two pods use a claim at the same time, which is not locked.
func (env *environment) together(claim string) {
	env.T.Helper()
	env.runningPod(claim)
	env.expectFree(claim)
	env.runningPod(claim)
	env.expectFree(claim)
}

func testImmediate(env *environment) { env.inTurn(env.provisioned(env.class).Name) }

func testLate(env *environment) {
	claim := env.provisioned(env.CreateStorageClass(fixture.WithWaitForFirstConsumer))
	env.inTurn(claim.Name)
	env.WaitBound(claim)
}

// withEphemeral gives a pod a generic ephemeral volume.
func (env *environment) withEphemeral(pod *v1.Pod) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, objects.EphemeralVolume("scratch", env.class))
}

// testEphemeral has a pod use an ephemeral volume beside a claim. Its claim goes with it.
func testEphemeral(env *environment) {
	claim := env.claim()
	first := env.runningPod(claim, env.withEphemeral)
	env.expectLocked(claim, first)
	env.expectLocked(first.Name+"-scratch", first)
	second := env.pod(claim, env.withEphemeral)
	env.waits(second, "ClaimInUse", claim, first.Name)
	env.remove(first)
	env.runs(second)
	env.waitClaimGone(first.Name + "-scratch")
	// The pod waits for its claim.
	env.Pods().Delete(second.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})
	env.Must(second.WaitGone(env.WithTimeout()))
	env.waitClaimGone(second.Name + "-scratch")
}

// testForeignEphemeral creates a claim with the name of an ephemeral volume's claim, before its pod.
func testForeignEphemeral(env *environment) {
	env.CreateClaim(env.class, func(spec *objects.ClaimSpec) { spec.Name = "user-scratch" })
	pod := env.CreatePod(objects.PodSpec{Name: "user", Change: func(pod *v1.Pod) {
		pod.Spec = podSpec()
		env.withEphemeral(pod)
	}})
	env.waits(pod, "ClaimOfOtherPod", "user-scratch")
	env.Claims().Delete("user-scratch")
	env.runs(pod)
	env.expectLocked("user-scratch", pod)
}

func testMissing(env *environment) {
	pod := env.pod("late")
	env.waits(pod, "ClaimMissing", "late")
	env.CreateClaim(env.class, func(spec *objects.ClaimSpec) { spec.Name = "late" })
	env.runs(pod)
	env.expectLocked("late", pod)
}

// testRecreated deletes a claim while a pod uses it and another waits. It is gone with the first, and the second waits
// for the next claim of that name.
func testRecreated(env *environment) {
	create := func() {
		env.CreateClaim(env.class, func(spec *objects.ClaimSpec) { spec.Name = "data" })
	}
	create()
	first := env.runningPod("data")
	second := env.pod("data")
	env.waits(second, "ClaimInUse")
	env.Claims().Delete("data")
	env.waits(second, "ClaimTerminating", "data")
	env.expectLocked("data", first)
	env.remove(first)
	env.waitClaimGone("data")
	env.waits(second, "ClaimMissing", "data")
	create()
	env.runs(second)
	env.expectLocked("data", second)
}

// testDeletedWithLock deletes a claim whose pod has its lock and no node, so kubernetes.io/pvc-protection does not keep
// it.
func testDeletedWithLock(env *environment) {
	kept, used, old, pod := env.lockedAndWaiting()
	uid := env.get(kept).UID
	env.Claims().Delete(kept)
	env.waits(pod, "ClaimTerminating", kept)
	env.remove(old)
	env.barrier()
	if now := env.get(kept); now == nil || now.UID != uid || holderOf(now) != pod.UID {
		env.T.Errorf("claim %s is gone while a pod has its lock: %+v", kept, now)
	}
	env.remove(pod)
	env.waitClaimGone(kept)
	env.waitFree(used)
}

// testSelected expects locks only for claims that ask for it themselves, or whose StorageClass or PV does.
func testSelected(env *environment) {
	asking := map[string]string{modeLabel: "true"}
	class := env.CreateStorageClass(func(class *objects.Class) {
		class.Change = func(o *storagev1.StorageClass) { o.Labels = asking }
	})
	for name, claim := range map[string]string{
		"claim": env.provisioned(env.class, func(o *v1.PersistentVolumeClaim) { o.Labels = asking }).Name,
		"class": env.provisioned(class).Name,
		"PV":    env.claim(func(pv *v1.PersistentVolume) { pv.Labels = asking }),
	} {
		env.T.Logf("%s asks", name)
		env.inTurn(claim)
	}
	bound := env.provisioned(env.class)
	env.WaitBound(bound)
	for _, claim := range []string{env.claim(), bound.Name} {
		env.together(claim)
	}
}

// testSelectedLate has a claim be bound for its first pod. It counts as asking before that, and not after.
func testSelectedLate(env *environment) {
	claim := env.provisioned(env.CreateStorageClass(fixture.WithWaitForFirstConsumer))
	first := env.runningPod(claim.Name)
	env.expectLocked(claim.Name, first)
	second := env.runningPod(claim.Name)
	env.remove(first)
	env.waitFree(claim.Name)
	env.remove(second)
}

// testManyNodes has pods share claims on purpose.
func testManyNodes(env *environment) {
	for _, mode := range []v1.PersistentVolumeAccessMode{v1.ReadWriteMany, v1.ReadOnlyMany} {
		claim := env.claimFor(mode)
		env.together(claim)
	}
	env.inTurn(env.claim()) // it is none of them
}

// claimFor creates a claim with an access mode, bound to a PV of that mode.
func (env *environment) claimFor(mode v1.PersistentVolumeAccessMode) string {
	env.T.Helper()
	return env.boundClaim(func(pv *v1.PersistentVolume) {
		pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{mode}
	})
}

// boundClaim creates a PV, and a claim that matches it.
func (env *environment) boundClaim(change func(*v1.PersistentVolume)) string {
	env.T.Helper()
	var spec v1.PersistentVolumeClaimSpec
	vol := env.MakeVolume(objects.Spec{Handle: "none", Unclaimed: true, Policy: v1.PersistentVolumeReclaimRetain,
		Change: func(pv *v1.PersistentVolume) {
			change(pv)
			pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: env.Namespace, Name: pv.Name}
			spec = objects.ClaimFor(pv.Spec.StorageClassName)
			spec.AccessModes, spec.VolumeName = pv.Spec.AccessModes, pv.Name
		}})
	o := env.Claims().Create(&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: vol.Name}, Spec: spec})
	env.WaitBound(env.ClaimOf(o))
	return o.Name
}

// In TestWorkloads, Kubernetes' controllers replace pods that use a claim.
func TestWorkloads(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.run([]scenario{
		{"a Deployment with strategy Recreate is rolled out", modeAll, testRecreate},
		{"the pod of a Job frees its claim once it has completed", modeAll, testJob},
		{"a fence that node-fencing has left keeps a claim in use", modeAll, testLeftFence},
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
	env.ReplicaSets().Create(&appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels("web")}, Template: tpl},
	})
	first := env.onePod("running", isRunning)
	m.lose()
	env.Pods().Delete(first.Name)
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
	env.Deployments().Create(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels("web")},
			Strategy: strategy, Template: template("web", claim)},
	})
	return claim, env.onePod("running", isRunning)
}

// waitRolledOut waits until the Deployment has nothing left to do.
func (env *environment) waitRolledOut() {
	env.T.Helper()
	env.onePod("running in its next version", runsNext)
	env.Eventually("the rollout has ended", func() bool {
		d := env.Deployments().Get("web")
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
	env.Deployments().Patch("web", nextVersion)
	env.waitRolledOut()
}

func testNoSurge(env *environment) {
	env.deployment(rolling(0, 1))
	env.Deployments().Patch("web", nextVersion)
	env.waitRolledOut()
}

// testSurge follows each piece of the Event's advice.
func testSurge(env *environment) {
	const noSurge = `{"spec":{"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}}}`
	const recreate = `{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}`
	for _, advice := range []string{noSurge, recreate} {
		claim, first := env.deployment(rolling(1, 0))
		env.Deployments().Patch("web", nextVersion)
		next := env.onePod("created in its next version", isNext)
		env.waitEvent(next.UID, "ClaimInUse", claim, first.Name, "strategy Recreate", "maxSurge: 0")
		env.onePod("running", isRunning)
		env.Deployments().Patch("web", advice)
		env.waitRolledOut()
		env.Deployments().Delete("web", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
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
			Spec: objects.ClaimFor(env.class)})
	}
	env.StatefulSets().Create(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](replicas), ServiceName: "db", Template: tpl,
			Selector: &metav1.LabelSelector{MatchLabels: labels("db")}, VolumeClaimTemplates: claims}})
	count := func(want func(*v1.Pod) bool) func() bool {
		return func() bool { return len(env.pods(want)) == replicas }
	}
	env.Eventually("the set runs", count(isRunning))
	env.StatefulSets().Patch("db", nextVersion)
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

// testJob has the pod of a Job complete: it stays, and its claim can be used after the time for the unmount.
func testJob(env *environment) {
	claim := env.claim()
	tpl := template("job", claim)
	tpl.Spec.RestartPolicy = v1.RestartPolicyNever
	env.Jobs().Create(&batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{Template: tpl},
	})
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

// testLeftFence has a pod complete on a node that a fence of volumes may keep from unmounting, while no node-fencing
// runs. The claim of a pod that completes later, elsewhere, is passed on.
func testLeftFence(env *environment) {
	fences, err := client.New(env.Plane.Admin())
	env.Must(err)
	m, claim, free := env.machine(), env.claim(), env.claim()
	once := func(pod *v1.Pod) { pod.Spec.RestartPolicy = v1.RestartPolicyNever }
	first, other := env.runningPod(claim, once, on(m.name)), env.runningPod(free, once)
	fence, err := fences.Fences.Create(env.Ctx, &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: m.name},
		Spec: v1alpha1.NodeFenceSpec{Reason: "test", Agents: []v1alpha1.Agent{{Name: "storage",
			Covers: v1alpha1.CoversVolumes, NetworkFence: &v1alpha1.NetworkFenceAgent{Driver: env.Driver,
				NetworkFenceClassName: "storage", Volumes: v1alpha1.VolumesAll}}}}},
		metav1.CreateOptions{})
	env.Must(err)
	fence.Status.Attempts = []v1alpha1.Attempt{{Number: 1, Agent: "storage", StartedAt: metav1.Now()}}
	_, err = fences.Fences.UpdateStatus(env.Ctx, fence, metav1.UpdateOptions{})
	env.Must(err)
	second, third := env.pod(claim), env.pod(free)
	env.waits(second, "ClaimInUse", claim, first.Name)
	for _, pod := range []*objects.Pod{first, other} {
		now, err := pod.Get(env.Ctx)
		env.Must(err)
		env.complete(now)
	}
	env.runs(third)
	env.expectLocked(claim, first)
	env.Must(fences.Fences.Delete(env.Ctx, fence.Name, metav1.DeleteOptions{}))
	env.runs(second)
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
