package joint

import (
	"slices"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
)

// script plays moves, one after the other.
type script struct {
	*worker
	modeltest.Script[state, move]
}

func begin(t *testing.T, w World) *script {
	k := newWorker(&w)
	return &script{k, modeltest.NewScript[state, move](t, k, w.describe)}
}

// then makes a move for each verb, of the first pod for which it is possible.
func (s *script) then(verbs ...verb) *script {
	s.T.Helper()
	for _, v := range verbs {
		s.Then(s.describe(move{v, 0}), func(m move) bool { return m.verb == v })
	}
	return s
}

// guardVerbs are the moves of volume-guard.
var guardVerbs = []verb{holdActs, gateActs, lockActs, protectorActs, claimHoldActs, volumeLockActs, fencingActs,
	fenceEnds}

// guardActs lets volume-guard and the agent do all work that is due.
func (s *script) guardActs() {
	s.T.Helper()
	s.All(func(m move) bool {
		return slices.Contains(guardVerbs, m.verb) || m.verb == agentActs || m.verb == agentUndoes
	})
}

// shows checks the state of the two pods and the claim.
func (s *script) shows(what string, is func(*state) bool) *script {
	s.T.Helper()
	if !is(&s.Now) {
		s.T.Errorf("it is not so that %s, after\n%s", what, &s.Script)
	}
	return s
}

func claimStays(s *state) bool { return s.claim.exists && s.claim.protected }

func secondWaits(s *state) bool { return s.pods[1].exists && s.pods[1].gated }

func TestFenceLendsVolumeUntilReboot(t *testing.T) {
	s := begin(t, World{Agent: Volumes, Budget: Budget{Delete: 1, Fence: 1, Cut: 1, Heal: 1, Reboot: 1}})
	s.then(kubeletIsCutOff, readyChanges, userDeletesPod, replacementIsCreated).guardActs()
	s.shows("the second pod waits", secondWaits).then(nodeIsFenced).guardActs()
	s.shows("it does not", func(s *state) bool { return !secondWaits(s) && s.pods[0].held })
	s.then(kubeletReturns, readyChanges).guardActs()
	s.shows("the fence stays", func(s *state) bool { return s.node.storage && s.fence.fenced == isTrue })
	s.then(machineReboots, readyChanges, machineStarts, kubeletRegisters, readyChanges, kubeletSees, kubeletReportsEnd,
		kubeletDeletes).guardActs()
	s.shows("it has ended", func(s *state) bool { return !s.node.storage && !s.pods[0].exists })
}

// The kubelet starts the pod again before it is deleted, so that the reboot unmounts nothing. The fence waits for the
// pod, and the pod for its own kubelet alone.
func TestPodOfNewBootWaitsForUnmount(t *testing.T) {
	for _, completes := range []bool{false, true} {
		s := begin(t, World{Agent: Volumes, Uncovered: true, Budget: Budget{Delete: 1, Fence: 1, Reboot: 1, End: 1}})
		s.then(nodeIsFenced).guardActs()
		s.then(machineReboots, readyChanges, machineStarts, kubeletRegisters, readyChanges, kubeletSees, containerStarts)
		if completes {
			s.then(podCompletes, kubeletReportsEnd, userDeletesPod, kubeletSees).guardActs()
			s.shows("the pod has no grace", func(s *state) bool { return s.pods[0].graceZero })
		} else {
			s.then(userDeletesPod, kubeletSees, processesEnd, kubeletReportsEnd).guardActs()
		}
		s.shows("the fence is in force, and the pod held", func(s *state) bool {
			return s.fence.fenced == isTrue && s.booted() && s.pods[0].held && s.processes[0].mounted
		})
		s.then(volumeIsUnmounted)
		if completes {
			s.then(unmountGraceEnds)
		} else {
			s.then(kubeletDeletes)
		}
		s.guardActs()
		s.shows("both are gone", func(s *state) bool { return !s.pods[0].exists && s.fence.fenced != isTrue })
	}
}

func TestHeldPodKeepsClaimAfterPodGarbageCollection(t *testing.T) {
	s := begin(t, World{Unlocked: true, Budget: Budget{DeleteClaim: 1, DeleteNode: 1}})
	s.then(userDeletesClaim, userDeletesNode, collectorFailsPod, collectorDeletesPod).guardActs()
	s.shows("the claim stays", claimStays).then(kubeletSees, processesEnd, volumeIsUnmounted, kubeletReportsEnd)
	s.then(leaseGraceEnds, forceGraceEnds, unmountGraceEnds).guardActs()
	s.shows("nothing keeps the claim", func(s *state) bool { return !s.pods[0].exists && !s.claim.protected })
}

// A kubelet that does not run unmounts nothing, however long that takes.
func TestCompletedPodKeepsLockOnNodeThatIsAway(t *testing.T) {
	s := begin(t, World{Budget: Budget{End: 1, Cut: 1, Heal: 1}})
	timePasses := func() {
		s.All(func(m move) bool { return slices.Contains(guardVerbs, m.verb) || m.verb == unmountGraceEnds })
	}
	s.then(podCompletes, kubeletReportsEnd, replacementIsCreated, kubeletIsCutOff, readyChanges)
	timePasses()
	s.shows("the second pod waits", secondWaits).then(kubeletReturns, readyChanges)
	timePasses()
	s.shows("the second pod waits for the unmount", secondWaits).then(volumeIsUnmounted)
	timePasses()
	s.shows("it does not", func(s *state) bool { return !secondWaits(s) })
}

func TestConfirmationGivesVolumeToSecondPod(t *testing.T) {
	s := begin(t, World{Budget: Budget{Force: 1, Confirm: 1, DeleteClaim: 1, Cut: 1}})
	s.then(kubeletIsCutOff, userConfirms, userForces, replacementIsCreated).guardActs()
	s.shows("the second pod does not wait", func(s *state) bool { return s.excused[0] && !secondWaits(s) })
}

// The pod waits for its claim, and the claim for the lock.
func TestForegroundDeletionEnds(t *testing.T) {
	s := begin(t, World{Ephemeral: true, Budget: Budget{Foreground: 1}})
	s.then(userDeletesInForeground, claimIsCollected, kubeletSees).guardActs()
	s.shows("the claim stays", claimStays).then(processesEnd, kubeletReportsEnd, volumeIsUnmounted, kubeletDeletes)
	s.guardActs()
	s.then(unmountGraceEnds).guardActs()
	s.then(claimIsRemoved, podIsUnblocked)
	s.shows("the pod is gone", func(s *state) bool { return !s.pods[0].exists })
}

// The pod waits for its container to start again, so that Kubernetes does not count it once it is deleted. Its kubelet,
// which is cut off, starts the container.
func TestVolumeLockKeepsVolumeFromSecondNode(t *testing.T) {
	s := begin(t, World{Attached: true, Budget: Budget{Delete: 1, Cut: 1, Heal: 1, Restart: 1}})
	s.then(containerEnds, kubeletReportsWait, kubeletIsCutOff, containerStarts, readyChanges, userDeletesPod)
	s.guardActs()
	s.then(replacementIsCreated, podIsBound, volumeIsDetached)
	s.shows("the API server refuses the attachment", func(s *state) bool { return s.volume.locked == 1 })
	if s.First(func(m move) bool { return m.verb == volumeIsAttached }) {
		t.Errorf("the volume is attached\n%s", &s.Script)
	}
	s.then(kubeletReturns, readyChanges, kubeletSees, processesEnd, kubeletReportsEnd, volumeIsUnmounted, kubeletDeletes)
	s.guardActs()
	s.then(volumeIsAttached)
	s.shows("it is attached to node b", func(s *state) bool { return s.volume.onB && s.volume.locked == 0 })
}

func TestFenceLiftsVolumeLock(t *testing.T) {
	s := begin(t, World{Attached: true, Agent: Volumes, Budget: Budget{Delete: 1, Fence: 1, Cut: 1, Restart: 1}})
	s.then(containerEnds, kubeletReportsWait, kubeletIsCutOff, readyChanges, userDeletesPod).guardActs()
	s.shows("the volume is locked", func(s *state) bool { return s.volume.locked == 1 }).then(nodeIsFenced).guardActs()
	s.then(replacementIsCreated, podIsBound, volumeIsDetached, volumeIsAttached)
	s.shows("the first pod is held", func(s *state) bool { return s.pods[0].held && s.volume.onB })
}
