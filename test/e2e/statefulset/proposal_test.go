//go:build unix

package statefulset

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	suite.Deep(t, suite.Load)
	t.Parallel()
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
