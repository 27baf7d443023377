package fencing

import "github.com/csi-reclaimer/csi-reclaimer/test/model/memory"

const (
	maxPods     = 2
	maxAttempts = 6
	maxReplicas = memory.Replicas
)

// age is the duration of a state, which has just begun in its zero value.
type age uint8

const (
	young age = iota
	// old means as long as matters, and older that the time of an agent to stop is over, too.
	old
	older
)

// condition is the status of a condition. The zero value does not exist.
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

// fence is a NodeFence in the API server. The zero value does not exist.
type fence struct {
	// uid numbers the NodeFences from 1.
	uid                    uint8
	terminating, finalized bool
	unfence                unfence
	// word is the confirmation, 0 for none, and copied means that it is a copy from another NodeFence.
	word                       uint8
	copied                     bool
	fenced, released, returned condition
	// vacant means that it does not count against the limits of policies.
	vacant bool
	// fencedFor and returnedFor are the waits that the conditions name, from 1, 0 for none.
	fencedFor, returnedFor uint8
	// sinceReturned is the age of the condition Returned.
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
	// result is the number of the result of the attempt, 0 for none.
	result uint8
	// word is the message, if it is the confirmation.
	word uint8
	// boot is the boot ID, and pods are the terminating pods, a bit each.
	boot, pods uint8
	// seen means that the object of the agent was seen.
	seen, undone bool
	// tries counts the tries to undo it, and sinceTry is the age of the last one.
	tries    uint8
	sinceTry age
	// second means that it began with the second machine.
	second bool
	// since is the age of the attempt, or of its end.
	since age
}

// byWord is the number of the agent that is a person's word.
const byWord = 9

// runState is the state of the object of an agent. The zero value does not exist.
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
	// acted means that the agent has served its purpose, hung that it gets no result, or does not end.
	acted, hung bool
	// since is the age of its failure.
	since age
	// try is the number of the try to undo.
	try uint8
}

// node is a machine, its kubelet, and its Node.
type node struct {
	// cut means that the kubelet does not reach the API server, off that the machine does not run.
	cut, off bool
	// agent means that an agent keeps the machine off until it undoes that, person that a person does.
	agent, person bool
	// storage are the agents whose volumes the machine does not reach, a bit each.
	storage uint8
	// boot is the boot ID of the machine, and shown the boot ID in the Node.
	boot, shown uint8
	// second means that another machine has taken the name, boots, and appears in the Node. The first machine is cut off,
	// and its processes run on.
	second bool
	// there means that the Node exists, and ready that its condition Ready is True instead of Unknown.
	there, ready, tainted bool
	// unready means that the condition Ready is False, as a kubelet that has just come back writes it.
	unready bool
	// shunned means that the Node has the taint that keeps new pods away.
	shunned bool
	// lease is the version of the Lease, 0 for none.
	lease uint8
	// lateLease means that a renewal is in flight. lateStatus is the boot ID of a status in flight, 0 for none.
	lateLease  bool
	lateStatus uint8
}

func (n node) connected() bool { return !n.cut && !n.off }

// away reports whether the condition Ready of the Node is Unknown, or the Node does not exist.
func (n node) away() bool { return !n.there || !n.ready && !n.unready }

// marked reports whether the Node has a taint of a fence.
func (n node) marked() bool { return n.tainted || n.shunned }

// pod is a held Pod with its processes on the machine.
type pod struct {
	exists, terminating bool
	// collected means that the pod garbage collector has marked it Failed, attached that its volume is attached to the
	// node.
	collected, attached bool
	// runs means that its processes run, known that the kubelet knows the pod, and deleted that it also knows the
	// deletion.
	runs, known, deleted bool
	// unwritten means that the machine may hold data of its processes that the volume lacks. lent means that its volume
	// was given to a pod on another node, because the fence keeps this node from it.
	unwritten, lent bool
	// evidence are the successive reads of the controller that holds it. fencedOff means that the NodeFence was read for
	// the lock of the claim, and keeps the node from the volume.
	evidence  evidence
	fencedOff bool
}

// evidence is the result of the reads for the release of a pod.
type evidence struct {
	// covered means that the NodeFence covers the pod, and bound that it does so while the Node shows this boot ID.
	// notReady means that the Node is not Ready, and has the boot ID.
	covered, bound, notReady bool
	boot                     uint8
}

// sight is the record of one replica about the fence, empty unless seen.
type sight struct {
	seen  bool
	lease uint8
	since age
	// runsOn means that the node shows that it runs as before, since runsSince.
	runsOn    bool
	runsSince age
}

// basis is the state of the fence and its node before a list.
type basis struct {
	attempt, boot  uint8
	found, tainted bool
}

// work is the state of the work of a replica on the fence.
type work struct {
	on bool
	// fence is the NodeFence as the session knows it, and changed means that it was written since.
	fence              fence
	changed, taintSeen bool
	// The results of the read of the Node. nodeChanged means that it was written since.
	nodeThere, nodeReady, nodeUnready, nodeTainted, nodeShunned, nodeChanged, nodeSecond bool
	nodeBoot                                                                             uint8
	lease                                                                                uint8
	// The run that was read.
	runOf     uint8
	runTry    uint8
	runUndoes bool
	runState  runState
	runSince  age
	// terminating are the terminating pods, remains the existing pods, and attached the pods with an attached volume, a
	// bit each. podsOnly means that the volumes were not requested, and listed that they are known.
	terminating, remains, attached uint8
	podsOnly, listed               bool
	basis                          basis
	sight                          sight
	// The orders of the live reads, 0 for missing reads, and their number.
	fenceRead, nodeRead, leaseRead, runRead, remainingRead, reads uint8
	// For the invariants: the node was away at a moment since the session began.
	wasAway bool
}

// line is one replica of volume-guard.
type line struct {
	up bool
	// fence and marked are the states in its watches.
	fence   fence
	marked  bool
	sight   sight
	session work
	// woken means that the fence is in the queue, timed that it comes back by the clock.
	woken, timed bool
}

// state is the whole state, as plain data that can be compared and copied.
type state struct {
	fence fence
	born  uint8
	node  node
	pods  [maxPods]pod
	// runs are the objects of agents that fence, and undos the objects of agents that undo it, one for each attempt.
	runs, undos [maxAttempts + 1]run
	lines       [maxReplicas]line
	left        Budget
	// lied means that the proof of an attempt is false, answered that a person or an agent answers for the processes on
	// the node.
	lied     [maxAttempts]bool
	answered bool
	// falseWord means that the confirmation is false, abandoned that a person takes over the undo of agents.
	falseWord, abandoned bool
	// vouched means that a person has ended the fence at once, and answers for data that is not written yet.
	vouched bool
}
