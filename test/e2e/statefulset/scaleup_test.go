//go:build unix

package statefulset

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

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
	suite.Deep(t, suite.Load)
	t.Parallel()
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
