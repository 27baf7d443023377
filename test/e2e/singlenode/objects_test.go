//go:build unix

package singlenode

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/requests"
)

// podOf returns a pod that uses claims on one of the shared nodes.
func podOf(name string, claims ...string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: podSpec(claims...)}
}

func podSpec(claims ...string) v1.PodSpec {
	spec := v1.PodSpec{
		Containers:                    []v1.Container{{Name: "main", Image: "none"}},
		NodeSelector:                  map[string]string{poolLabel: "shared"},
		TerminationGracePeriodSeconds: ptr.To[int64](5),
	}
	for i, claim := range claims {
		spec.Volumes = append(spec.Volumes, objects.ClaimVolume(fmt.Sprintf("volume-%d", i), claim))
	}
	return spec
}

// create creates a pod.
func (env *environment) create(pod *v1.Pod) (created *v1.Pod, err error) {
	err = env.admitted(func() (err error) {
		created, err = env.Client.CoreV1().Pods(env.Namespace).Create(env.Ctx, pod, metav1.CreateOptions{})
		return err
	})
	return created, err
}

// admitted repeats a creation while a webhook does not answer within its seconds, as controllers do: on a busy machine
// it may not. Nothing is stored then.
func (env *environment) admitted(create func() error) error {
	ctx := env.WithTimeout()
	for {
		err := create()
		late := apierrors.IsInternalError(err) && strings.Contains(err.Error(), context.DeadlineExceeded.Error())
		if !late || ctx.Err() != nil {
			return err
		}
	}
}

// on has a pod run on one node.
func on(node string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{v1.LabelHostname: node} }
}

// pod creates a pod that uses a claim, and waits for nothing.
func (env *environment) pod(claim string, changes ...func(*v1.Pod)) *objects.Pod {
	env.T.Helper()
	return env.podWith([]string{claim}, changes...)
}

// podWith creates a pod that uses claims, and waits for nothing.
func (env *environment) podWith(claims []string, changes ...func(*v1.Pod)) *objects.Pod {
	env.T.Helper()
	spec := objects.PodSpec{Name: "pod-" + rand.String(8), Change: func(pod *v1.Pod) {
		pod.Spec = podSpec(claims...)
		for _, change := range changes {
			change(pod)
		}
	}}
	var pod *objects.Pod
	env.Must(env.admitted(func() (err error) {
		pod, err = env.MakePod(env.Ctx, spec)
		return err
	}))
	return pod
}

// runs waits until a pod runs.
func (env *environment) runs(pods ...*objects.Pod) {
	env.T.Helper()
	for _, pod := range pods {
		if _, err := pod.WaitRunning(env.WithTimeout()); err != nil {
			env.T.Fatalf("%v; its Events: %q", err, env.events(pod.UID, ""))
		}
	}
}

// runningPod creates a pod that uses a claim, and waits until it runs.
func (env *environment) runningPod(claim string, changes ...func(*v1.Pod)) *objects.Pod {
	env.T.Helper()
	pod := env.pod(claim, changes...)
	env.runs(pod)
	return pod
}

// waits waits until volume-guard has said why a pod keeps its gate, and checks that it does.
func (env *environment) waits(pod *objects.Pod, reason string, texts ...string) {
	env.T.Helper()
	env.waitEvent(pod.UID, reason, texts...)
	now, err := pod.Get(env.Ctx)
	env.Must(err)
	if now == nil || !isGated(now) {
		env.T.Errorf("pod %s does not wait: %+v", pod.Name, now)
	}
}

func (env *environment) waitEvent(pod types.UID, reason string, texts ...string) {
	env.T.Helper()
	env.WaitEvent(v1.ObjectReference{UID: pod}, reason, texts...)
}

// events returns the messages of a pod's Events, with a reason or all.
func (env *environment) events(pod types.UID, reason string) (messages []string) {
	env.T.Helper()
	for _, e := range env.Events(v1.ObjectReference{UID: pod}, reason) {
		messages = append(messages, e.Reason+": "+e.Message)
	}
	return messages
}

// remove deletes pods, and waits until they are gone.
func (env *environment) remove(pods ...*objects.Pod) {
	env.T.Helper()
	for _, pod := range pods {
		env.Must(pod.Delete(env.Ctx))
	}
	for _, pod := range pods {
		env.Must(pod.WaitGone(env.WithTimeout()))
	}
}

// deletePod deletes exactly this pod, with its grace period.
func (env *environment) deletePod(pod *v1.Pod) error {
	return env.Pods().TryDelete(pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
}

// forceDelete deletes a pod without grace.
func (env *environment) forceDelete(pod *objects.Pod) error {
	return env.Pods().TryDelete(pod.Name,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
}

// evictionOf returns the request of kubectl drain.
func evictionOf(pod string) *policyv1.Eviction {
	return &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod}}
}

// confirm confirms by hand that the processes of a pod cannot run.
func (env *environment) confirm(pod *objects.Pod) {
	env.T.Helper()
	env.Pods().Annotate(pod.Name, confirmation, string(pod.UID))
}

// removeGate removes a pod's gate by hand.
func (env *environment) removeGate(pod string) error {
	_, err := env.Pods().TryPatch(pod, fmt.Sprintf(`{"spec":{"schedulingGates":[{"$patch":"delete","name":%q}]}}`, gate))
	return err
}

// complete reports, as the kubelet of its node, that the containers of a pod have ended by themselves.
func (env *environment) complete(pod *v1.Pod) {
	env.T.Helper()
	config, err := env.Plane.ConfigFor(fakenode.User(pod.Spec.NodeName), fakenode.Group)
	env.Must(err)
	kubelet, err := kubernetes.NewForConfig(config)
	env.Must(err)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": v1.PodStatus{
		Phase: v1.PodSucceeded, ContainerStatuses: []v1.ContainerStatus{{Name: "main", Image: "none", ImageID: "none",
			State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed", FinishedAt: metav1.Now()}}}},
		Conditions: []v1.PodCondition{{Type: v1.ContainersReady, Status: v1.ConditionFalse, Reason: "PodCompleted",
			ObservedGeneration: pod.Generation}},
	}})
	env.Must(err)
	// The state is a union: the fields of its last value are removed by name.
	text := strings.Replace(string(patch), `"state":{`, `"state":{"running":null,`, 1)
	_, err = kubelet.CoreV1().Pods(pod.Namespace).Patch(env.Ctx, pod.Name, types.StrategicMergePatchType, []byte(text),
		metav1.PatchOptions{}, "status")
	env.Must(err)
}

// pods returns the pods of the namespace that are as wanted.
func (env *environment) pods(want func(*v1.Pod) bool) []*v1.Pod {
	env.T.Helper()
	return slices.DeleteFunc(env.Pods().List(), func(pod *v1.Pod) bool { return !want(pod) })
}

func anyPod(*v1.Pod) bool { return true }

func isRunning(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodRunning && pod.DeletionTimestamp == nil && !isGated(pod)
}

// onePod waits until one pod is as wanted, and returns it.
func (env *environment) onePod(what string, want func(*v1.Pod) bool) (pod *v1.Pod) {
	env.T.Helper()
	env.Eventually("one pod is "+what, func() bool {
		pods := env.pods(want)
		if len(pods) == 1 {
			pod = pods[0]
		}
		return len(pods) == 1
	})
	return pod
}

// deleteAll deletes all that uses claims in the namespace, and the claims, and waits until everything is gone. Where no
// lock nor finalizer is left behind, that ends.
func (env *environment) deleteAll() {
	env.T.Helper()
	background := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	apps, core, all := env.Client.AppsV1(), env.Client.CoreV1(), metav1.ListOptions{}
	env.Must(apps.Deployments(env.Namespace).DeleteCollection(env.Ctx, background, all))
	env.Must(apps.ReplicaSets(env.Namespace).DeleteCollection(env.Ctx, background, all))
	env.Must(apps.StatefulSets(env.Namespace).DeleteCollection(env.Ctx, background, all))
	env.Must(env.Client.BatchV1().Jobs(env.Namespace).DeleteCollection(env.Ctx, background, all))
	gone(env, "pods", func() []*v1.Pod {
		left := env.Pods().List()
		for _, pod := range left {
			if pod.DeletionTimestamp == nil {
				env.Must(ignoreNotFound(env.Pods().TryDelete(pod.Name)))
			}
		}
		return left
	})
	env.Must(core.PersistentVolumeClaims(env.Namespace).DeleteCollection(env.Ctx, metav1.DeleteOptions{}, all))
	gone(env, "claims", func() []*v1.PersistentVolumeClaim { return env.Claims().List() })
}

// gone waits until no object is left, and reports the ones that are.
func gone[T any](env *environment, what string, left func() []*T) {
	env.T.Helper()
	var now []*T
	if !env.Happens(func() bool { now = left(); return len(now) == 0 }) {
		text, _ := json.Marshal(now)
		env.T.Fatalf("%d %s are left: %s", len(now), what, text)
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// claim creates a claim that is bound to a volume that is there, as an administrator's PVs for NFS are. change, which
// may be nil, alters the PV.
func (env *environment) claim(change ...func(*v1.PersistentVolume)) string {
	env.T.Helper()
	vol := env.MakeVolume(objects.Spec{Handle: "none-" + rand.String(8), Policy: v1.PersistentVolumeReclaimRetain,
		Change: func(pv *v1.PersistentVolume) {
			for _, change := range change {
				change(pv)
			}
		}})
	return vol.ClaimName
}

// provisioned creates a claim of a class, and waits for nothing.
func (env *environment) provisioned(class string, changes ...func(*v1.PersistentVolumeClaim)) *objects.Claim {
	env.T.Helper()
	return env.CreateClaim(class, func(spec *objects.ClaimSpec) {
		spec.Change = func(claim *v1.PersistentVolumeClaim) {
			for _, change := range changes {
				change(claim)
			}
		}
	})
}

// get returns a claim, or nil if it is gone.
func (env *environment) get(claim string) *v1.PersistentVolumeClaim {
	env.T.Helper()
	return env.Claims().Find(claim)
}

// expectLocked checks that a pod has the lock of a claim.
func (env *environment) expectLocked(claim string, pod *objects.Pod) {
	env.T.Helper()
	o := env.get(claim)
	if want := string(pod.UID) + " " + pod.Name; o == nil || o.Annotations[lockAnnotation] != want || !isKept(o) {
		env.T.Errorf("claim %s is not locked for pod %q: %+v", claim, want, o)
	}
}

// expectFree checks that a claim has no lock.
func (env *environment) expectFree(claim string) {
	env.T.Helper()
	if o := env.get(claim); o == nil || isLocked(o) {
		env.T.Errorf("claim %s is locked, or gone: %+v", claim, o)
	}
}

func isLocked(claim *v1.PersistentVolumeClaim) bool {
	_, locked := claim.Annotations[lockAnnotation]
	return locked || isKept(claim)
}

// waitFree waits until a claim has no lock.
func (env *environment) waitFree(claim string) {
	env.T.Helper()
	env.Eventually("claim "+claim+" is free", func() bool { return !isLocked(env.get(claim)) })
}

func (env *environment) waitClaimGone(claim string) {
	env.T.Helper()
	env.Eventually("claim "+claim+" is gone", func() bool { return env.get(claim) == nil })
}

// forge writes a lock to a claim by hand, or removes it for "".
func (env *environment) forge(claim, lock string) error {
	_, err := env.Claims().TryMerge(claim, requests.Annotation(lockAnnotation, lock))
	return err
}

// expectRefused checks that a policy of this name has refused a request.
func (env *environment) expectRefused(err error, policy string) {
	env.T.Helper()
	if err == nil || !strings.Contains(err.Error(), policy) {
		env.T.Errorf("policy %s has not refused the request: %v", policy, err)
	}
}

// waitClaimEvent waits until something was reported on a claim.
func (env *environment) waitClaimEvent(claim, reason string, texts ...string) {
	env.T.Helper()
	env.waitEvent(env.get(claim).UID, reason, texts...)
}
