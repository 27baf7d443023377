//go:build unix

package statefulset

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// line is one of the test plan of KEP-1847, in its words.
type line struct {
	words string
	play  func(*set, policy)
}

// proposed are the lines of all the proposal's policies. The numbers are from DeleteOnScaledownOnly.
var proposed = []line{
	{"1. scale to 1 pod", scaleDown},
	{"2. add data to PVs, scale to 1 pod, scale back to 2", scaleDownAndUp},
	{"3. delete stateful set", deleteSet},
	{"4. add data to PVs, manually delete one pod", deleteOnePod},
	{"5. manually delete all pods in stateful set", deleteAllPods},
	{"6. manually delete one pod, immediately scale down to one pod", deletePodAndScaleDown},
	{"7. manually delete one pod, immediately scale down to one pod, scale back to two pods", deletePodAndScale},
	{"8. add data to PVs, perform rolling update", rollingUpdate},
	{"--cascade=false", deleteWithoutCascade},
}

// TestProposal plays each line of the proposal's test plan with each of its policies.
//
// The proposal has the claims of DeleteOnScaledownOnly deleted with the set (line 3), while its text has them retained:
// "When the StatefulSet itself is deleted, no ownerRefs are added ... PVCs are retained". Kubernetes retains them, and
// so does volume-guard.
func TestProposal(t *testing.T) {
	fixture.Begin(t, suite.Load)
	env := newEnvironment(t)
	var all []scenario
	for _, p := range policies {
		for _, l := range proposed {
			all = append(all, scenario{p.name + " " + l.words, func(env *environment) {
				l.play(env.runningSet(2, p.policy), p.policy)
			}})
		}
	}
	env.run(nil, all...)
}

func scaleDown(s *set, p policy) {
	first, second := s.write(0), s.write(1)
	s.scale(1)
	s.waitPods(0, 1)
	s.expectKept(first)
	if p.WhenScaled == remove {
		s.expectDeleted(second)
		return
	}
	s.expectKept(second)
}

// scaleDownAndUp scales back as soon as the claim is terminating, because a claim whose pod has ended before it got an
// owner is kept within the grace. It waits for the end of the claim before it looks for the new one: where Kubernetes
// does not have the policy, a pod can be created for the old claim, and is deleted with it.
func scaleDownAndUp(s *set, p policy) {
	first, second := s.write(0), s.write(1)
	s.scale(1)
	s.waitPods(0, 1)
	if p.WhenScaled == remove {
		s.waitClaim(1, "going", func(claim *v1.PersistentVolumeClaim) bool {
			return claim == nil || claim.DeletionTimestamp != nil || owner(claim, "Pod") != nil
		})
	}
	s.scale(2)
	s.expectKept(first)
	if p.WhenScaled == remove {
		s.expectDeleted(second)
		s.waitPods(0, 2)
		s.expectEmpty(1, second)
		return
	}
	s.waitPods(0, 2)
	s.expectKept(second)
}

func deleteSet(s *set, p policy) {
	first, second := s.write(0), s.write(1)
	s.delete(metav1.DeletePropagationBackground)
	s.waitGone()
	s.waitPods(0, 0)
	if p.WhenDeleted == remove {
		s.expectDeleted(first, second)
		return
	}
	s.expectKept(first, second)
}

func deleteOnePod(s *set, _ policy) {
	first, second := s.write(0), s.write(1)
	s.waitPods(0, 2, s.deletePod(1))
	s.expectKept(first, second)
}

func deleteAllPods(s *set, _ policy) {
	first, second := s.write(0), s.write(1)
	s.waitPods(0, 2, s.deletePod(0), s.deletePod(1))
	s.expectKept(first, second)
}

func deletePodAndScaleDown(s *set, p policy) {
	first, second := s.write(0), s.write(1)
	s.deletePod(1)
	s.scale(1)
	s.waitPods(0, 1)
	s.expectKept(first)
	if p.WhenScaled == remove {
		s.expectDeleted(second)
		return
	}
	s.expectKept(second)
}

// deletePodAndScale waits for the end of the claim before it scales back: within the grace, its data is kept.
func deletePodAndScale(s *set, p policy) {
	first, second := s.write(0), s.write(1)
	s.deletePod(1)
	s.scale(1)
	s.waitPods(0, 1)
	if p.WhenScaled == remove {
		s.expectDeleted(second)
	}
	s.scale(2)
	s.waitPods(0, 2)
	s.expectKept(first)
	if p.WhenScaled == remove {
		s.expectEmpty(1, second)
		return
	}
	s.expectKept(second)
}

func rollingUpdate(s *set, _ policy) {
	first, second := s.write(0), s.write(1)
	var old []types.UID
	for _, pod := range s.pods() {
		old = append(old, pod.UID)
	}
	s.patch(`{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`)
	s.waitPods(0, 2, old...)
	s.expectKept(first, second)
}

// deleteWithoutCascade deletes the set alone, then a pod, and creates the set again, which adopts the other pod.
func deleteWithoutCascade(s *set, p policy) {
	first, second := s.write(0), s.write(1)
	s.delete(metav1.DeletePropagationOrphan)
	s.waitGone()
	s.expectKept(first, second)
	s.deletePod(1)
	s.waitPods(0, 1)
	s.expectKept(first, second)
	again := s.runningSet(2, p)
	again.expectKept(first, second)
	again.scale(1)
	again.waitPods(0, 1)
	if p.WhenScaled == remove {
		s.kept.remove(second)
		s.expectDeleted(second)
	}
}

// step is how far a scale-down has come, at least, when the set is scaled up again.
type step struct {
	name string
	wait func(*set)
	// fresh means that the claim is deleted by then, so that the pod must get an empty volume. Before, it may get either.
	fresh bool
}

func scaleDownSteps() []step {
	return []step{
		{"nothing", func(*set) {}, false},
		{"the StatefulSet controller has seen it", waitObserved, false},
		{"the claim is condemned", waitCondemned, false},
		{"the pod ends", waitEnding, false},
		{"the pod has ended", waitEnded, false},
		{"the claim is going", waitGoing, true},
		{"the claim is gone", waitClaimGone, true},
	}
}

// TestScaleUpWhileTheOldClaimIsGoing scales sets down, and up again after each step of the scale-down. Their pods take
// 2 seconds to end. At the end, each pod has either an empty volume, or its old volume with its data, which nothing is
// about to delete.
func TestScaleUpWhileTheOldClaimIsGoing(t *testing.T) {
	fixture.Begin(t, suite.Load)
	env := newEnvironment(t)
	var all []scenario
	for how, changes := range map[string][]func(*appsv1.StatefulSet){
		"OrderedReady": {slowly}, "Parallel": {slowly, parallel},
	} {
		for _, step := range scaleDownSteps() {
			all = append(all, scenario{how + ", after: " + step.name, func(env *environment) {
				if fresh := scaleUpAfter(env, step.wait, changes...); step.fresh && !fresh {
					env.T.Error("the claim was going, and the pod has its old volume")
				}
			}})
		}
	}
	env.run(nil, all...)
}

func waitObserved(s *set) {
	s.T.Helper()
	s.Eventually("the scale-down is observed", func() bool {
		o := s.object()
		return o.Status.ObservedGeneration == o.Generation
	})
}

// waitCondemned waits until the pod that is scaled away owns its claim.
func waitCondemned(s *set) {
	s.T.Helper()
	s.waitClaim(1, "condemned", func(claim *v1.PersistentVolumeClaim) bool {
		return claim == nil || owner(claim, "Pod") != nil
	})
}

func waitEnding(s *set) {
	s.T.Helper()
	s.Eventually("the pod ends", func() bool {
		pod := s.pods()[s.podName(1)]
		return pod == nil || pod.DeletionTimestamp != nil
	})
}

func waitEnded(s *set) {
	s.T.Helper()
	s.Eventually("the pod has ended", func() bool { return s.pods()[s.podName(1)] == nil })
}

// waitGoing waits until the claim of the pod that is scaled away is being deleted.
func waitGoing(s *set) {
	s.T.Helper()
	s.waitClaim(1, "going", func(claim *v1.PersistentVolumeClaim) bool {
		return claim == nil || claim.DeletionTimestamp != nil
	})
}

func waitClaimGone(s *set) {
	s.T.Helper()
	s.waitClaim(1, "gone", func(claim *v1.PersistentVolumeClaim) bool { return claim == nil })
}

// scaleUpAfter plays one round, and reports whether the pod got an empty volume.
func scaleUpAfter(env *environment, wait func(*set), changes ...func(*appsv1.StatefulSet)) (fresh bool) {
	s := env.runningSet(2, onScaledown, changes...)
	first, second := s.write(0), s.write(1)
	s.scale(1)
	wait(s)
	claim := s.claim(1)
	going := claim == nil || claim.DeletionTimestamp != nil
	began := time.Now()
	s.scale(2)
	s.waitSettled()
	took := time.Since(began).Round(100 * time.Millisecond)
	s.expectKept(first)
	if s.claim(1).UID != second.claim.UID {
		s.expectEmpty(1, second)
		s.expectDeleted(second)
		s.expectKept(s.write(1))
		s.T.Logf("the pod has an empty volume, %s after the scale-up", took)
		return true
	}
	if going {
		s.T.Error("WRONG REUSE: the claim was going, and the new pod has it")
	}
	s.expectKept(second)
	s.T.Logf("the pod has its old volume, with its data, %s after the scale-up", took)
	return false
}

// waitSettled waits until both pods run with claims that nothing is about to delete: the StatefulSet controller has
// acted on the scale-up, so that it does nothing of the scale-down any more.
func (s *set) waitSettled() {
	s.T.Helper()
	s.Eventually("both pods run, with claims that stay", func() bool {
		o := s.object()
		claim := s.claim(1)
		pod := s.pods()[s.podName(1)]
		return o.Status.ObservedGeneration == o.Generation && pod != nil && isReady(pod) && len(s.pods()) == 2 &&
			claim != nil && claim.DeletionTimestamp == nil && owner(claim, "Pod") == nil &&
			claim.Annotations[markAnnotation] == s.mark(o, 1, onScaledown, claim.UID)
	})
}
