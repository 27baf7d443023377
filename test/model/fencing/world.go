package fencing

import "github.com/csi-reclaimer/csi-reclaimer/test/model/memory"

const (
	maxPods     = 2
	maxAttempts = 6
	maxReplicas = memory.Replicas
)

// age is how long something has been so. The zero value: it has just begun.
type age uint8

const (
	young age = iota
	// old: as long as matters. older: and the time that an agent has to stop is over, too.
	old
	older
)

// condition is the status of a condition. The zero value: it is not there.
type condition uint8

const (
	noCondition condition = iota
	isFalse
	isTrue
)

// unfence is spec.unfence.
type unfence uint8

const (
	whenReturned unfence = iota
	whenReleased
	now
	abandon
)

// fence is a NodeFence as the API server holds it. The zero value: there is none.
type fence struct {
	// uid numbers the NodeFences from 1.
	uid                    uint8
	terminating, finalized bool
	unfence                unfence
	// word is the confirmation, 0 for none. copied: it is a copy of one of another NodeFence.
	word                       uint8
	copied                     bool
	fenced, released, returned condition
	// vacant: it does not count against the limits of policies.
	vacant bool
	// sinceReturned is since when the condition Returned is as it is.
	sinceReturned               age
	count                       uint8
	attempts                    [maxAttempts]attempt
	proven                      bool
	proofOf, proofBoot, proofAt uint8 // the attempt, the boot ID, and the version of the Lease
	proofSecond                 bool  // it is about the second machine
	covers                      uint8 // the agents that have proven which volumes they cover, a bit each
}

// attempt is one run of one agent.
type attempt struct {
	// agent is the number of the agent from 1, and byWord for a person's word.
	agent uint8
	// result is that of the attempt, by its number; 0 for none.
	result uint8
	// word is the message, if it is the confirmation.
	word uint8
	// boot is the boot ID, and pods are those that were terminating, a bit each.
	boot, pods uint8
	undone     bool
	// tries counts the tries to undo it, and sinceTry is since when the last one has been at work.
	tries    uint8
	sinceTry age
	// second: it began with the second machine.
	second bool
	// since is since when it has been at work, or has ended.
	since age
}

// byWord is the number of the agent that is a person's word.
const byWord = 9

// runState is how far the object of an agent is. The zero value: there is none.
type runState uint8

const (
	noRun runState = iota
	running
	stopping
	succeeded
	failed
)

// run is the object of an agent.
type run struct {
	state runState
	// acted: the agent has done what it is for. hung: it has no result, or does not end.
	acted, hung bool
	// since is since when it has failed.
	since age
	// try is the number of the try to undo.
	try uint8
}

// node is a machine, its kubelet, and its Node.
type node struct {
	// cut: the kubelet does not reach the API server. off: the machine does not run.
	cut, off bool
	// agent: an agent keeps the machine off until it undoes that; person: a person does.
	agent, person bool
	// storage are the agents whose volumes the machine does not reach, a bit each.
	storage uint8
	// boot is the boot ID of the machine, and shown that in the Node.
	boot, shown uint8
	// second: another machine has taken the name. It is the one that boots and that the Node shows. The first one is cut
	// off, and its processes run on.
	second bool
	// there: the Node exists, ready: its condition Ready is True, else it is Unknown.
	there, ready, tainted bool
	// lease is the version of the Lease, 0 for none.
	lease uint8
	// lateLease: a renewal is under way. lateStatus: a status is, with this boot ID; 0 for none.
	lateLease  bool
	lateStatus uint8
}

func (n node) connected() bool { return !n.cut && !n.off }

// pod is a Pod that is held, and its processes on the machine.
type pod struct {
	exists, terminating bool
	// collected: the pod garbage collector has marked it Failed. attached: its volume is attached to the node.
	collected, attached bool
	// runs: its processes run. known: the kubelet knows of the pod, deleted: and of its deletion.
	runs, known, deleted bool
	// unwritten: the machine may hold what its processes have written, and the volume has not. lent: its volume was given
	// to a pod on another node, because the fence keeps this one from it.
	unwritten, lent bool
	// evidence is what the controller that holds it has read, one thing after the other. fencedOff: the NodeFence was
	// read, and keeps the node from the volume, for the lock of the claim.
	evidence  evidence
	fencedOff bool
}

// evidence is what was read for the release of a pod.
type evidence struct {
	// covered: the NodeFence covers the pod; if bound, while the Node shows this boot ID. notReady: the Node is not Ready,
	// and has it.
	covered, bound, notReady bool
	boot                     uint8
}

// sight is what one replica has seen of the fence. seen: anything.
type sight struct {
	seen  bool
	lease uint8
	since age
	// runsOn: the node shows that it runs as before, since runsSince.
	runsOn    bool
	runsSince age
}

// work is the state of the work of a replica on the fence.
type work struct {
	on bool
	// fence is what it works with, and changed: that was written since.
	fence              fence
	changed, taintSeen bool
	// node is what was read of the Node, and nodeChanged: it was written since.
	nodeThere, nodeReady, nodeTainted, nodeChanged, nodeSecond bool
	nodeBoot                                                   uint8
	lease                                                      uint8
	// The run that was read.
	runOf     uint8
	runTry    uint8
	runUndoes bool
	runState  runState
	runSince  age
	// terminating are the pods that were, remains those that were there, and attached those whose volumes were attached, a
	// bit each.
	terminating, remains, attached uint8
	sight                          sight
	// The orders of the live reads, 0 for those not made, and how many there were.
	fenceRead, nodeRead, leaseRead, runRead, remainingRead, reads uint8
	// For the judge: the node was not Ready at a moment since the session began.
	wasNotReady bool
}

// line is one replica of volume-guard.
type line struct {
	up bool
	// fence and tainted are what its watches show.
	fence   fence
	tainted bool
	sight   sight
	session work
	// woken: the fence is in the queue, timed: it comes back by the clock.
	woken, timed bool
}

// state is everything. All of it is plain, so that it can be compared and copied.
type state struct {
	fence fence
	born  uint8
	node  node
	pods  [maxPods]pod
	// runs are the objects of agents that fence, and undos those of agents that undo it, of one attempt each.
	runs, undos [maxAttempts + 1]run
	lines       [maxReplicas]line
	left        Budget
	// lied: what an attempt proves is not so. answered: somebody answers for what runs on the node.
	lied     [maxAttempts]bool
	answered bool
	// falseWord: the confirmation is not so. abandoned: somebody has said that they undo what agents did.
	falseWord, abandoned bool
	// vouched: somebody has ended the fence at once, and answers for what is not written yet.
	vouched bool
}
