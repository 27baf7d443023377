package joint

const (
	maxPods = 2
	// The numbers of the nodes.
	nodeA, nodeB = 1, 2
)

// status is what the container statuses of a pod show. The zero value: they are empty.
type status uint8

const (
	noStatus status = iota
	running
	over
	// lost: the kubelet has found no container of the pod, and says that it has ended (ContainerStatusUnknown).
	lost
)

// pod is a pod as the API server holds it. The zero value: there is none.
type pod struct {
	exists bool
	// node is the number of its node, 0 for none.
	node                                           uint8
	gated, held, terminating, graceZero, confirmed bool
	// ended: the phase is final. byKubelet: its kubelet wrote that. succeeded: it has completed by itself.
	ended, byKubelet, succeeded bool
	statuses                    status
	// observed: the condition ContainersReady is from after the deletion.
	observed bool
}

// process is a pod on the machine that has the name of its node.
type process struct {
	// node is the number of its node, also when the Pod is gone; 0 for none.
	node uint8
	// runs: a container runs. mounted: the volume is mounted, so that what was written can still reach it.
	runs, mounted bool
	// known: the kubelet knows of the pod, deleted: and of its deletion or end.
	known, deleted bool
	// done: it has ended for good. unknown: nobody knows of its containers on this machine.
	done, unknown bool
}

// claim is the claim that both pods use. Its volume is deleted with it.
type claim struct {
	exists, terminating bool
	// lock is the number of the pod that has the lock from 1, 0 for none.
	lock uint8
	// kept: it has the finalizer of the lock, protected: that of pvc-protection.
	kept, protected bool
}

// node is node a: its machine, the kubelet there, and the Node. Node b is Ready all the time.
type node struct {
	// cut: the kubelet does not reach the API server. off: the machine does not run, agent: an agent keeps it so.
	cut, off, agent bool
	// storage: an agent keeps the machine from the volume.
	storage bool
	// boot and machine are the boot ID and the number of the machine, shown and shownMachine those that the Node has.
	boot, machine, shown, shownMachine uint8
	// fresh: the kubelet has started, and not written its boot ID yet.
	fresh bool
	// there: the Node exists. taint is the one of an administrator, own that of a fence.
	there, ready, taint, own bool
	// lost: the kubelet has not worked for a moment since the Node is gone.
	lost bool
}

func (n node) connected() bool { return !n.cut && !n.off }

// former is the machine that had the name of node a before, if another has it now. Nobody hears of it any more.
type former struct {
	// runs are the pods that run there. storage: an agent keeps it from the volume.
	runs    [maxPods]bool
	storage bool
}

// condition is the status of a condition. The zero value: it is not there.
type condition uint8

const (
	noCondition condition = iota
	isFalse
	isTrue
)

// fence is the NodeFence of node a. It has one agent, and one attempt at most.
type fence struct {
	exists, terminating, finalized bool
	// now: a person has ended it. vacant: it is written down that the Node is gone, and nothing remains.
	now, vacant                bool
	fenced, released, returned condition
	// begun: there is an attempt, with its result by number, and the boot ID, the machine and the pods that were
	// terminating before. undoing: its agent is asked to undo it.
	begun, undoing, undone bool
	result, boot, machine  uint8
	covers                 [maxPods]bool
	// proven, while the Node had this boot ID and machine. renewed: the Lease was renewed since.
	proven, renewed         bool
	proofBoot, proofMachine uint8
}

// runState is how far the object of an agent is. The zero value: there is none.
type runState uint8

const (
	noRun runState = iota
	atWork
	stopping
	succeeded
)

// age is how long something has been so.
type age uint8

const (
	never age = iota
	young
	old
)

// sight is what volume-guard has seen of a pod that is held.
type sight struct {
	finished, graceZero age
	// lease is since when the Lease is as it is.
	lease                               age
	finishedWithGrace, forced, nodeAway bool
}

// state is everything. All of it is plain, so that it can be compared and copied.
type state struct {
	node      node
	former    former
	pods      [maxPods]pod
	born      bool
	processes [maxPods]process
	claim     claim
	fence     fence
	// ending: node fencing has listed the pods of node a, and is about to write that the fence ends.
	ending bool
	// run is the agent that fences, and undo the one that undoes it.
	run, undo runState
	sights    [maxPods]sight
	// completed is since when volume-guard has seen that a pod has completed.
	completed [maxPods]age
	// silent is since when it has seen, for the fence, that the Lease is as it is.
	silent age
	// shut: the fence may keep node a from the volume. opened is since when it does not any more, never once that does
	// not matter.
	shut   bool
	opened age
	left   Budget
	// excused: a person answers for what the processes of the pod do from here.
	excused [maxPods]bool
}
