package joint

import "github.com/csi-reclaimer/csi-reclaimer/test/model/clock"

const (
	maxPods = 2
	// The numbers of the nodes.
	nodeA, nodeB = 1, 2
	// firstBoot is the number of the boot of node a in which a history begins.
	firstBoot = 1
)

// status is the state of the container statuses of a pod, which are empty in its zero value.
type status uint8

const (
	noStatus status = iota
	running
	// waiting means that a container has ended, and waits for its kubelet to start it again.
	waiting
	over
	// lost means that the kubelet has found no container of the pod, and reports its end (ContainerStatusUnknown).
	lost
)

// pod is a pod in the API server. The zero value does not exist.
type pod struct {
	exists bool
	// node is the number of its node, 0 for none.
	node                                           uint8
	gated, held, terminating, graceZero, confirmed bool
	// foreground means that it was deleted in the foreground: its object stays until its claim is gone.
	foreground bool
	// ended means that the phase is final, byKubelet that its kubelet wrote the phase, and succeeded that it has completed
	// by itself.
	ended, byKubelet, succeeded bool
	statuses                    status
	// observed means that the condition ContainersReady is from after the deletion.
	observed bool
}

// process is a pod on the machine that has the name of its node.
type process struct {
	// node is the number of its node, even if the Pod is gone; 0 for none.
	node uint8
	// runs means that a container runs, and mounted that the volume is mounted, so that written data can still reach it.
	runs, mounted bool
	// known means that the kubelet knows the pod, deleted that it also knows its deletion or end.
	known, deleted bool
	// done means that it has ended for good, unknown that no component on this machine knows its containers.
	done, unknown bool
	// leaving means that the pod was terminating when the Node began to show the boot of its machine.
	leaving bool
}

// claim is the claim that both pods use. Its volume is deleted with it.
type claim struct {
	exists, terminating bool
	// lock is the number of the pod that has the lock from 1, 0 for none.
	lock uint8
	// kept means that it has the finalizer of the lock, protected that it has the finalizer of pvc-protection, and held
	// that it has the finalizer of the hold.
	kept, protected, held bool
}

// volume is the volume in a world that attaches it. The zero value is attached to no node.
type volume struct {
	// onA and onB mean that it is attached to the node.
	onA, onB bool
	// inUse means that Node a shows it as in use, according to the last report of its kubelet.
	inUse bool
	// locked is the number of the pod from 1 that keeps it in the VolumeLock of node a, 0 for none.
	locked uint8
}

// node is node a: its machine, the kubelet there, and the Node. Node b is Ready all the time.
type node struct {
	// cut means that the kubelet does not reach the API server, off that the machine does not run, and agent that an agent
	// keeps it off.
	cut, off, agent bool
	// storage means that an agent keeps the machine from the volume.
	storage bool
	// boot and machine are the boot ID and the number of the machine, shown and shownMachine their values in the Node.
	boot, machine, shown, shownMachine uint8
	// fresh means that the kubelet has started, and not written its boot ID yet.
	fresh bool
	// there means that the Node exists. taint is the taint of an administrator, own and shunned are the taints of fences.
	there, ready, taint, own, shunned bool
	// lost means that the kubelet has been out of work at a moment since the end of the Node.
	lost bool
}

func (n node) connected() bool { return !n.cut && !n.off }

// former is the machine that had the name of node a before, if another has it now. It sends no more reports.
type former struct {
	// runs are the pods that run there, and mounted those whose volume is mounted, if the Node showed the outage. storage
	// means that an agent keeps it from the volume.
	runs, mounted [maxPods]bool
	storage       bool
}

// condition is the status of a condition. The zero value does not exist.
type condition uint8

const (
	noCondition condition = iota
	isFalse
	isTrue
)

// fence is the NodeFence of node a. Its agent makes at most one attempt; attempts that ended earlier do not count.
type fence struct {
	exists, terminating, finalized bool
	// now means that a person has ended it, vacant that the status says that the Node is gone and no pod remains.
	now, vacant                bool
	fenced, released, returned condition
	// begun means that the attempt exists, with the number of its result, and with the boot ID, the machine and the
	// terminating pods from before. seen means that the object of its agent was seen, and undoing that the agent is asked
	// to undo it.
	begun, seen, undoing, undone bool
	result, boot, machine        uint8
	covers                       [maxPods]bool
	// proven means that the proof exists, from a time when the Node had this boot ID and machine. renewed means that the
	// Lease was renewed since.
	proven, renewed         bool
	proofBoot, proofMachine uint8
	// undoingLate means that the late agent is asked to undo its attempt, which may have had an effect.
	undoingLate, undoneLate bool
}

// runState is the state of the object of an agent. The zero value does not exist.
type runState uint8

const (
	noRun runState = iota
	atWork
	stopping
	succeeded
)

// age is the time since an event, which has not happened in its zero value.
type age = clock.Age

const never, young, old = clock.Never, clock.Young, clock.Old

// sight is the record of volume-guard about a held pod.
type sight struct {
	finished, graceZero age
	// lease is the age of the last change of the Lease.
	lease                               age
	finishedWithGrace, forced, nodeAway bool
}

// state is the whole state, as plain data that can be compared and copied.
type state struct {
	node      node
	former    former
	pods      [maxPods]pod
	born      bool
	processes [maxPods]process
	claim     claim
	volume    volume
	fence     fence
	// ending means that node fencing has listed the pods of node a, and is about to write the end of the fence.
	ending bool
	// run is the agent that fences, and undo the agent that undoes it.
	run, undo runState
	// late is the agent that was tried before, and undoLate the agent that undoes it.
	late, undoLate runState
	sights         [maxPods]sight
	// completed has the ages of the completion of pods, as volume-guard has seen it.
	completed [maxPods]age
	// silent is the age of the last change of the Lease, as node fencing has seen it.
	silent age
	// shut means that the fence may keep node a from the volume, and away that node a is not Ready. opened is the age of
	// the end of either since the hold or the locks saw the end of the first pod, never if there was none.
	shut, away bool
	opened     age
	left       Budget
	// excused means that a person answers for the processes of the pod from here on.
	excused [maxPods]bool
}
