package fencing

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/docs"
	"github.com/csi-reclaimer/csi-reclaimer/test/docs/picture"
)

// The actors of docs/pictures/node-fencing.svg.
const (
	people = iota
	apiServer
	guard
	agentLane
	nodeLane
)

// drawing is a NodeFence that is drawn in a picture while a test executes its decisions.
type drawing struct {
	t     *testing.T
	f     Facts
	drawn *picture.Sequence
	order int
	// clock is the time in the picture.
	clock time.Time
	// node, version, run and remaining are the results of live reads.
	node      objects.Node
	version   string
	run       RunState
	remaining RemainingFacts
	last      Reason
}

// decides discards all reads, and draws the decisions up to the next wait.
func (s *drawing) decides(with Reason) {
	s.t.Helper()
	s.f.FenceRead, s.f.NodeRead, s.f.LeaseRead = session.Read{}, session.Read{}, session.Read{}
	s.f.Node, s.f.Lease, s.f.Run, s.f.Remaining = objects.Node{}, objects.Lease{}, RunFacts{}, RemainingFacts{}
	s.drawn.Tell(guard, s.next)
	if s.last != with {
		s.t.Errorf("it ends with %s, not %s", s.last, with)
	}
}

func (s *drawing) read() session.Read {
	s.order++
	return session.Read{Sent: s.clock, Order: s.order}
}

func (s *drawing) next() picture.Step {
	d := Decide(s.f, s.clock)
	s.last = d.Reason
	step := picture.Step{Reason: string(d.Reason), Sentence: d.Reason.Sentence(), Waits: d.Action == Wait,
		Settled: d.Reason == ReasonReturned && d.Action == Wait, Reads: d.Action.Kind() == session.Reads, To: apiServer}
	switch d.Action {
	case Wait:
	case AddFinalizer:
		step.Words, s.f.Fence.Finalized = "adds the finalizer to the NodeFence", true
	case ReadFence:
		step.Words, s.f.FenceRead = "the NodeFence", s.read()
	case ReadNode:
		step.Words, s.f.Node, s.f.NodeRead = "the Node", s.node, s.read()
	case ReadLease:
		step.Words, s.f.Lease, s.f.LeaseRead = "its Lease", objects.Lease{ResourceVersion: s.version}, s.read()
		if s.f.Sight.LeaseVersion != s.version {
			s.f.Sight.LeaseVersion, s.f.Sight.LeaseSince = s.version, s.clock
		}
	case ReadRun:
		step.Words, s.f.Run = "the Job of the agent", RunFacts{Of: d.Run, State: s.run, Read: s.read()}
	case ListRemaining:
		step.Words, s.f.Remaining = "what is left on the node", s.remaining
		s.f.Remaining.Read, s.f.Remaining.Basis, s.f.Remaining.AttachmentsListed = s.read(), s.f.Basis(), !d.PodsOnly
		s.f.Remaining.PodsOnly = d.PodsOnly
	case WriteStatus:
		step.Words = "writes the status: " + string(d.Status.Phase)
		s.f.Fence.Status, s.f.FenceRead = *d.Status, session.Read{}
	case StartRun:
		step.Words, step.To = "starts: "+map[bool]string{false: "power off", true: "power on"}[d.Run.Undo], agentLane
		s.run, s.f.Run = Running, RunFacts{}
	case AddTaint:
		step.Words = "adds the taint out-of-service to the Node"
		s.node.OwnTaint, s.f.TaintSeen, s.f.Node, s.f.NodeRead = true, true, objects.Node{}, session.Read{}
	case RemoveTaint:
		step.Words = "removes the taint from the Node"
		s.node.OwnTaint, s.f.TaintSeen, s.f.Node, s.f.NodeRead = false, false, objects.Node{}, session.Read{}
	default:
		panic(d.Action.String() + " is not drawn")
	}
	return step
}

// nodeFencing draws a node that hangs, is powered off, and comes back.
func nodeFencing(t *testing.T) *picture.Sequence {
	t.Helper()
	drawn := &picture.Sequence{
		Title: "How a node is fenced, and comes back",
		Description: "A user or a FencePolicy creates a NodeFence. volume-guard starts an agent, which powers the node off " +
			"and reads that it is off. Only after this proof volume-guard adds the taint out-of-service, by which Kubernetes " +
			"replaces the pods and detaches the volumes. When a user ends the fence, the agent powers the node on, and the " +
			"taint goes.",
		Lanes: []string{"people, FencePolicy", "API server", "volume-guard", "agent (a Job)", "the node"},
	}
	s := &drawing{t: t, drawn: drawn, clock: now(), run: RunAbsent, version: "7", f: facts()}
	s.f.Fence.Finalized = false
	down()(&s.f)
	s.node = s.f.Node

	drawn.Section("The fence is asked for")
	drawn.Box(nodeLane, picture.Fact, "", "does not respond; may run on")
	drawn.Begin(nodeLane)
	drawn.Does(people, apiServer, "create a NodeFence")
	s.decides(ReasonFencing)
	drawn.Section("It is proven")
	drawn.Does(agentLane, nodeLane, "powers it off")
	drawn.Does(nodeLane, agentLane, "is off")
	drawn.Box(nodeLane, picture.Fact, "", "is off: nothing runs")
	s.run = RunSucceeded
	s.decides(ReasonReleased)

	drawn.Section("It ends")
	drawn.Does(people, apiServer, "end the fence")
	s.f.Fence.Spec.Unfence, s.run = v1alpha1.UnfenceNow, RunAbsent
	s.decides(ReasonUnfencing)
	drawn.Does(agentLane, nodeLane, "powers it on")
	drawn.Box(nodeLane, picture.Fact, "", "has booted, and is empty")
	s.node.BootID, s.node.Ready = "boot2", objects.ReadyTrue
	s.run, s.version = RunSucceeded, "8"
	s.decides(ReasonReturned)
	return drawn
}

func TestPictureMatchesDecisions(t *testing.T) {
	docs.CheckPicture(t, "node-fencing", nodeFencing(t))
}
