package singlenode

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
)

// script plays moves, one after the other.
type script struct {
	*worker
	modeltest.Script[state, move, *transition]
}

func begin(t *testing.T, w World) *script {
	w.complete()
	w.Budget = Budget{Delete: 2, Foreground: 1, Force: 1, Confirm: 1, Ungate: 1, Preset: 1, DeleteClaim: 1, Recreate: 1,
		Cut: 1, Heal: 1, Reboot: 1, Fence: 1, Unfence: 1, End: 1, Turn: 2, Crash: 1, Late: 1}
	k := newWorker(&w)
	return &script{k, modeltest.NewScript(t, &k.Plain)}
}

// then makes a move for each verb, of the first object for which it is possible.
func (s *script) then(verbs ...verb) *script {
	s.T.Helper()
	s.InTurn(verbs...)
	return s
}

// of makes a move for each verb, of one pod or claim.
func (s *script) of(on int, verbs ...verb) *script {
	s.T.Helper()
	for _, v := range verbs {
		s.Then(v, func(m move) bool { return m.verb == v && m.on == on })
	}
	return s
}

// guardActs lets volume-guard do all work that is due, with unlimited time.
func (s *script) guardActs() *script {
	s.T.Helper()
	s.All(append([]verb{processStarts, watchShowsNamespace, watchShowsFence, watchShowsPod, watchShowsClaim, workerBegins,
		workerBeginsLock, unmountGraceEnds, pauseEnds}, callAnswered...)...)
	return s
}

// waits checks that the second pod waits for a reason.
func (s *script) waits(reason singlenode.Reason) *script {
	s.T.Helper()
	const slot = 1
	if d, waits := s.polled(&s.Now, 0, slot); !s.Now.pods[slot].gated || !waits || d.Reason != reason {
		s.T.Errorf("pod %d waits %t (%s), want %s\n%s", slot, waits, d.Reason, reason, &s.Script)
	}
	return s
}

// canBeScheduled checks that a pod no longer has a gate.
func (s *script) canBeScheduled(slot int) *script {
	s.T.Helper()
	if p := s.Now.pods[slot]; !p.exists || p.gated {
		s.T.Errorf("pod %d has its gate, or is gone\n%s", slot, &s.Script)
	}
	return s
}

// Answers to two of the calls, for the traces below.
var (
	lockIsTaken   = callAnswered[singlenode.TakeLock]
	podsAreListed = callAnswered[singlenode.ListPods]
)

func TestReplacementWaitsForPredecessor(t *testing.T) {
	s := begin(t, World{Workload: ReplicaSet}).guardActs().canBeScheduled(0)
	s.of(0, podIsBound, kubeletSees, containerStarts, userDeletesPod).of(1, replacementIsCreated).guardActs()
	s.waits(singlenode.ReasonClaimInUse)
	s.of(0, kubeletSees, processesEnd, volumeIsUnmounted, podIsRemoved).guardActs().canBeScheduled(1)
}

func TestPartitionHoldsReplacementUntilConfirmation(t *testing.T) {
	s := begin(t, World{Workload: ReplicaSet}).guardActs().of(0, podIsBound, kubeletSees, containerStarts)
	s.then(kubeletIsCutOff).of(0, userForces).of(1, replacementIsCreated).guardActs().waits(singlenode.ReasonClaimInUse)
	s.of(0, userConfirms, podIsRemoved).guardActs().canBeScheduled(1)
}

func TestFenceOfVolumeFreesLock(t *testing.T) {
	s := begin(t, World{Workload: ReplicaSet}).guardActs().of(0, podIsBound, kubeletSees, containerStarts)
	s.then(kubeletIsCutOff, nodeIsFenced).guardActs().of(0, userDeletesPod).of(1, replacementIsCreated).guardActs()
	s.canBeScheduled(1)
}

func TestPodWaitsForPodFromBeforeLabel(t *testing.T) {
	s := begin(t, World{Mode: singlenode.ModeOff, Running: true}).then(userOptsIn).of(1, userCreatesPod).guardActs()
	s.waits(singlenode.ReasonUsedWithoutLock)
	s.of(0, userDeletesPod, kubeletSees, processesEnd, volumeIsUnmounted, podIsRemoved).guardActs().canBeScheduled(1)
}

// The pod waits for its claim, and the claim for the lock.
func TestForegroundDeletionEnds(t *testing.T) {
	s := begin(t, World{Workload: StatefulSet, Ephemeral: true}).of(0, claimIsCreatedFor).guardActs().canBeScheduled(0)
	s.of(0, podIsBound, kubeletSees, containerStarts, userDeletesInForeground, claimIsCollected).guardActs()
	s.of(0, kubeletSees, processesEnd, volumeIsUnmounted, podIsReleased).guardActs()
	s.of(0, claimIsRemoved, podIsRemoved).of(1, replacementIsCreated, claimIsCreatedFor).guardActs().canBeScheduled(1)
}

func TestCompletedPodKeepsLockOnNodeThatIsAway(t *testing.T) {
	s := begin(t, World{}).guardActs().of(0, podIsBound, kubeletSees, containerStarts).of(1, userCreatesPod).guardActs()
	s.of(0, podCompletes, kubeletReportsEnd, volumeIsUnmounted).then(kubeletIsCutOff).guardActs()
	s.waits(singlenode.ReasonClaimInUse).then(kubeletReturns).guardActs().canBeScheduled(1)
}

func TestCompletedPodFreesClaim(t *testing.T) {
	s := begin(t, World{}).guardActs().of(0, podIsBound, kubeletSees, containerStarts).of(1, userCreatesPod).guardActs()
	s.waits(singlenode.ReasonClaimInUse).of(0, podCompletes, kubeletReportsEnd).guardActs().
		waits(singlenode.ReasonClaimInUse)
	s.of(0, volumeIsUnmounted).guardActs().canBeScheduled(1)
}

// In each of these traces, an earlier engine broke a promise.

// With locks in the order of the UIDs, each pod had the lock that the other one waited for.
func TestRecreatedClaimMakesNoCircle(t *testing.T) {
	s := begin(t, World{Claims: 2, Uses: [maxPods][]int{{0, 1}, {1, 0}}}).of(0, workerBegins, lockIsTaken)
	s.of(1, userDeletesClaim, claimIsRemoved, userCreatesClaimFirst).of(1, userCreatesPod).guardActs()
	s.canBeScheduled(0).waits(singlenode.ReasonClaimInUse)
}

// The watch never shows pod 1, as after a list. Without a time limit, pod 0 would wait for it forever.
func TestWaitForUnseenPodEnds(t *testing.T) {
	s := begin(t, World{Lag: true}).of(1, userPresetsNode).of(0, workerBegins, lockIsTaken, podsAreListed)
	s.of(0, watchShowsClaim, workerBegins, callAnswered[singlenode.ReadClaim], podsAreListed)
	s.of(1, userDeletesPod, kubeletSees, podIsRemoved).guardActs().canBeScheduled(0)
}
