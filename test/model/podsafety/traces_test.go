package podsafety

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
)

// script plays moves, one after the other.
type script struct {
	*worker
	modeltest.Script[state, move, *transition]
}

func begin(t *testing.T, w World) *script {
	w.Pods, w.Replicas = max(w.Pods, 2), 1
	k := newWorker(&w)
	return &script{k, modeltest.NewScript(t, &k.Plain)}
}

// then makes a move for each verb, of the first pod or the first node. Each must be possible.
func (s *script) then(verbs ...verb) *script {
	s.T.Helper()
	for _, v := range verbs {
		s.Then(v, func(m move) bool { return m.verb == v && m.on == 0 })
	}
	return s
}

// guardActs lets volume-guard do all work that is due, with unlimited time.
func (s *script) guardActs() *script {
	s.All(append([]verb{watchShowsNode, watchShowsPod, watchShowsClaim, workerBegins, workerLocks, workerSettlesClaim,
		unmountGraceEnds, forceGraceEnds, leaseGraceEnds, nodeIsReadAgain}, callAnswered...)...)
	return s
}

// isHeld checks that the pod is held while its processes run.
func (s *script) isHeld() {
	s.T.Helper()
	if p := s.Now.pods[0]; !p.exists || !p.held || !s.Now.processes[0].runs {
		s.T.Errorf("the pod is not held, or does not run\n%s", &s.Script)
	}
}

// isReleased checks that the pod is gone.
func (s *script) isReleased() {
	s.T.Helper()
	if s.Now.pods[0].exists {
		s.T.Errorf("the pod stays\n%s", &s.Script)
	}
}

// isMounted checks that the pod is there, and its volume mounted.
func (s *script) isMounted() {
	s.T.Helper()
	if !s.Now.pods[0].exists || !s.Now.processes[0].mounted {
		s.T.Errorf("the pod is released before its volume is unmounted\n%s", &s.Script)
	}
}

// all permits every move that the traces need.
func all() Budget {
	return Budget{Delete: 1, Force: 1, Unasked: 1, Confirm: 1, Mistake: 1, DeleteNode: 1, Taint: 1, Untaint: 1, Fence: 1,
		Reboot: 1, Unfence: 1, Cut: 2, Heal: 2, KubeletEnds: 1, PowerCut: 1, Container: 1, Replace: 1}
}

// In each of these traces, an earlier definition of evidence released a pod with running processes.

func TestPowerCutBeforeDeletionIsNoEvidence(t *testing.T) {
	begin(t, World{Budget: all()}).then(powerIsCut, machineStarts, kubeletSees, containerStarts, kubeletIsCutOff,
		nodeReadyChanges, userForcesUnasked).guardActs().isHeld()
}

func TestNewNodeUIDIsNoEvidence(t *testing.T) {
	begin(t, World{Budget: all(), NoPodGC: true}).then(userDeletesNode, kubeletEnds, kubeletStarts, kubeletRegisters,
		nodeReadyChanges, kubeletIsCutOff, nodeReadyChanges, userForcesUnasked).guardActs().isHeld()
}

func TestKubeletOfReplacedMachineIsNoEvidence(t *testing.T) {
	begin(t, World{Budget: all()}).then(kubeletIsCutOff, nodeReadyChanges, userDeletesPod, machineIsReplaced, kubeletSees,
		kubeletReportsEnd, nodeReadyChanges, kubeletDeletes).guardActs().isHeld()
}

func TestSilentKubeletWithoutNodeIsNoEvidence(t *testing.T) {
	s := begin(t, World{Budget: all()}).then(userForcesUnasked, kubeletSees, userDeletesNode, leaseIsCollected)
	s.guardActs().isHeld()
	s.then(processesEnd, kubeletReportsEnd, volumeIsUnmounted).guardActs().isReleased()
}

func TestEarlierFenceIsNoEvidence(t *testing.T) {
	begin(t, World{Budget: all()}).then(nodeIsFenced, nodeReadyChanges, nodeIsUnfenced, machineStarts, kubeletSees,
		containerStarts, kubeletIsCutOff, userForcesUnasked).guardActs().isHeld()
}

func TestTaintOfEarlierFenceIsNoEvidence(t *testing.T) {
	begin(t, World{Budget: all()}).then(nodeIsFenced, nodeReadyChanges, fenceTaints, nodeIsUnfenced, machineStarts,
		kubeletSees, containerStarts, kubeletIsCutOff, userForcesUnasked).guardActs().isHeld()
}

func TestRebootBeforeDeletionIsNoEvidence(t *testing.T) {
	begin(t, World{Budget: all()}).then(nodeIsRebooted, nodeReadyChanges, machineStarts, kubeletSees, containerStarts,
		kubeletIsCutOff, userForcesUnasked).guardActs().isHeld()
}

func TestRebootAfterDeletionIsEvidence(t *testing.T) {
	begin(t, World{Budget: all()}).then(kubeletIsCutOff, nodeReadyChanges, userForcesUnasked, nodeIsRebooted).guardActs().
		isReleased()
}

func TestFenceOfReadyNodeIsNoEvidence(t *testing.T) {
	s := begin(t, World{Budget: all()}).then(nodeIsFenced, userForcesUnasked).guardActs()
	if p := s.Now.pods[0]; !p.exists || !p.held {
		t.Error("the pod is not held")
	}
	begin(t, World{Budget: all()}).then(nodeIsFenced, userForcesUnasked, nodeReadyChanges).guardActs().isReleased()
}

func TestCachedTaintIsNoEvidence(t *testing.T) {
	s := begin(t, World{Budget: all(), Lag: true}).then(kubeletIsCutOff, nodeReadyChanges, userTaints, watchShowsNode,
		userUntaints, userForcesUnasked, watchShowsPod, workerBegins)
	s.All(callAnswered...)
	s.isHeld()
	s.guardActs().isHeld()
}

func TestFirstReadOfDeletedNodeIsNoEvidence(t *testing.T) {
	s := begin(t, World{Budget: all(), NoPodGC: true}).then(userForcesUnasked, userDeletesNode, leaseIsCollected)
	s.guardActs().isHeld()
	s.then(kubeletSees, processesEnd, kubeletReportsEnd, volumeIsUnmounted).guardActs().isReleased()
}

func TestEmptyStatusesAreNoEvidence(t *testing.T) {
	begin(t, World{Budget: all(), Starting: true}).then(containerStarts, kubeletIsCutOff, nodeReadyChanges, userDeletesPod,
		userTaints, collectorFailsPod, collectorDeletesPod, userUntaints).guardActs().isHeld()
}

// The garbage collector writes status.observedGeneration, too, and the status predates the restart of the container.
func TestGenerationFromGarbageCollectorIsNoEvidence(t *testing.T) {
	begin(t, World{Budget: all()}).then(containerEnds, kubeletReports, kubeletIsCutOff, containerStarts, nodeReadyChanges,
		userDeletesPod, userTaints, collectorFailsPod, collectorDeletesPod, userUntaints).guardActs().isHeld()
}

func TestTaintOnReadyNodeIsNoEvidence(t *testing.T) {
	begin(t, World{Budget: all()}).then(userTaints, userForcesUnasked).guardActs().isHeld()
}

func TestConfirmationForOtherPodIsNoEvidence(t *testing.T) {
	begin(t, World{Budget: all()}).then(kubeletIsCutOff, userConfirmsOther, userForcesUnasked).guardActs().isHeld()
}

// The patch of the finalizer is bound to the version of the pod that has the annotation.
func TestWithdrawnConfirmationIsNoEvidence(t *testing.T) {
	budget := all()
	budget.Withdraw = 1
	s := begin(t, World{Budget: budget, Lag: true}).then(kubeletIsCutOff, nodeReadyChanges, watchShowsNode, userConfirms,
		userForcesUnasked, watchShowsPod, userWithdraws, workerBegins)
	s.All(callAnswered...)
	s.isHeld()
	s.guardActs().isHeld()
}

func TestEarlierConfirmationKeepsGrace(t *testing.T) {
	s := begin(t, World{Budget: all()}).then(userConfirms, userDeletesPod)
	s.guardActs().isHeld()
	s.then(graceEnds).guardActs().isReleased()
}

func TestForceDeletionIsNoEvidenceOfUnmount(t *testing.T) {
	s := begin(t, World{Budget: all()}).then(userDeletesPod, kubeletSees, processesEnd, kubeletReportsEnd,
		userForcesUnasked)
	s.guardActs().isMounted()
	s.then(volumeIsUnmounted).guardActs().isReleased()
}

func TestTimeOnUnreachableNodeIsNoEvidenceOfUnmount(t *testing.T) {
	begin(t, World{Budget: all()}).then(userDeletesPod, kubeletSees, processesEnd, kubeletReportsEnd, kubeletIsCutOff,
		nodeReadyChanges, userForcesUnasked).guardActs().isMounted()
}

func TestEarlierZeroGraceIsNoEvidenceOfUnmount(t *testing.T) {
	s := begin(t, World{Budget: all()}).then(userConfirmsOther, userForcesUnasked, kubeletSees, processesEnd,
		kubeletReportsEnd)
	s.guardActs().isMounted()
	s.then(volumeIsUnmounted).guardActs().isReleased()
}

// A refused pod is released after a heartbeat of its node, and not before.
func TestRefusedPodIsReleasedAfterHeartbeat(t *testing.T) {
	budget := all()
	budget.Refuse, budget.Beat = 1, 2
	s := begin(t, World{Budget: budget, Refusals: true}).then(kubeletRefuses, userDeletesPod, kubeletFindsNothing)
	s.guardActs()
	if p := s.Now.pods[0]; !p.exists || !p.held {
		t.Error("it is released before a heartbeat")
	}
	s.then(kubeletWritesNode).guardActs().isReleased()
}

// A machine that is cut off runs the pod, of which it has reported nothing, and the next one refuses it.
func TestRefusalByAnotherMachineIsNoEvidence(t *testing.T) {
	budget := all()
	budget.Refuse, budget.Beat = 1, 2
	for _, written := range []bool{true, false} {
		s := begin(t, World{Budget: budget, Refusals: true}).then(kubeletSees, containerStarts, kubeletIsCutOff,
			machineIsReplaced, kubeletRegisters, kubeletRefuses, userDeletesPod, kubeletFindsNothing)
		s.guardActs()
		if written {
			s.then(kubeletWritesNode).guardActs()
		}
		s.isHeld()
	}
}

// Kubernetes' own protection releases the claim of a generic ephemeral volume when its pod has no grace any more.
func TestForceDeletionIsNoReleaseOfEphemeralClaim(t *testing.T) {
	budget := all()
	budget.DeleteClaim = 1
	s := begin(t, World{Budget: budget, Ephemeral: true}).then(kubeletIsCutOff, nodeReadyChanges, userDeletesClaim,
		userForcesUnasked).guardActs()
	s.isHeld()
	if !s.Now.claim || s.claimUsed(&s.Now) {
		t.Errorf("the claim is gone, or in use by its pod\n%s", &s.Script)
	}
	s.then(userConfirms).guardActs().isReleased()
	s.then(claimIsRemoved)
}
