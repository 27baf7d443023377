//go:build unix

package singlenode

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
			env.Must(env.Client.CoreV1().Pods(env.Namespace).Delete(env.Ctx, pod.Name, metav1.DeleteOptions{}))
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
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{
		Ephemeral: &v1.EphemeralVolumeSource{VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{
			Spec: env.claimSpec(env.class)}}}})
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
	foreground := metav1.DeletePropagationForeground
	env.Must(env.Client.CoreV1().Pods(env.Namespace).Delete(env.Ctx, second.Name,
		metav1.DeleteOptions{PropagationPolicy: &foreground}))
	env.Must(second.WaitGone(env.WithTimeout()))
	env.waitClaimGone(second.Name + "-scratch")
}

// testForeignEphemeral creates a claim with the name of an ephemeral volume's claim, before its pod.
func testForeignEphemeral(env *environment) {
	env.CreateClaim(env.class, func(spec *objects.ClaimSpec) { spec.Name = "user-scratch" })
	pod, err := env.MakePod(env.Ctx, objects.PodSpec{Name: "user", Change: func(pod *v1.Pod) {
		pod.Spec = podSpec()
		env.withEphemeral(pod)
	}})
	env.Must(err)
	env.waits(pod, "ClaimOfOtherPod", "user-scratch")
	env.deleteClaim("user-scratch")
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
	env.deleteClaim("data")
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
	env.deleteClaim(kept)
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
			spec = env.claimSpec(pv.Spec.StorageClassName)
			spec.AccessModes, spec.VolumeName = pv.Spec.AccessModes, pv.Name
		}})
	o, err := env.Client.CoreV1().PersistentVolumeClaims(env.Namespace).Create(env.Ctx,
		&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: vol.Name}, Spec: spec}, metav1.CreateOptions{})
	env.Must(err)
	env.WaitBound(env.ClaimOf(o))
	return o.Name
}
