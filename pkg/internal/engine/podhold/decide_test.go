package podhold

import (
	"testing"
	"time"
)

func now() time.Time { return time.Unix(1_800_000_000, 0) }

func ago(d time.Duration) time.Time { return now().Add(-d) }

// read is a live read that was made so long ago.
func read(order int, since time.Duration) Read { return Read{Sent: ago(since), Order: order} }

// terminatingPod is a pod on node a that was deleted ten seconds ago with a grace of thirty, and whose kubelet has seen
// that.
func terminatingPod() Pod {
	return Pod{
		Namespace: "ns", Name: "db-0", UID: "uid-1", ResourceVersion: "10", Node: "a", Claims: []string{"data-db-0"},
		Held: true, Terminating: true, GraceEnds: now().Add(20 * time.Second), Running: true, Reported: true,
		Generation: 2, ObservedGeneration: 2,
	}
}

// facts are those of terminatingPod as the watch shows it, on a node that is Ready.
func facts(alter ...func(*Facts)) Facts {
	f := Facts{Mode: ModeEnforce, Pod: terminatingPod(), NodeSeen: NodeReady}
	for _, a := range alter {
		a(&f)
	}
	return f
}

func pod(alter func(*Pod)) func(*Facts) { return func(f *Facts) { alter(&f.Pod) } }
func seen(n NodeSeen) func(*Facts)      { return func(f *Facts) { f.NodeSeen = n } }
func live(f *Facts)                     { f.PodRead = read(1, 0) }
func force(p *Pod)                      { p.GraceZero, p.GraceEnds = true, ago(10*time.Second) }
func gone(p *Pod)                       { p.Ended, p.Running, p.ContainersReadyEnded = true, false, true }
func unmountSeen(f *Facts) {
	f.Sight.FinishedSince, f.Sight.FinishedWithGrace = ago(time.Second), true
}

// node is what a live read of the node has found, after that of the pod.
func node(n NodeFacts) func(*Facts) {
	return func(f *Facts) { f.Node, f.Node.Read, f.NodeSeen = n, read(2, 0), n.Seen() }
}

// lease is what a live read has found of a Lease that was seen like that so long before.
func lease(version string, since time.Duration) func(*Facts) {
	return func(f *Facts) {
		f.Lease = LeaseFacts{Read: read(3, 0), Found: version != "", ResourceVersion: version}
		f.Sight.LeaseVersion, f.Sight.LeaseSince = version, ago(since)
	}
}

func graceZeroFor(d time.Duration) func(*Facts) {
	return func(f *Facts) { f.Sight.GraceZeroSince = ago(d) }
}

func fence(of FenceFacts) func(*Facts) {
	return func(f *Facts) { f.Fence, f.Fence.Read, f.FenceSeen = of, read(4, 0), true }
}

func TestDecide(t *testing.T) {
	down := NodeFacts{Found: true, Ready: ReadyUnknown}
	outOfService := NodeFacts{Found: true, Ready: ReadyUnknown, OutOfService: true}
	for name, c := range map[string]struct {
		facts  Facts
		action Action
		reason Reason
		after  time.Duration
	}{
		"a pod that runs is held":            {facts(pod(func(p *Pod) { p.Terminating = false })), Wait, ReasonNotTerminating, 0},
		"a pod that is terminating is held":  {facts(), Wait, ReasonProcessesMayRun, 0},
		"nothing is known":                   {Facts{}, Wait, ReasonNothingToHold, 0},
		"finished and unmounted: read first": {facts(pod(gone), pod(force), unmountSeen), ReadPod, ReasonFinished, 0},
		"finished and unmounted, read live":  {facts(pod(gone), pod(force), unmountSeen, live), RemoveFinalizer, ReasonFinished, 0},
		"out of service, read live": {
			facts(pod(force), live, node(outOfService)), RemoveFinalizer, ReasonOutOfService, 0},
		"down is no evidence": {facts(pod(force), live, node(down)), Wait, ReasonNodeUnreachable, 0},
		"gone for long": {
			facts(pod(force), live, node(NodeFacts{}), lease("", LeaseDuration), graceZeroFor(LeaseDuration)),
			RemoveFinalizer, ReasonNodeGone, 0},
		"fenced": {
			facts(pod(force), live, node(down), fence(FenceFacts{InForce: true, Coverage: CoversUntilUnfenced})),
			RemoveFinalizer, ReasonNodeFenced, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if d := Decide(c.facts, now()); d != (Decision{c.action, c.reason, c.after}) {
				t.Errorf("%v because %s after %s, want %v because %s after %s", d.Action, d.Reason, d.After,
					c.action, c.reason, c.after)
			}
		})
	}
}
