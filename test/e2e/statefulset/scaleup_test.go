//go:build unix

package statefulset

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// seedVariable repeats the delays of a run.
const seedVariable = "SEED"

// TestScaleUpWhileTheOldClaimIsGoing scales sets down and up again: after a random delay or, one of four, when the
// claim is going, however long that takes. Their pods take 2 seconds to end. What runs at the end has either an empty
// volume, or its old one with its data and nothing that deletes it.
func TestScaleUpWhileTheOldClaimIsGoing(t *testing.T) {
	suite.Deep(t, suite.WaitsForClock)
	t.Parallel()
	seed := rand.Uint64()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s=%d", seedVariable, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	env := newEnvironment(t)
	const rounds = 20
	var all []scenario
	var fresh atomic.Int32
	for n := range rounds {
		delay := time.Duration(random.Int64N(int64(2 * ending)))
		if n%5 == 0 {
			delay = 0
		}
		how := "OrderedReady"
		changes := []func(*appsv1.StatefulSet){slowly}
		if n%2 == 1 {
			how, changes = "Parallel", append(changes, parallel)
		}
		after, wait := delay.Round(time.Millisecond).String(), func(*set) { time.Sleep(delay) }
		if n%4 == 3 {
			after, wait = "the deletion of the claim", waitGoing
		}
		all = append(all, scenario{fmt.Sprintf("%d, %s, after %s", n, how, after), func(env *environment) {
			if scaleUpAfter(env, wait, changes...) {
				fresh.Add(1)
			}
		}})
	}
	env.run(all...)
	t.Logf("%d of %d pods got an empty volume", fresh.Load(), len(all))
	if fresh.Load() < rounds/4 {
		t.Error("too few sets were scaled up after their scale-down was noticed")
	}
}

// waitGoing waits until the claim of the pod that is scaled away is being deleted.
func waitGoing(s *set) {
	s.T.Helper()
	s.waitClaim(1, "going", func(claim *v1.PersistentVolumeClaim) bool {
		return claim == nil || claim.DeletionTimestamp != nil
	})
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
			claim.Annotations[markAnnotation] == s.mark(o, 1, onScaledown)
	})
}
