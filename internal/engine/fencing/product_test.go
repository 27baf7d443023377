package fencing

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// The facts of a decision consist of the NodeFence, the state of its node, and the state of its agent. Every NodeFence
// is visited with every state of the node, and with every state of the agent.

// everyFence visits every state of a NodeFence that matters.
func everyFence(visit func(Facts)) {
	stages := []func(*Facts){
		func(*Facts) {}, attempted(power, ""), attempted(power, v1alpha1.ResultFailed), attempted(confirmation, ""),
		all(agents(byHandAgent), attempted(byHandAgent, "")), proved(power), all(proved(power), released),
		all(agents(bmc), proved(bmc)), all(agents(medik8s), proved(medik8s)), all(agents(storage), proved(storage)),
		all(agents(storage), attempted(storage, "", startedAgo(time.Hour))), all(agents(storage, storage2), proved(storage)),
		all(agents(storage, storage2), proved(storage), attempted(storage2, "")),
		all(agents(storage, storage2), proved(storage), attempted(storage2, v1alpha1.ResultTimedOut)),
		all(proved(power), ending), all(proved(power), ending, tried(2, 0)),
		all(proved(power), released, ending, allUndone),
		all(proved(power), ending, allUndone, returnedAgo(time.Hour)),
		all(attempted(power, v1alpha1.ResultContradicted), released),
		all(agents(medik8s, power), proved(medik8s), provenAgo(time.Hour)),
		all(agents(medik8s, power), proved(medik8s), provenAgo(time.Hour), attempted(power, "")),
		all(agents(medik8s), attempted(medik8s, "", startedAgo(5*time.Minute))),
		all(agents(medik8s), attempted(medik8s, "", startedAgo(time.Hour))),
		all(proved(power), forsook), all(agents(storage), proved(storage), forsook),
		all(agents(medik8s, storage), attempted(storage, v1alpha1.ResultTimedOut), proved(medik8s)),
	}
	for _, stage := range stages {
		for _, word := range []v1alpha1.Unfence{"", v1alpha1.UnfenceWhenReleased, v1alpha1.UnfenceNow,
			v1alpha1.UnfenceAbandon} {
			for bits := range 1 << 3 {
				for _, said := range []func(*Facts){func(*Facts) {}, confirm("burned"), all(confirm("burned"), copied),
					givenUp} {
					f := facts(stage, unfence(word), said)
					f.Fence.Terminating, f.Fence.Finalized = bits&1 != 0, bits&2 == 0
					if bits&4 != 0 {
						byPolicy(&f)
					}
					visit(f)
				}
			}
		}
	}
}

// everyNode visits every possible result of the live reads of a node, in every order, with every remainder on the node.
func everyNode(visit func(with Facts)) {
	nodes := []objects.Node{{}, {Ready: objects.ReadyFalse}, {Ready: objects.ReadyTrue}, {Ready: objects.ReadyUnknown},
		{Ready: objects.ReadyUnknown, OwnTaint: true}, {Ready: objects.ReadyTrue, OwnTaint: true},
		{Ready: objects.ReadyUnknown, ControlPlane: true}, {Ready: objects.ReadyTrue, VolumesFenced: true}}
	orders := [][3]session.Read{
		{read(2), read(3), read(4)}, {}, {read(2)}, {read(2), read(3)}, {old(2), read(3), read(4)}, {read(2), old(3),
			read(4)},
		{read(2), read(3), old(4)}, {read(3), read(2), read(4)}, {read(2), read(4), read(3)}, {read(0), read(2), read(3)},
	}
	sights := []Sight{{LeaseSince: ago(SilentAfter)}, {LeaseSince: now(), RunsSince: ago(SilentAfter)},
		{LeaseSince: ago(1), RunsSince: ago(SilentAfter)}, {LeaseSince: now()}}
	lefts := []RemainingFacts{{}, {Leaving: Remains{Pods: 1}, All: Remains{Pods: 1}},
		{Leaving: Remains{VolumeAttachments: 1}, All: Remains{VolumeAttachments: 1}}, {All: Remains{Pods: 1}},
		{All: Remains{VolumeAttachments: 1}},
		{Held: []HeldPod{{UID: "pod"}, {UID: "later"}}, Leaving: Remains{Pods: 2}, All: Remains{Pods: 2}},
		{Unheld: 1, All: Remains{Pods: 1}}, {Basis: Basis{Attempt: 15}}}
	for i := range lefts {
		lefts[i].AttachmentsListed = true
	}
	lefts = append(lefts, RemainingFacts{}, RemainingFacts{PodsOnly: true},
		RemainingFacts{PodsOnly: true, Leaving: Remains{Pods: 1}, All: Remains{Pods: 1}})
	for place, order := range orders {
		if place > 0 { // beside fewer states of the rest
			sights, lefts = sights[:2], lefts[:1]
		}
		for i, node := range nodes {
			node.Found, node.ResourceVersion = i > 0, "20"
			for _, boot := range []string{"boot", "boot2", "boot2 id2 uuid2", ""} {
				node.BootID, node.Machine = boot, objects.Machine{MachineID: "id", SystemUUID: "uuid"}
				if name, of, other := strings.Cut(boot, " "); other {
					id, uuid, _ := strings.Cut(of, " ")
					node.BootID, node.Machine = name, objects.Machine{MachineID: id, SystemUUID: uuid}
				}
				for _, version := range []string{"7", "8", ""} {
					for _, sight := range sights {
						sight.LeaseVersion = version
						for _, left := range lefts {
							left.Read = order[2]
							visit(Facts{Node: node, NodeRead: order[0], Lease: objects.Lease{ResourceVersion: version},
								LeaseRead: order[1], Sight: sight, Remaining: left})
						}
					}
				}
			}
		}
	}
}

// fresh reports whether a read counts, and later whether it also followed another. Both are written independently of
// the code.
func fresh(r session.Read) bool        { return r.Order > 0 && now().Sub(r.Sent) <= 5*time.Second }
func later(r, other session.Read) bool { return fresh(r) && r.Order > other.Order }
func holds(f Facts, condition string) bool {
	return meta.IsStatusConditionTrue(f.Fence.Status.Conditions, condition)
}

// endedBy reports whether the end of the fence was requested at once. Deleting a fence of volumes does not request
// that: its node reaches the volumes only after a reboot, or by a person's decision.
func endedBy(f Facts) bool {
	p := f.Fence.Status.Proof
	return f.Fence.Terminating && (p == nil || p.Covers != v1alpha1.CoversVolumes) ||
		f.Fence.Spec.Unfence == v1alpha1.UnfenceNow || f.Fence.Spec.Unfence == v1alpha1.UnfenceAbandon
}

func openAttempt(f Facts) bool {
	n := len(f.Fence.Status.Attempts)
	return n > 0 && f.Fence.Status.Attempts[n-1].EndedAt == nil
}

func word(f Facts) bool {
	p := f.Fence.Status.Proof
	return (p == nil || p.Covers != v1alpha1.CoversVolumes) && f.Fence.Spec.Confirmation != "" &&
		f.Fence.Spec.ConfirmationUID == f.Fence.UID
}

// renewedSince, sameBoot and quiet describe the node since the proof.
func renewedSince(f Facts) bool { return f.Lease.ResourceVersion == "8" }
func notReady(f Facts) bool {
	return f.Node.Ready == objects.ReadyFalse || f.Node.Ready == objects.ReadyUnknown
}

// isAway reports whether the node is not Ready, and, for a policy, silent.
func isAway(f Facts) bool {
	return f.Node.Ready == objects.ReadyUnknown || f.Node.Ready == objects.ReadyFalse && f.Fence.Spec.PolicyName == ""
}
func sameBoot(f Facts) bool { return f.Node.Found && f.Node.BootID == "boot" }
func quiet(f Facts) bool    { return now().Sub(f.Sight.LeaseSince) >= 40*time.Second }
func sameMachine(f Facts) bool {
	return f.Node.Machine == objects.Machine{MachineID: "id", SystemUUID: "uuid"}
}
func wasRebooted(f Facts) bool {
	return f.Node.Found && f.Node.BootID == "boot2" && sameMachine(f) &&
		(renewedSince(f) || f.Fence.Status.Proof != nil && f.Fence.Status.Proof.Covers == v1alpha1.CoversReboot)
}

// inForce reports whether the fence was proven and read, and its end has not begun.
func inForce(f Facts) bool {
	return fresh(f.FenceRead) && f.Fence.Finalized && f.Fence.Status.Proof != nil && holds(f, "Fenced") && !endedBy(f) &&
		!holds(f, "Returned")
}

func nodeRead(f Facts) bool {
	return later(f.NodeRead, f.FenceRead) && later(f.LeaseRead, f.NodeRead)
}

// mayTaint returns the reason why the node must not be tainted, or "".
func mayTaint(f Facts) string {
	switch {
	case !inForce(f):
		return "nothing shows that the node is fenced"
	case f.Fence.Status.Proof.Covers != v1alpha1.CoversUntilUnfenced:
		return "its processes may run"
	case openAttempt(f):
		return "an agent is at work"
	case !nodeRead(f):
		return "the read is outdated"
	case !f.Node.Found || !notReady(f):
		return "the node is not known to be down"
	case f.Node.OwnTaint:
		return "the node is tainted"
	case sameBoot(f) && renewedSince(f) && !quiet(f):
		return "the node runs"
	case f.Node.BootID != "boot":
		return "the node may run again"
	}
	return ""
}

// mayShun returns the reason why new pods must not be kept from the node, or "".
func mayShun(f Facts) string {
	switch {
	case !inForce(f):
		return "nothing shows that the node is fenced"
	case f.Fence.Status.Proof.Covers != v1alpha1.CoversVolumes:
		return "it reaches its volumes, or does not run"
	case !later(f.NodeRead, f.FenceRead):
		return "the read is outdated"
	case !f.Node.Found || f.Node.BootID == "boot2":
		return "the node has booted, or is gone"
	case f.Node.VolumesFenced && !f.Node.OwnTaint:
		return "the node is tainted"
	}
	return ""
}

// mayUntaint returns the reason why the taint must not be removed, or "".
func mayUntaint(f Facts) string {
	s := f.Fence.Status
	switch {
	case !fresh(f.NodeRead) || !fresh(f.FenceRead) || !f.Node.Tainted():
		return "the node is not known to be tainted"
	case holds(f, "Returned") || f.Fence.Terminating && !f.Fence.Finalized:
		return ""
	case inForce(f) && f.Fence.OfVolumes() && f.Node.BootID == "boot2" && later(f.NodeRead, f.FenceRead):
		return ""
	case holds(f, "Fenced") && (f.Node.BootID != "boot2" || !nodeRead(f)):
		return "the fence is in force"
	case holds(f, "Fenced"):
		return ""
	case openAttempt(f):
		return "an agent is at work"
	case s.Proof == nil, unkept(&s): // the removal releases nothing
		return ""
	case f.Node.BootID == "boot2" && nodeRead(f): // it runs again
		return ""
	case toBeUndone(f):
		return "the fence is not undone"
	case !endedBy(f) && f.Node.Found && f.Node.BootID != "boot2":
		return "the node is not back"
	}
	return ""
}

// toBeUndone reports whether an agent has something to undo, as power, medik8s and both of storage have.
func toBeUndone(f Facts) bool {
	if f.Fence.Spec.Unfence == v1alpha1.UnfenceAbandon {
		return false
	}
	return slices.ContainsFunc(f.Fence.Status.Attempts, func(a v1alpha1.Attempt) bool {
		return a.UndoneAt == nil && slices.Contains([]string{power, medik8s, storage, storage2}, a.Agent)
	})
}

// mayStart returns the reason why an agent must not be started, or "".
func mayStart(f Facts, run Run) string {
	if !fresh(f.FenceRead) || !fresh(f.Run.Read) || f.Run.Of != run || f.Run.State != RunAbsent {
		return "it is not known that it was not started"
	}
	if run.Undo {
		written := func(a v1alpha1.Attempt) bool {
			return a.Number == run.Attempt && a.UndoTry == run.Try && a.UndoTriedAt != nil
		}
		switch {
		case holds(f, "Fenced") || openAttempt(f) || !toBeUndone(f):
			return "it has nothing to undo"
		case !slices.ContainsFunc(f.Fence.Status.Attempts, written):
			return "the try was not written down"
		}
		return ""
	}
	a := f.Fence.Status.Attempts
	switch {
	case !openAttempt(f) || a[len(a)-1].Number != run.Attempt || a[len(a)-1].Agent != run.Agent:
		return "the attempt was not written down"
	case endedBy(f) || word(f) || f.Fence.GivenUp:
		return "no longer requested"
	case now().Sub(a[len(a)-1].StartedAt.Time) >= 5*time.Minute:
		return "its time is over"
	case (f.Fence.Spec.PolicyName != "" || f.Fence.Status.Proof != nil && !f.Fence.OfVolumes()) &&
		(!later(f.NodeRead, f.FenceRead) || !isAway(f)):
		return "the node may be back"
	}
	return ""
}

// mayWrite returns the reason why a status must not be written, or "".
func mayWrite(f Facts, s *v1alpha1.NodeFenceStatus) string {
	before := &f.Fence.Status
	set := func(c string) bool { return meta.IsStatusConditionTrue(s.Conditions, c) }
	switch {
	case fresh(f.FenceRead) && !f.Fence.Finalized && holds(f, "Fenced") && unkept(s):
		return ""
	case !fresh(f.FenceRead) || !f.Fence.Finalized || holds(f, "Returned"):
		return "the fence was not read, or is over"
	case set("Succeeded") != (s.Proof != nil) || set("Processing") && (s.Proof != nil || set("Returned")):
		return "a node health check reads something else"
	case set("Fenced") != (s.Proof != nil) && (set("Fenced") || !holds(f, "Fenced") && before.Proof == nil):
		return "a condition without a proof"
	case s.Proof != nil && (before.Proof == nil || before.Proof.Attempt != s.Proof.Attempt):
		return mayProve(f)
	case before.Proof != nil && s.Proof != nil && !reflect.DeepEqual(before.Proof, s.Proof):
		return mayCover(f, *s.Proof)
	case len(s.Attempts) > len(before.Attempts):
		return mayBegin(f)
	case before.Proof != nil && s.Proof == nil:
		return mayWithdraw(f)
	case (holds(f, "Fenced") || unkept(before)) && !set("Fenced") && !unkept(s):
		return mayLeave(f)
	case set("Fenced") && vacated(s.Conditions) && !vacated(before.Conditions) && (!inForce(f) || !nodeRead(f) ||
		f.Node.Found || !knowsVolumes(f) || f.Remaining.All != Remains{}):
		return "something may remain on the node"
	case set("Released") && !holds(f, "Released") && (!inForce(f) || !f.Node.OwnTaint || !nodeRead(f)):
		return "the node is not tainted"
	case set("Returned"):
		return mayReturn(f)
	}
	return ""
}

func mayProve(f Facts) string {
	a := f.Fence.Status.Attempts[len(f.Fence.Status.Attempts)-1]
	read := f.FenceRead
	switch byHand := a.Agent == byHandAgent || a.Agent == confirmation; {
	case !openAttempt(f) || endedBy(f):
		return "not requested"
	case byHand && !word(f):
		return "no agent reported success"
	case !byHand && (word(f) || !fresh(f.Run.Read) || f.Run.State != RunSucceeded ||
		f.Run.Of != Run{Attempt: a.Number, Agent: a.Agent}):
		return "no agent has said that the node is fenced"
	case !byHand:
		read = f.Run.Read
	}
	switch {
	case !later(f.NodeRead, read) || !later(f.LeaseRead, read):
		return "the node was read before the proof"
	case (a.Agent == power || a.Agent == bmc) && f.Node.Found && f.Node.BootID != "boot":
		return "the node was rebooted meanwhile"
	case slices.Contains([]string{medik8s, storage, storage2}, a.Agent) && f.Node.Found && f.Node.BootID != "boot" &&
		!sameMachine(f):
		return "another machine has the name of the node"
	}
	return ""
}

func mayWithdraw(f Facts) string {
	ran := !f.Sight.RunsSince.IsZero() && f.Sight.LeaseSince.Sub(f.Sight.RunsSince) >= 40*time.Second
	if !inForce(f) || !nodeRead(f) || !sameBoot(f) || !renewedSince(f) || quiet(f) || !ran ||
		f.Fence.Status.Proof.Covers == v1alpha1.CoversVolumes {
		return "nothing contradicts the proof"
	}
	return ""
}

func mayLeave(f Facts) string {
	left := f.Remaining
	switch {
	case endedBy(f):
		return ""
	case !nodeRead(f) || !knowsVolumes(f):
		return "the read is outdated"
	case wasRebooted(f) && (left.Leaving == Remains{} || isNoEvidence(f) && left.Leaving.VolumeAttachments == 0):
		return ""
	case left.All != Remains{}:
		return "something remains on the node"
	case !f.Node.Found && !toBeUndone(f):
		return ""
	case f.Fence.Spec.Unfence == v1alpha1.UnfenceWhenReleased && holds(f, "Released") && f.Node.OwnTaint:
		return ""
	}
	return "the node is not back"
}

func mayReturn(f Facts) string {
	switch {
	case holds(f, "Fenced") || openAttempt(f) || toBeUndone(f):
		return "it is in force, or not undone"
	case !later(f.NodeRead, f.FenceRead) || !later(f.LeaseRead, f.FenceRead) || f.Node.Tainted():
		return "the node may be tainted"
	case endedBy(f):
		return ""
	case f.Fence.Status.Proof == nil && (f.Fence.Spec.PolicyName == "" || isAway(f)):
		return "it was asked for"
	case f.Fence.Status.Proof != nil && f.Node.Found && !wasRebooted(f):
		return "the node is not back"
	}
	return ""
}

// broken returns the promise that a decision breaks, or "".
func broken(f Facts, d Decision) string {
	switch d.Action {
	case AddTaint:
		if d.Taint == VolumesFenced {
			return mayShun(f)
		}
		return mayTaint(f)
	case RemoveTaint:
		return mayUntaint(f)
	case StartRun:
		return mayStart(f, d.Run)
	case WriteStatus:
		return mayWrite(f, d.Status)
	case RemoveFinalizer:
		if !holds(f, "Returned") || !f.Fence.Terminating {
			return "the fence is not over"
		}
	case DeleteFence:
		if !holds(f, "Returned") || !fresh(f.FenceRead) {
			return "the fence is not over"
		}
	case StopRun:
		if !fresh(f.Run.Read) || d.Run.Undo || !openAttempt(f) {
			return "no agent is at work"
		}
		if !d.Run.Undo && f.Run.Of.Agent == storage {
			return "another NetworkFence of the storage system would end"
		}
	case Wait:
		return missed(f, d)
	case ReadFence, ReadNode, ReadLease, ReadRun, ListRemaining, AddFinalizer:
	}
	return ""
}

// judge checks the decision on the facts, and returns its action.
func judge(t *testing.T, f Facts) Action {
	t.Helper()
	d := Decide(f, now())
	if wrong := broken(f, d); wrong != "" {
		t.Fatalf("%v (%v): %s\n%+v", d.Action, d.Reason, wrong, f)
	}
	if d.RecordsWait { // the wait is judged, too
		if wrong := broken(f, decide(f, now())); wrong != "" {
			t.Fatalf("it waits (%v): %s\n%+v", d.Reason, wrong, f)
		}
	}
	asksAgain := d.Action == WriteStatus &&
		(f.Run.State == Running || slices.Contains([]Reason{ReasonUnfencing, ReasonUnfenceFailed}, d.Reason))
	if d.After < 0 || d.After > DefaultKeepReturned || d.After > 0 && d.Action != Wait && !asksAgain || d.Reason == "" {
		t.Fatalf("%v (%v) waits %s\n%+v", d.Action, d.Reason, d.After, f)
	}
	return d.Action
}

func TestPromisesInEveryCombinationOfFenceAndNode(t *testing.T) {
	t.Parallel()
	visited, decided := 0, map[Action]int{}
	everyFence(func(f Facts) {
		everyNode(func(with Facts) {
			f.Node, f.NodeRead, f.Lease, f.LeaseRead = with.Node, with.NodeRead, with.Lease, with.LeaseRead
			f.Sight, f.Remaining = with.Sight, with.Remaining
			if f.Remaining.Basis == (Basis{}) {
				f.Remaining.Basis = f.Basis()
			}
			decided[judge(t, f)]++
			visited++
		})
	})
	for _, a := range []Action{AddTaint, RemoveTaint, WriteStatus, AddFinalizer, ReadNode, ReadLease, ListRemaining,
		Wait} {
		if decided[a] == 0 {
			t.Errorf("nothing leads to %s", a)
		}
	}
	if want := 26 * 4 * 8 * 4 * 8 * 4 * 3 * (4*11 + 9*2); visited != want {
		t.Errorf("visited %d combinations, want %d", visited, want)
	}
}

func TestPromisesInEveryCombinationOfFenceAndAgent(t *testing.T) {
	t.Parallel()
	visited, decided := 0, map[Action]int{}
	nodes := []func(*Facts){func(*Facts) {}, down(), down(ready), down(rebooted, tainted), down(replaced), nodeGone,
		down(rebooted, shunned), down(unready)}
	agree := func(f *Facts) { f.NodeRead.Order, f.LeaseRead.Order = 5, 6 } // after the run
	everyFence(func(f Facts) {
		for bits := range 1 << 5 {
			for state := RunUnknown; state <= RunFailed; state++ {
				for number := int32(1); number <= 2; number++ {
					for _, node := range nodes {
						f := f
						node(&f)
						f.FenceRead, f.TaintSeen = []session.Read{read(1), old(1), {}, read(3)}[bits&3], bits&4 != 0
						f.Run = RunFacts{Read: []session.Read{read(4), old(4)}[bits>>3&1], State: state, EndedAt: ago(time.Hour)}
						f.Run.Of = Run{Attempt: number, Undo: bits&16 != 0}
						if n := len(f.Fence.Status.Attempts); n > 0 {
							f.Run.Of.Agent = f.Fence.Status.Attempts[n-1].Agent
							f.Run.Of.Try = f.Fence.Status.Attempts[n-1].UndoTry
						}
						decided[judge(t, f)]++
						agree(&f)
						decided[judge(t, f)]++
						visited += 2
					}
				}
			}
		}
	})
	for _, a := range []Action{StartRun, StopRun, ReadRun, WriteStatus, RemoveFinalizer, DeleteFence, RemoveTaint, Wait} {
		if decided[a] == 0 {
			t.Errorf("nothing leads to %s", a)
		}
	}
	if want := 26 * 4 * 8 * 4 * 32 * 6 * 2 * 8 * 2; visited != want {
		t.Errorf("visited %d combinations, want %d", visited, want)
	}
}
