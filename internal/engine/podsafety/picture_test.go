package podsafety

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/docs"
	"github.com/csi-reclaimer/csi-reclaimer/test/docs/picture"
)

// The actors of docs/pictures/pod-hold.svg.
const (
	people = iota
	apiServer
	guard
	kubeletOfA
)

// told is a pod that is drawn in a picture while a test executes its decisions.
type told struct {
	f     Facts
	drawn *picture.Sequence
	order int
	// node and fence are the results of live reads.
	node  objects.Node
	fence objects.Fence
	last  Reason
}

// happens draws an action of an actor, and the decisions that follow.
func (s *told) happens(actor int, what string, alter ...func(*Facts)) {
	s.drawn.Does(actor, apiServer, what)
	for _, a := range alter {
		a(&s.f)
	}
	s.decides()
}

func (s *told) decides() {
	s.f.PodRead, s.f.NodeRead = session.Read{}, session.Read{}
	s.f.LeaseRead, s.f.FenceRead = session.Read{}, session.Read{}
	s.f.Node, s.f.Lease, s.f.Fence = objects.Node{}, objects.Lease{}, objects.Fence{}
	s.drawn.Tell(guard, s.next)
}

func (s *told) next() picture.Step {
	d := Decide(s.f, now())
	step := picture.Step{Reason: string(d.Reason), Sentence: d.Reason.Sentence(), Waits: d.Action == Wait,
		Settled: d.Reason == ReasonNothingToHold, Reads: d.Action.Kind() == session.Reads, To: apiServer}
	s.order++
	s.last = d.Reason
	switch d.Action {
	case Wait:
	case AddFinalizer:
		step.Words, s.f.Pod.Held = "adds the finalizer to the pod", true
	case ReadPod:
		step.Words, s.f.PodRead = "the pod", read(s.order)
	case ReadFence:
		step.Words, s.f.Fence, s.f.FenceRead = "the fence", s.fence, read(s.order)
	case ReadNode:
		step.Words, s.f.Node, s.f.NodeRead = "the node", s.node, read(s.order)
	case ForceDelete:
		step.Words, s.f.Pod.GraceZero = "deletes the pod with grace period 0", true
		s.f.PodRead, s.f.NodeRead, s.f.FenceRead = session.Read{}, session.Read{}, session.Read{}
	case RemoveFinalizer:
		step.Words, s.f.Pod.Held = "removes the finalizer: the pod object goes", false
	default:
		panic(d.Action.String() + " is not drawn")
	}
	return step
}

// podHold draws the deletion of a pod on a healthy node, and on a node that does not respond.
func podHold(t *testing.T) *picture.Sequence {
	t.Helper()
	drawn := &picture.Sequence{
		Title: "A pod is held until its processes have ended",
		Description: "volume-guard adds a finalizer to a pod. Where the kubelet responds, the pod object goes after the " +
			"kubelet has reported that the processes have ended and has unmounted the volumes. Where the node does not " +
			"respond, the pod object stays, so no second pod of the name is created, until a fence proves that no process " +
			"of the pod runs.",
		Lanes: []string{"people, controllers", "API server", "volume-guard", "kubelet of node a"},
	}
	running := terminatingPod()
	runs(&running)
	running.Held = false
	drawn.Section("A pod is made")
	s := told{f: Facts{Mode: ModeEnforce, ForceRefusedSince: now(), Pod: running, NodeSeen: objects.NodeReady},
		drawn: drawn,
		node:  ready()}
	s.happens(people, "create pod db-0")
	held := s

	drawn.Section("The node is well")
	drawn.Box(kubeletOfA, picture.Fact, "", "processes of db-0 run")
	drawn.Begin(kubeletOfA)
	s.happens(people, "delete pod db-0", pod(func(p *Pod) { p.Terminating = true }))
	drawn.Does(kubeletOfA, apiServer, "reports that all processes have ended")
	drawn.End(kubeletOfA)
	ended(&s.f.Pod)
	s.f.Sight.FinishedSince, s.f.Sight.FinishedWithGrace = now(), true
	s.decides()
	s.happens(kubeletOfA, "has unmounted: sets the grace period to 0", pod(noGrace))
	ends(t, s, ReasonNothingToHold)

	s = held
	drawn.Section("The node does not respond")
	drawn.Box(kubeletOfA, picture.Fact, "", "processes of db-0 may run")
	drawn.Begin(kubeletOfA)
	s.node = down()
	s.happens(people, "delete pod db-0", pod(func(p *Pod) { p.Terminating = true }), seen(objects.NodeNotReady))
	ends(t, s, ReasonNodeUnreachable)
	s.fence = objects.Fence{InForce: true, Coverage: v1alpha1.CoversUntilUnfenced, SinceTerminating: true, BootID: "boot"}
	drawn.Does(people, kubeletOfA, "an agent fences node a, and proves it")
	drawn.End(kubeletOfA)
	s.f.FenceSeen = true
	s.decides()
	ends(t, s, ReasonNothingToHold)
	return drawn
}

func ends(t *testing.T, s told, with Reason) {
	t.Helper()
	if s.last != with {
		t.Errorf("it ends with %s, not %s", s.last, with)
	}
}

func TestPictureMatchesDecisions(t *testing.T) {
	docs.CheckPicture(t, "pod-hold", podHold(t))
}
