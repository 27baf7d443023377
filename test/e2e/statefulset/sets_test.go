//go:build unix

package statefulset

import (
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// The names of the API that volume-guard reads and writes.
const (
	policyAnnotation = "csi-reclaimer.io/claim-retention"
	graceAnnotation  = "csi-reclaimer.io/scale-down-grace"
	holdAnnotation   = "csi-reclaimer.io/hold"
	markAnnotation   = "csi-reclaimer.io/statefulset"
	wokenAnnotation  = "csi-reclaimer.io/woken"
)

// The words of a policy.
const (
	retain = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	remove = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
)

// policy decides the fate of the claims of a deleted set, and of replicas that are scaled away.
type policy = appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy

// The policies by their names in KEP-1847.
var (
	onScaledown   = policy{WhenDeleted: retain, WhenScaled: remove}
	onSetDeletion = policy{WhenDeleted: remove, WhenScaled: retain}
	onBoth        = policy{WhenDeleted: remove, WhenScaled: remove}
	keepAll       = policy{WhenDeleted: retain, WhenScaled: retain}

	policies = []struct {
		name string
		policy
	}{
		{"DeleteOnScaledownOnly", onScaledown},
		{"DeleteOnStatefulSetDeletionOnly", onSetDeletion},
		{"DeleteOnScaledownAndStatefulSetDeletion", onBoth},
		{"Retain", keepAll},
	}
)

// set is a StatefulSet.
type set struct {
	*environment
	name string
}

// makeSet creates a StatefulSet of so many replicas with one volume each, and waits for nothing.
func (env *environment) makeSet(name string, replicas int32, p policy, changes ...func(*appsv1.StatefulSet)) *set {
	env.T.Helper()
	labels := map[string]string{"app": name}
	o := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: name,
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: v1.PodSpec{
				Containers:                    []v1.Container{{Name: "main", Image: "none"}},
				NodeSelector:                  map[string]string{v1.LabelHostname: node},
				TerminationGracePeriodSeconds: ptr.To[int64](1),
			}},
			VolumeClaimTemplates: []v1.PersistentVolumeClaim{env.template("data")},
		},
	}
	if env.field {
		o.Spec.PersistentVolumeClaimRetentionPolicy = &p
	} else {
		o.Annotations[policyAnnotation] = annotated(p)
	}
	for _, change := range changes {
		change(o)
	}
	env.StatefulSets().Create(o)
	return &set{environment: env, name: name}
}

func annotated(p policy) string {
	return fmt.Sprintf(`{"whenDeleted":%q,"whenScaled":%q}`, p.WhenDeleted, p.WhenScaled)
}

// template is a volumeClaimTemplate of that name.
func (env *environment) template(name string) v1.PersistentVolumeClaim {
	return v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       objects.ClaimFor(env.class),
	}
}

// parallel has a set create and delete its pods side by side.
func parallel(o *appsv1.StatefulSet) { o.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }

// slowly has pods take some time to end.
func slowly(o *appsv1.StatefulSet) { o.Spec.Template.Spec.NodeSelector[v1.LabelHostname] = slowNode }

// withAnnotation gives a set an annotation.
func withAnnotation(key, value string) func(*appsv1.StatefulSet) {
	return func(o *appsv1.StatefulSet) { o.Annotations[key] = value }
}

// withoutPolicy removes the policy, as in sets of users who do not know it.
func withoutPolicy(o *appsv1.StatefulSet) {
	o.Spec.PersistentVolumeClaimRetentionPolicy = nil
	delete(o.Annotations, policyAnnotation)
}

// runningSet creates a set and waits until its pods run and all that its policy needs is written to its claims.
func (env *environment) runningSet(replicas int32, p policy, changes ...func(*appsv1.StatefulSet)) *set {
	env.T.Helper()
	s := env.makeSet("web", replicas, p, changes...)
	start := 0
	if ordinals := s.object().Spec.Ordinals; ordinals != nil {
		start = int(ordinals.Start)
	}
	s.waitPods(start, int(replicas))
	s.waitPrepared(p)
	return s
}

// object returns the current set, or nil.
func (s *set) object() *appsv1.StatefulSet {
	s.T.Helper()
	return s.StatefulSets().Find(s.name)
}

// patch changes the set.
func (s *set) patch(merge string) {
	s.T.Helper()
	s.StatefulSets().Merge(s.name, merge)
}

// scale changes the number of replicas.
func (s *set) scale(replicas int) {
	s.T.Helper()
	s.patch(fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// setPolicy changes the policy.
func (s *set) setPolicy(p policy) {
	s.T.Helper()
	if s.field {
		s.patch(`{"spec":{"persistentVolumeClaimRetentionPolicy":` + annotated(p) + `}}`)
		return
	}
	s.annotate(policyAnnotation, annotated(p))
}

// annotate sets an annotation, or removes it if the value is empty.
func (s *set) annotate(key, value string) {
	s.T.Helper()
	s.StatefulSets().Annotate(s.name, key, value)
}

// quoted is a text in JSON.
func quoted(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// delete deletes the set.
func (s *set) delete(how metav1.DeletionPropagation) {
	s.T.Helper()
	s.StatefulSets().Delete(s.name, metav1.DeleteOptions{PropagationPolicy: &how})
}

// waitGone waits until the set is gone.
func (s *set) waitGone() {
	s.T.Helper()
	s.Eventually("the set is gone", func() bool { return s.object() == nil })
}

// waitSynced waits until the StatefulSet controller has acted on the spec, with so many pods left.
func (s *set) waitSynced(replicas int) {
	s.T.Helper()
	s.Eventually("the set is synced", func() bool {
		o := s.object()
		return o.Status.ObservedGeneration == o.Generation && int(o.Status.Replicas) == replicas
	})
}

// pods returns the pods of the set by name.
func (s *set) pods() map[string]*v1.Pod {
	s.T.Helper()
	pods := map[string]*v1.Pod{}
	for _, pod := range s.Pods().List("app=" + s.name) {
		pods[pod.Name] = pod
	}
	return pods
}

func (s *set) podName(ordinal int) string { return fmt.Sprintf("%s-%d", s.name, ordinal) }

// waitPods waits until the set has exactly the ready pods of replicas ordinals from start on, and none of them is in
// old.
func (s *set) waitPods(start, replicas int, old ...types.UID) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("%d pods from ordinal %d on run", replicas, start), func() bool {
		pods := s.pods()
		for n := start; n < start+replicas; n++ {
			if pod := pods[s.podName(n)]; pod == nil || !isReady(pod) || slices.Contains(old, pod.UID) {
				return false
			}
		}
		return len(pods) == replicas
	})
}

func isReady(pod *v1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase == v1.PodRunning &&
		slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
		})
}

// deletePod deletes a pod by hand, and returns its UID.
func (s *set) deletePod(ordinal int) types.UID {
	s.T.Helper()
	pod := s.Pods().Get(s.podName(ordinal))
	s.Pods().Delete(pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	return pod.UID
}

// endsLate is a finalizer of the tests' own, which keeps pods and claims.
const endsLate = "test.csi-reclaimer.io/ends-late"

// hold keeps a pod from its end until unhold, so that the earlier events have enough time.
func (s *set) hold(ordinal int) {
	s.T.Helper()
	s.Pods().SetFinalizers(s.podName(ordinal), endsLate)
}

func (s *set) unhold(ordinal int) {
	s.T.Helper()
	s.Pods().SetFinalizers(s.podName(ordinal))
}

// setFirstReady reports as the kubelet whether the first pod is ready.
func (s *set) setFirstReady(ready bool) {
	s.T.Helper()
	status := v1.ConditionFalse
	if ready {
		status = v1.ConditionTrue
	}
	s.Pods().Patch(s.podName(0), fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status),
		"status")
}

// losePod deletes the pod of the last of some replicas by hand, and it is not replaced: with OrderedReady, the
// StatefulSet controller creates no pod while one before it is not ready.
func (s *set) losePod(ordinal int) {
	s.T.Helper()
	s.setFirstReady(false)
	s.Eventually("the set has noticed that its first pod is not ready", func() bool {
		return s.object().Status.ReadyReplicas < s.object().Status.Replicas
	})
	s.deletePod(ordinal)
	s.Eventually("the pod is gone", func() bool { return s.pods()[s.podName(ordinal)] == nil })
}

// claim returns the current claim of an ordinal, or nil.
func (s *set) claim(ordinal int) *v1.PersistentVolumeClaim {
	s.T.Helper()
	return s.claimNamed(s.claimName(ordinal))
}

func (s *set) claimName(ordinal int) string { return fmt.Sprintf("data-%s-%d", s.name, ordinal) }

func (env *environment) claimNamed(name string) *v1.PersistentVolumeClaim {
	env.T.Helper()
	return env.Claims().Find(name)
}

// owner returns the reference of a claim to an object of a kind, nil for none.
func owner(claim *v1.PersistentVolumeClaim, kind string) *metav1.OwnerReference {
	for i, ref := range claim.OwnerReferences {
		if ref.Kind == kind {
			return &claim.OwnerReferences[i]
		}
	}
	return nil
}

// waitPrepared waits until the claims of all replicas have the marks and owners that a policy needs on claims in use.
func (s *set) waitPrepared(p policy) {
	s.T.Helper()
	o := s.object()
	marked := p.WhenScaled == remove || !s.field && p.WhenDeleted == remove
	start := 0
	if o.Spec.Ordinals != nil {
		start = int(o.Spec.Ordinals.Start)
	}
	for n := start; n < start+int(*o.Spec.Replicas); n++ {
		s.waitClaim(n, "as the policy has it", func(claim *v1.PersistentVolumeClaim) bool {
			if claim == nil {
				return false
			}
			mark := ""
			if marked {
				mark = s.mark(o, n, p, claim.UID)
			}
			ref := owner(claim, "StatefulSet")
			return owner(claim, "Pod") == nil && (ref != nil) == (p.WhenDeleted == remove) &&
				(ref == nil || ref.UID == o.UID) && claim.Annotations[markAnnotation] == mark
		})
	}
}

// mark returns the mark of an ordinal's claim with a pod.
func (s *set) mark(o *appsv1.StatefulSet, ordinal int, p policy, claim types.UID) string {
	return fmt.Sprintf("%s/%s/%d/%s/%s", s.name, o.UID, ordinal, p.WhenScaled, claim)
}

// waitClaim waits until the claim of an ordinal is as wanted; want gets nil for none.
func (s *set) waitClaim(ordinal int, what string, want func(*v1.PersistentVolumeClaim) bool) {
	s.T.Helper()
	var last *v1.PersistentVolumeClaim
	defer func() {
		if s.T.Failed() && last != nil {
			s.T.Logf("claim %s: annotations %v, owners %+v, deleted %v", last.Name, last.Annotations, last.OwnerReferences,
				last.DeletionTimestamp)
		}
	}()
	s.Must(s.WaitClaimNamed(s.WithTimeout(), s.claimName(ordinal), what, func(now *v1.PersistentVolumeClaim) bool {
		last = now
		return want(now)
	}))
}

// waitOwnedByPod waits until the pod of an ordinal owns its claim.
func (s *set) waitOwnedByPod(ordinal int) {
	s.T.Helper()
	s.waitClaim(ordinal, "owned by its pod", func(claim *v1.PersistentVolumeClaim) bool {
		return owner(claim, "Pod") != nil
	})
}

// waitEvent waits for an Event about an object with a reason and a text.
func (env *environment) waitEvent(kind, name, reason, text string) {
	env.T.Helper()
	env.WaitEvent(v1.ObjectReference{Kind: kind, Name: name}, reason, text)
}

// barrier returns once volume-guard could have deleted all claims that are condemned by now: it has deleted a claim
// that was condemned later, after the same grace.
func (env *environment) barrier() {
	env.T.Helper()
	other := *env
	other.Environment = env.InOtherNamespace()
	s := other.runningSet(2, onScaledown)
	d := s.write(1)
	s.losePod(1)
	s.scale(1)
	s.expectDeleted(d)
}
