package fencing

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
	w.Pods, w.Replicas = max(w.Pods, 1), 1
	w.Budget = Budget{Fence: 1, Delete: 1, Off: 1, On: 1, Confirm: 1, LieWord: 1, Now: 1, Abandon: 1, Cut: 2, Heal: 1,
		Slow: 1, Fail: 1, Hang: 1, Endless: 1, Lie: 1, Again: 1}
	k := newWorker(&w)
	s := &script{k, modeltest.NewScript(t, &k.Plain)}
	return s.then(nodeFenceIsCreated).guardActs()
}

// then makes a move for each verb. Each must be possible.
func (s *script) then(verbs ...verb) *script {
	s.T.Helper()
	s.InTurn(verbs...)
	return s
}

// guardActs lets volume-guard do all work that is due at once.
func (s *script) guardActs() *script {
	s.All(append([]verb{workerBegins}, callAnswered...)...)
	return s
}

// guardPolls lets volume-guard work on the fence after a pause.
func (s *script) guardPolls() *script { return s.then(pollBegins).guardActs() }

// podIsHeld lets the controller that holds pods do its work, and checks that the pod stays.
func (s *script) podIsHeld() {
	s.T.Helper()
	s.All(holderReadsFence, holderReadsNode, holderReleases)
	s.is("the pod is held", s.Now.pods[0].exists)
}

func (s *script) podIsReleased() {
	s.T.Helper()
	s.All(holderReadsFence, holderReadsNode, holderReleases)
	s.is("the pod is released", !s.Now.pods[0].exists)
}

// waits checks the reason for which the fence waits.
func (s *script) waits(reason string) *script {
	s.T.Helper()
	if c := s.work(&s.Now); c.reason != reason {
		s.T.Errorf("it waits for %s, want %s\n%s", c.reason, reason, &s.Script)
	}
	return s
}

func (s *script) is(what string, so bool) *script {
	s.T.Helper()
	if !so {
		s.T.Errorf("not so: %s\n%s", what, &s.Script)
	}
	return s
}

var power = World{Agents: []Agent{Power}}

func TestFencedNodeLosesPodsAndReturns(t *testing.T) {
	s := begin(t, power).then(kubeletIsCutOff, userDeletesPod, agentActs, agentSucceeds).guardPolls()
	s.is("it is in force", s.Now.fence.proven).podIsHeld()
	s.then(nodeReadyChanges).guardPolls().is("it is tainted", s.Now.node.tainted).waits("Released").podIsReleased()
	s.then(userPowersOn, machineStarts, kubeletReturns, kubeletRegisters, kubeletRenews, volumeIsDetached).guardPolls()
	s.then(agentActs, agentSucceeds).guardPolls().is("it has returned", s.Now.fence.returned == isTrue)
	s.is("it is not tainted", !s.Now.node.tainted)
}

// In each of these traces, an earlier engine broke a promise.

func TestMachinePoweredOnDuringAgentIsNotProvenOff(t *testing.T) {
	s := begin(t, power).then(agentActs, userPowersOn, machineStarts, kubeletRegisters, kubeletSees, containerStarts,
		agentSucceeds)
	s.guardPolls().is("nothing is proven", !s.Now.fence.proven)
	s.then(userDeletesPod, kubeletIsCutOff, nodeReadyChanges).podIsHeld()
}

func TestMachinePoweredOnInForceReleasesNoPod(t *testing.T) {
	s := begin(t, power).then(agentActs, agentSucceeds).guardPolls().then(userPowersOn, machineStarts, kubeletRegisters,
		kubeletSees, containerStarts, userDeletesPod, kubeletIsCutOff, nodeReadyChanges)
	s.is("it is in force", s.Now.fence.fenced == isTrue).podIsHeld()
	s.guardPolls().is("it is not tainted", !s.Now.node.tainted).podIsHeld()
}

func TestTaintGoesWhenNodeIsBack(t *testing.T) {
	s := begin(t, power).then(agentActs, nodeReadyChanges, agentSucceeds).guardPolls()
	s.is("it is tainted", s.Now.node.tainted)
	s.then(userPowersOn, machineStarts, kubeletRegisters).guardPolls().is("it is not tainted", !s.Now.node.tainted)
}

func TestTaintGoesBeforeUndo(t *testing.T) {
	s := begin(t, power).then(agentActs, nodeReadyChanges, agentSucceeds).guardPolls()
	s.then(userPowersOn, machineStarts, kubeletRegisters, userUnfences).guardActs()
	s.is("it is not tainted", !s.Now.node.tainted).is("it is not undone", !s.Now.fence.attempts[0].undone)
}

func TestLateRenewalContradictsNoProof(t *testing.T) {
	s := begin(t, power)
	s.Now.left.Late = 1
	s.then(agentActs, agentSucceeds).guardPolls().then(lateRenewal).guardPolls().waits("NodeRuns")
	s.then(leaseGraceEnds, runsGraceEnds).guardPolls().is("it is in force", s.Now.fence.proven)
}

func TestLyingAgentIsDetected(t *testing.T) {
	s := begin(t, power).then(agentLies).guardPolls().then(kubeletRenews).guardPolls().waits("NodeRuns")
	s.then(kubeletRenews, runsGraceEnds).guardPolls().is("the proof is withdrawn", !s.Now.fence.proven)
	s.waits("AllAgentsFailed")
}

func TestFalseConfirmationIsDetected(t *testing.T) {
	s := begin(t, World{Agents: []Agent{Person}}).waits("WaitsForConfirmation").then(userConfirmsFalsely).guardActs()
	s.is("it is in force", s.Now.fence.proven).then(kubeletRenews).guardPolls()
	s.then(kubeletRenews, runsGraceEnds).guardPolls()
	s.is("the proof is withdrawn", !s.Now.fence.proven)
	s.then(chainPauseEnds).guardPolls().waits("WaitsForConfirmation")
}

func TestCopiedConfirmationIsNoProof(t *testing.T) {
	s := begin(t, World{Agents: []Agent{Person}})
	s.Now.fence.word, s.Now.fence.copied = 1, true
	s.Now.left.Confirm, s.Now.left.Off = 1, 1
	s.guardActs().waits("WaitsForConfirmation").is("it is not proven", !s.Now.fence.proven)
	s.then(userPowersOff, userConfirms).guardActs().is("it is proven", s.Now.fence.proven)
}

// Data that the node has not written yet would reach a volume that another node writes to.
func TestDeletedFenceOpensNoVolumesBeforeReboot(t *testing.T) {
	s := begin(t, World{Agents: []Agent{Volumes}})
	s.Now.left.DeleteFence, s.Now.left.PowerCut = 1, 1
	s.then(kubeletIsCutOff, userDeletesPod, nodeReadyChanges, agentActs, agentSucceeds).guardPolls()
	s.then(lockerReadsFence, volumeIsLent, kubeletReturns, nodeReadyChanges, kubeletRenews, userDeletesFence)
	s.guardActs().guardPolls().waits("NeedsReboot").is("it is in force", s.Now.fence.fenced == isTrue)
	s.then(powerIsCut, machineStarts, kubeletRegisters, kubeletRenews, kubeletSees, podIsFinished)
	s.guardPolls().then(agentActs, agentSucceeds).guardPolls().is("it is gone", s.Now.fence.uid == 0)
}

func TestNodeWithoutVolumesGetsNoPodsUntilItBoots(t *testing.T) {
	s := begin(t, World{Agents: []Agent{Volumes}})
	s.Now.left.PowerCut, s.Now.left.DeleteNode = 1, 1
	s.then(kubeletIsCutOff, agentActs, agentSucceeds).guardPolls().is("new pods stay away", s.Now.node.shunned)
	s.then(kubeletReturns, userDeletesNode).guardActs().then(kubeletRegisters).guardPolls()
	s.is("they still do", s.Now.node.shunned)
	s.then(powerIsCut, machineStarts, kubeletRegisters).guardPolls().is("they do not any more", !s.Now.node.shunned)
	s.is("the fence is in force", s.Now.fence.fenced == isTrue)
}

// The fenced machine may run on.
func TestReplacedMachineOpensNoVolumes(t *testing.T) {
	s := begin(t, World{Agents: []Agent{Volumes}})
	s.Now.left.Replace = 1
	s.then(kubeletIsCutOff, userDeletesPod, nodeReadyChanges, agentActs, agentSucceeds).guardPolls()
	s.then(lockerReadsFence, volumeIsLent, machineIsReplaced, kubeletRegisters, nodeReadyChanges, kubeletRenews,
		podIsFinished).guardPolls().waits("MachineReplaced").is("it is in force", s.Now.fence.fenced == isTrue)
	s.then(userUnfences).guardActs().then(agentActs, agentSucceeds).guardPolls()
	s.is("it has ended", s.Now.fence.returned == isTrue)
}

func TestEndlessAgentIsAbandoned(t *testing.T) {
	s := begin(t, power).then(userUnfences).guardActs().then(agentIsEndless).guardPolls().waits("AgentStopping")
	s.then(userAbandons).guardActs().is("it has ended", s.Now.fence.returned == isTrue)
}

func TestNodeMissingAfterReboot(t *testing.T) {
	s := begin(t, World{Agents: []Agent{Reboot, Power}}).then(kubeletIsCutOff, nodeReadyChanges, agentActs, agentSucceeds)
	s.guardPolls().then(userDeletesPod).guardPolls().waits("Fenced").podIsHeld()
	s.then(chainPauseEnds).guardPolls().is("the proof stays", s.Now.fence.fenced == isTrue)
	s.Then(agentActs, func(m move) bool { return m.Is(agentActs) && m.on == 1 })
	s.Then(agentSucceeds, func(m move) bool { return m.Is(agentSucceeds) && m.on == 1 })
	s.guardPolls().podIsReleased()
}

func TestConfirmationReplacesProofOfReboot(t *testing.T) {
	s := begin(t, World{Agents: []Agent{Reboot}}).then(kubeletIsCutOff, nodeReadyChanges, agentActs, agentSucceeds)
	s.guardPolls().waits("Fenced").then(userPowersOff, userConfirms).guardActs()
	s.is("it is tainted", s.Now.node.tainted).waits("Released")
}

func TestHangingUndoIsRetried(t *testing.T) {
	s := begin(t, power).then(agentActs, agentSucceeds).guardPolls().then(userUnfences).guardActs().then(agentHangs)
	s.guardPolls().waits("Unfencing").then(undoTimeEnds).guardPolls().waits("UnfenceFailed")
	s.then(agentActs, agentSucceeds).guardPolls().is("it has ended", s.Now.fence.returned == isTrue)
}

func TestHangingUndoCanBeAbandoned(t *testing.T) {
	s := begin(t, power).then(agentActs, agentSucceeds).guardPolls().then(userUnfences).guardActs().then(agentHangs)
	s.then(undoTimeEnds).guardPolls().waits("UnfenceFailed")
	s.then(userAbandons).guardActs().is("it has ended", s.Now.fence.returned == isTrue)
}
