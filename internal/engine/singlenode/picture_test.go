package singlenode

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/docs"
	"github.com/csi-reclaimer/csi-reclaimer/test/docs/picture"
)

// The actors of docs/pictures/single-node-locks.svg.
const (
	nodeA = iota
	claimLane
	guard
	nodeB
)

// told is a claim with two pods that want it. It obeys Decide and DecideLock, and draws each step.
type told struct {
	drawn *picture.Sequence
	order int
	claim Claim
	// first runs, or will run, and second comes later.
	first, second User
	last          Reason
}

// gate decides about the gate of a pod until it waits, and draws each step.
func (s *told) gate(pod, other *User) {
	f := Facts{Mode: ModeAll, Pod: pod.Pod}
	f.Claims = []ClaimFacts{{Claim: s.claim}}
	s.drawn.Tell(guard, func() picture.Step {
		d := Decide(f, now())
		step := s.step(d.Action, d.Reason)
		switch d.Action {
		case Wait:
			step.Settled = d.Reason == ReasonNotGated
		case TakeLock:
			s.claim = lockedBy(s.claim, lockOf(f.Pod))
			f.Claims[0] = ClaimFacts{Claim: s.claim, Read: read(s.order)}
			step.Words, step.To = "writes the lock: "+f.Pod.Name, claimLane
		case ListPods:
			f.UsersRead = read(s.order)
			if other.Pod.UID != "" {
				f.Users = []User{*other}
			}
			step.Words, step.To = "which pods use the claim", claimLane
		case RemoveGate:
			f.Pod.Gated, pod.Pod.Gated = false, false
			step.Words, step.To = "removes the gate of "+f.Pod.Name, s.node(pod)
		default:
			panic(d.Action.String() + " is not drawn")
		}
		return step
	})
}

// lock decides about the lock until it waits, and draws each step.
func (s *told) lock(holder *User) {
	f := LockFacts{Claim: s.claim, Holder: *holder}
	s.drawn.Tell(guard, func() picture.Step {
		d := DecideLock(f, now())
		step := s.step(d.Action, d.Reason)
		switch d.Action {
		case Wait:
			step.Settled = d.Reason == ReasonFree
		case ReadHolder:
			f.HolderRead = read(s.order)
			step.Words, step.To = "the pod that has the lock", nodeA
		case FreeLock:
			s.claim.Lock, s.claim.Locked, s.claim.Kept = Lock{}, false, false
			f.Claim = s.claim
			step.Words, step.To, step.Ends = "removes the lock", claimLane, true
		default:
			panic(d.Action.String() + " is not drawn")
		}
		return step
	})
}

func (s *told) step(a Action, why Reason) picture.Step {
	s.order++
	s.last = why
	return picture.Step{Reason: string(why), Sentence: why.Sentence(), Waits: a == Wait, Reads: a.Kind() == session.Reads}
}

func (s *told) node(pod *User) int {
	if pod == &s.first {
		return nodeA
	}
	return nodeB
}

func (s *told) ends(t *testing.T, with Reason) {
	t.Helper()
	if s.last != with {
		t.Errorf("it ends with %s, not %s", s.last, with)
	}
}

// singleNodeLocks draws two pods on two nodes that want one claim.
func singleNodeLocks(t *testing.T) *picture.Sequence {
	t.Helper()
	drawn := &picture.Sequence{
		Title: "Who is on which node: the lock of a claim",
		Description: "Two pods want one claim. The first gets its lock and runs on node a. The second has a scheduling " +
			"gate, so it gets no node while the first has the lock, also while node a does not respond. Once it is shown that " +
			"the processes of the first have ended, volume-guard removes the lock, writes that of the second, and removes its " +
			"gate.",
		Lanes: []string{"web-0, on node a", "claim data", "volume-guard", "web-1, on node b"},
	}
	s := &told{drawn: drawn, claim: claim("data"), first: user(), second: user()}
	s.first.Pod.Gated, s.first.Pod.Node, s.first.Pod.Running = true, "", false
	s.second.Pod = gatedPod()

	drawn.Section("The first pod gets the lock")
	drawn.Box(nodeA, picture.Fact, "", "web-0 is created, with the scheduling gate")
	s.gate(&s.first, &User{})
	drawn.Box(nodeA, picture.Fact, "", "web-0 runs on node a")
	drawn.Begin(nodeA)
	drawn.Beside(claimLane, picture.Fact, "", "locked by web-0")
	drawn.Begin(claimLane)
	s.first.Pod.Node, s.first.Pod.Running = "a", true
	s.lock(&s.first)
	s.ends(t, ReasonHolderRuns)

	drawn.Does(nodeB, guard, "is created with the gate")
	s.gate(&s.second, &s.first)
	s.ends(t, ReasonClaimInUse)

	drawn.Section("Node a does not respond")
	drawn.Box(nodeA, picture.Fact, "", "web-0 is deleted, and may run on")
	drawn.Begin(nodeA)
	drawn.Beside(claimLane, picture.Fact, "", "locked by web-0")
	drawn.Begin(claimLane)
	s.first.NodeSeen = objects.NodeNotReady
	s.first.Pod.Terminating = true
	s.lock(&s.first)
	s.ends(t, ReasonHolderUnreachable)
	s.gate(&s.second, &s.first)
	s.ends(t, ReasonClaimInUse)

	drawn.Section("Its processes have ended")
	drawn.Box(nodeA, picture.Fact, "", "web-0 is gone: its kubelet has reported, or a fence proves it")
	drawn.Beside(claimLane, picture.Fact, "", "locked by web-0")
	drawn.Begin(claimLane)
	s.first = User{}
	s.lock(&s.first)
	s.ends(t, ReasonFree)
	s.gate(&s.second, &s.first)
	s.ends(t, ReasonNotGated)
	drawn.Box(nodeB, picture.Fact, "", "web-1 runs on node b")
	drawn.Begin(nodeB)
	drawn.Beside(claimLane, picture.Fact, "", "locked by web-1")
	drawn.Begin(claimLane)
	s.second.Pod.Node, s.second.Pod.Running, s.second.NodeSeen = "b", true, objects.NodeReady
	s.lock(&s.second)
	s.ends(t, ReasonHolderRuns)
	return drawn
}

func TestPictureMatchesDecisions(t *testing.T) {
	docs.CheckPicture(t, "single-node-locks", singleNodeLocks(t))
}
