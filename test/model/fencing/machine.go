package fencing

import (
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

// machine makes facts and sessions of the engine from a state. It is not safe for concurrent use: each worker has its
// own.
type machine struct {
	*World
	now     time.Time
	tracker *fencing.Tracker
	// Fences are only read, so that each is made once.
	fences map[fence]fencing.Fence
}

func newMachine(w *World) *machine {
	return &machine{World: w, now: clock.Now, tracker: fencing.NewTracker(), fences: map[fence]fencing.Fence{}}
}

// timeout is the time limit of each agent. long exceeds every wait.
const (
	timeout = 5 * time.Minute
	long    = 48 * time.Hour
)

var (
	unfences = []v1alpha1.Unfence{whenReturned: v1alpha1.UnfenceWhenReturned, whenReleased: v1alpha1.UnfenceWhenReleased,
		now: v1alpha1.UnfenceNow, abandon: v1alpha1.UnfenceAbandon}
	results = []v1alpha1.Result{"", v1alpha1.ResultProven, v1alpha1.ResultFailed, v1alpha1.ResultTimedOut,
		v1alpha1.ResultCanceled, v1alpha1.ResultContradicted}
	states = []fencing.RunState{noRun: fencing.RunAbsent, running: fencing.Running, stopping: fencing.RunStopping,
		succeeded: fencing.RunSucceeded, failed: fencing.RunFailed}
)

// The results of attempts, by their numbers.
const (
	proven       = 1
	contradicted = 5
)

// agentOf returns the agent with a number for a spec.
func (w *World) agentOf(number uint8) v1alpha1.Agent {
	a := v1alpha1.Agent{Name: agentName(number), Timeout: metav1.Duration{Duration: timeout}}
	switch w.Agents[number-1] {
	case Power:
		a.Covers, a.Job = v1alpha1.CoversUntilUnfenced, &v1alpha1.JobAgent{Undo: true}
	case Reboot:
		a.Covers, a.Job = v1alpha1.CoversReboot, &v1alpha1.JobAgent{}
	case Remediation:
		a.Covers, a.Remediation = v1alpha1.CoversReboot, &v1alpha1.RemediationAgent{}
	case Volumes:
		of := volumesOf(number)
		a.Covers, a.NetworkFence = v1alpha1.CoversVolumes, &v1alpha1.NetworkFenceAgent{Driver: of.Driver, Volumes: of.Volumes,
			VolumeAttributes: of.VolumeAttributes}
	case Person:
		a.Covers, a.Manual = v1alpha1.CoversUntilUnfenced, &v1alpha1.ManualAgent{}
	}
	return a
}

func agentName(number uint8) string {
	if number == byWord {
		return "confirmation"
	}
	return "agent-" + strconv.Itoa(int(number))
}

func agentNumber(name string) uint8 {
	if name == "confirmation" {
		return byWord
	}
	return name[len(name)-1] - '0'
}

// driver is the CSI driver of the volumes, and system the attribute with their storage system. Each agent of volumes
// covers one storage system.
const driver, system = "driver", "system"

// bit is the bit of an agent in a set.
func bit(agent uint8) uint8 { return 1 << (agent - 1) }

// volumesOf returns the volumes that an agent covers.
func volumesOf(agent uint8) v1alpha1.CoveredVolumes {
	name := agentName(agent)
	return v1alpha1.CoveredVolumes{Agent: name, Driver: driver, Volumes: v1alpha1.VolumesMatching,
		VolumeAttributes: map[string]v1alpha1.AttributeValue{system: v1alpha1.AttributeValue(name)}}
}

// volumeOf returns the volume of each pod, and its agent, which is the last one.
func (w *World) volumeOf() (v objects.Volume, agent uint8) {
	agent = uint8(len(w.Agents))
	return objects.Volume{Driver: driver, Attributes: map[string]string{system: agentName(agent)}}, agent
}

// cutsOff reports whether an agent cuts the machine off from volumes, without ending its processes.
func (w *World) cutsOff() bool { return slices.Contains(w.Agents, Volumes) }

// kindOf returns the kind of an agent.
func (w *World) kindOf(number uint8) Agent {
	if number == byWord {
		return Person
	}
	return w.Agents[number-1]
}

func podUID(slot int) types.UID  { return types.UID("pod-" + strconv.Itoa(slot)) }
func fenceUID(n uint8) types.UID { return types.UID("fence-" + strconv.Itoa(int(n))) }
func version(kind string, n uint8) string {
	if n == 0 {
		return ""
	}
	return kind + strconv.Itoa(int(n))
}

// machineID returns the machine ID of the first or the second machine.
func machineID(second bool) string {
	if second {
		return "second"
	}
	return "first"
}

// number is the reverse of version.
func number(s string) uint8 {
	if s == "" {
		return 0
	}
	n, _ := strconv.Atoi(s[1:])
	return uint8(n)
}

// back converts an age to a time, with until as the measured wait.
func (m *machine) back(a age, until time.Duration) time.Time {
	switch a {
	case old:
		return m.now.Add(-until - time.Second)
	case older:
		return m.now.Add(-long)
	case young:
	}
	return m.now
}

// fence returns a NodeFence as the engine reads it.
func (m *machine) fence(f fence) fencing.Fence {
	if f.uid == 0 {
		return fencing.Fence{}
	}
	return memory.Once(m.fences, f, func() fencing.Fence { return m.newFence(f) })
}

func (m *machine) newFence(f fence) fencing.Fence {
	out := fencing.Fence{Name: "node", UID: fenceUID(f.uid), ResourceVersion: "1", Terminating: f.terminating,
		Finalized: f.finalized}
	out.Spec = v1alpha1.NodeFenceSpec{Unfence: unfences[f.unfence], Confirmation: version("w", f.word),
		AllowControlPlane: !m.ControlPlane}
	if f.word > 0 {
		out.Spec.ConfirmationUID = out.UID
	}
	if f.copied {
		out.Spec.ConfirmationUID = "before"
	}
	if m.Policy {
		out.Spec.PolicyName = "policy"
	}
	for i := range m.Agents {
		out.Spec.Agents = append(out.Spec.Agents, m.agentOf(uint8(i+1)))
	}
	for _, c := range []struct {
		name string
		is   condition
		age
		why uint8
	}{{v1alpha1.ConditionFenced, f.fenced, young, f.fencedFor}, {v1alpha1.ConditionReleased, f.released, young, 0},
		{v1alpha1.ConditionReturned, f.returned, f.sinceReturned, f.returnedFor}} {
		status := metav1.ConditionFalse
		if c.is == isTrue {
			status = metav1.ConditionTrue
		}
		if c.is != noCondition {
			out.Status.Conditions = append(out.Status.Conditions, metav1.Condition{Type: c.name, Status: status,
				Reason: string(waits[c.why]), LastTransitionTime: metav1.NewTime(m.back(c.age, 24*time.Hour))})
		}
	}
	if f.vacant {
		meta.FindStatusCondition(out.Status.Conditions, v1alpha1.ConditionFenced).Reason = string(fencing.ReasonNodeDeleted)
	}
	for i, a := range f.attempts[:f.count] {
		out.Status.Attempts = append(out.Status.Attempts, m.attempt(i, a))
	}
	if f.proven {
		agent := f.attempts[f.proofOf-1].agent
		p := &v1alpha1.Proof{Attempt: int32(f.proofOf), Agent: agentName(agent), Covers: v1alpha1.CoversUntilUnfenced,
			BootID: version("b", f.proofBoot), MachineID: machineID(f.proofSecond), LeaseVersion: version("l", f.proofAt)}
		if f.proofOf == f.count {
			p.ProvenAt = metav1.NewTime(m.back(f.attempts[f.proofOf-1].since, time.Hour))
		}
		if agent != byWord {
			p.Covers = m.agentOf(agent).Covers
		}
		for i := range m.Agents {
			if n := uint8(i + 1); f.covers&bit(n) != 0 {
				p.Volumes = append(p.Volumes, volumesOf(n))
			}
		}
		out.Status.Proof = p
	}
	return out
}

func (m *machine) attempt(i int, a attempt) v1alpha1.Attempt {
	out := v1alpha1.Attempt{Number: int32(i + 1), Agent: agentName(a.agent), Result: results[a.result],
		Message: version("w", a.word), BootID: version("b", a.boot), MachineID: machineID(a.second), ObjectSeen: a.seen,
		StartedAt: metav1.NewTime(m.back(a.since, timeout))}
	for slot := range maxPods {
		if a.pods&(1<<slot) != 0 {
			out.TerminatingPods = append(out.TerminatingPods, podUID(slot))
		}
	}
	if a.result != 0 {
		at := metav1.NewTime(m.back(a.since, time.Hour))
		out.EndedAt = &at
	}
	if a.tries > 0 {
		at := metav1.NewTime(m.back(a.sinceTry, timeout))
		out.UndoTry, out.UndoTriedAt = int32(a.tries), &at
	}
	if a.undone {
		out.UndoneAt = &metav1.Time{Time: m.now}
	}
	return out
}

// status returns a NodeFence with the status that the engine writes.
func (m *machine) status(f fence, s *v1alpha1.NodeFenceStatus) fence {
	was := f
	f.fenced, f.released, f.returned = conditionOf(s, v1alpha1.ConditionFenced),
		conditionOf(s, v1alpha1.ConditionReleased), conditionOf(s, v1alpha1.ConditionReturned)
	f.vacant = fencing.Fence{Status: *s}.Vacant()
	f.fencedFor, f.returnedFor = waitOf(s, v1alpha1.ConditionFenced), waitOf(s, v1alpha1.ConditionReturned)
	f.attempts, f.count = [maxAttempts]attempt{}, uint8(len(s.Attempts))
	for i := range s.Attempts {
		a := &s.Attempts[i]
		now := attempt{agent: agentNumber(a.Agent), result: uint8(slices.Index(results, a.Result)), boot: number(a.BootID),
			undone: a.UndoneAt != nil, tries: uint8(a.UndoTry), second: a.MachineID == machineID(true), seen: a.ObjectSeen}
		if a.Message != "" && a.Message[0] == 'w' {
			now.word = number(a.Message)
		}
		for _, uid := range a.TerminatingPods {
			now.pods |= 1 << (uid[len(uid)-1] - '0')
		}
		if now.result == was.attempts[i].result {
			now.since = was.attempts[i].since // its beginning, or its end, has not changed
		}
		if now.tries == was.attempts[i].tries {
			now.sinceTry = was.attempts[i].sinceTry
		}
		f.attempts[i] = now
	}
	f.proven, f.proofOf, f.proofBoot, f.proofAt, f.proofSecond, f.covers = s.Proof != nil, 0, 0, 0, false, 0
	if p := s.Proof; p != nil {
		f.proofSecond = p.MachineID == machineID(true)
		for _, v := range p.Volumes {
			f.covers |= bit(agentNumber(v.Agent))
		}
		f.proofOf, f.proofBoot, f.proofAt = uint8(p.Attempt), number(p.BootID), number(p.LeaseVersion)
	}
	return f.tidy()
}

func conditionOf(s *v1alpha1.NodeFenceStatus, name string) condition {
	for _, c := range s.Conditions {
		switch {
		case c.Type != name:
		case c.Status == metav1.ConditionTrue:
			return isTrue
		default:
			return isFalse
		}
	}
	return noCondition
}

// waits are the waits that a condition can name.
var waits = []fencing.Reason{"", fencing.ReasonNodeNotFound, fencing.ReasonControlPlane,
	fencing.ReasonWaitsForConfirmation, fencing.ReasonNodeRuns, fencing.ReasonMachineReplaced, fencing.ReasonNeedsReboot,
	fencing.ReasonRemainsOnNode, fencing.ReasonUnfenceFailed, fencing.ReasonAwaitsReturn}

// waitOf returns the number of the wait that a condition names, 0 for none.
func waitOf(s *v1alpha1.NodeFenceStatus, name string) uint8 {
	if c := meta.FindStatusCondition(s.Conditions, name); c != nil {
		return uint8(max(slices.Index(waits, fencing.Reason(c.Reason)), 0))
	}
	return 0
}

// tidy drops times that no wait depends on any more.
func (f fence) tidy() fence {
	for i := range f.attempts {
		if i+1 < int(f.count) {
			f.attempts[i].since = young
		}
		if f.attempts[i].undone {
			f.attempts[i].sinceTry = young
		}
	}
	return f
}

// sight returns the record of one process about the fence, as the engine has it.
func (m *machine) sight(s sight) fencing.Sight {
	if !s.seen {
		return fencing.Sight{}
	}
	out := fencing.Sight{LeaseVersion: version("l", s.lease), LeaseSince: m.back(s.since, time.Hour)}
	if s.runsOn {
		out.RunsSince = m.back(s.runsSince, time.Hour)
	}
	return out
}

func (m *machine) sightOf(s fencing.Sight) sight {
	if s.LeaseSince.IsZero() {
		return sight{}
	}
	out := sight{seen: true, lease: number(s.LeaseVersion), since: m.ageOf(s.LeaseSince), runsOn: !s.RunsSince.IsZero()}
	if out.runsOn {
		out.runsSince = m.ageOf(s.RunsSince)
	}
	return out
}

func (b basis) read() fencing.Basis {
	return fencing.Basis{Attempt: int32(b.attempt), Found: b.found, BootID: version("b", b.boot), OwnTaint: b.tainted}
}

func basisOf(b fencing.Basis) basis {
	return basis{attempt: uint8(b.Attempt), boot: number(b.BootID), found: b.Found, tainted: b.OwnTaint}
}

func (m *machine) ageOf(t time.Time) age {
	if t.Equal(m.now) {
		return young
	}
	return old
}

// with loads the records of a replica into the tracker for the call of do.
func (m *machine) with(uid uint8, s *sight, do func(t *fencing.Tracker)) {
	clear(m.tracker.Fences)
	if s.seen {
		m.tracker.Fences[fenceUID(uid)] = m.sight(*s)
	}
	do(m.tracker)
	*s = m.sightOf(m.tracker.Fences[fenceUID(uid)])
}

// facts returns the facts with which a replica works in a session.
func (m *machine) facts(s *work) fencing.Facts {
	f := fencing.Facts{Fence: m.fence(s.fence), FenceRead: clock.ReadAt(s.fenceRead), TaintSeen: s.taintSeen,
		Lease: objects.Lease{ResourceVersion: version("l", s.lease)}, LeaseRead: clock.ReadAt(s.leaseRead),
		Sight: m.sight(s.sight)}
	if s.nodeRead > 0 {
		f.Node, f.NodeRead = m.nodeFacts(s), clock.ReadAt(s.nodeRead)
	}
	if s.runRead > 0 {
		f.Run = m.runFacts(s)
		f.Run.Of, f.Run.Read = s.of(), clock.ReadAt(s.runRead)
	}
	if s.remainingRead > 0 {
		f.Remaining = remaining(s)
		f.Remaining.Read, f.Remaining.Basis = clock.ReadAt(s.remainingRead), s.basis.read()
		f.Remaining.PodsOnly = s.podsOnly
	}
	return f
}

// of returns the run that was read.
func (s *work) of() fencing.Run {
	return fencing.Run{Attempt: int32(s.runOf), Agent: agentName(s.fence.attempts[s.runOf-1].agent), Undo: s.runUndoes,
		Try: int32(s.runTry)}
}

func (m *machine) nodeFacts(s *work) objects.Node {
	if !s.nodeThere {
		return objects.Node{}
	}
	return objects.Node{Found: true, ResourceVersion: "1", Ready: readyOf(s), OwnTaint: s.nodeTainted,
		VolumesFenced: s.nodeShunned,
		BootID:        version("b", s.nodeBoot), Machine: objects.Machine{MachineID: machineID(s.nodeSecond)},
		ControlPlane: m.ControlPlane}
}

func readyOf(s *work) objects.Ready {
	switch {
	case s.nodeReady:
		return objects.ReadyTrue
	case s.nodeUnready:
		return objects.ReadyFalse
	}
	return objects.ReadyUnknown
}

func (m *machine) runFacts(s *work) fencing.RunFacts {
	out := fencing.RunFacts{State: states[s.runState]}
	if s.runState == failed {
		out.EndedAt = m.back(s.runSince, time.Hour)
	}
	return out
}

func remaining(s *work) (f fencing.RemainingFacts) {
	f.AttachmentsListed = s.listed
	for slot := range maxPods {
		bit := uint8(1) << slot
		if s.terminating&bit != 0 {
			f.Held = append(f.Held, fencing.HeldPod{UID: podUID(slot)})
			f.Leaving.Pods++
		}
		if s.remains&bit != 0 {
			f.All.Pods++
		}
		if s.attached&bit != 0 {
			f.All.VolumeAttachments++
		}
	}
	return f
}

// session returns a session in progress as the engine has it.
func (m *machine) session(s *work) (out fencing.Session) {
	out.ReadCount, out.Steps, out.Facts = int(s.reads), 1, m.facts(s)
	out.Decision = fencing.Decide(out.Facts, m.now)
	return out
}
