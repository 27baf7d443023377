package podsafety

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

const (
	maxPods     = 3
	maxNodes    = 2
	maxReplicas = memory.Replicas
)

// status is the state of the container statuses of a pod, which are empty in its zero value.
type status uint8

const (
	noStatus status = iota
	waiting
	running
	over
	// unknown means that the kubelet does not find the container, which ran according to the status before.
	unknown
	// absent means that the kubelet, which refused the pod, finds no container, and none ran according to the status.
	absent
)

// pod is a pod in the API server. The zero value does not exist.
type pod struct {
	exists bool
	// node is the number of its node from 1, 0 for none.
	node                         uint8
	held, terminating, graceZero bool
	confirmed                    confirmation
	// ended means that the phase is Failed.
	ended    bool
	statuses status
	// observed is the observedGeneration of the condition ContainersReady: 1 from before the deletion, 2 from after it.
	observed uint8
	// written is status.observedGeneration, which the pod garbage collector writes, too.
	written uint8
	// phaseByKubelet means that the kubelet has written the phase, reasonEnded that the condition ContainersReady has the
	// reason PodFailed.
	phaseByKubelet, reasonEnded bool
	// refused means that status.reason is that of a refusal.
	refused bool
}

// ending reports whether a container ran in the last report of the kubelet after it had seen the deletion.
func (p pod) ending() bool { return p.observed == 2 && p.statuses == running }

// confirmation is the state of the annotation of that name.
type confirmation uint8

const (
	notConfirmed confirmation = iota
	confirmedOther
	confirmedThis
)

// process is a pod on the machine of its node.
type process struct {
	// node is the number of its node from 1, even if the Pod is gone; 0 for none.
	node uint8
	// runs means that a container runs, mounted that the volume is mounted.
	runs, mounted bool
	// known means that the kubelet knows the pod, deleted that it also knows the deletion.
	known, deleted bool
	// done means that the kubelet has reported the end of the pod.
	done bool
	// lost means that the pod runs, or its volume is mounted, on the machine that had the name of the node before.
	lost bool
	// refused means that the kubelet has refused the pod.
	refused bool
}

// found reports whether the kubelet finds a running container.
func (p process) found() bool { return p.runs && !p.lost }

// node is a machine, its kubelet, and its Node.
type node struct {
	// cut means that the kubelet does not reach the API server, down that it does not run, and off that the machine does
	// not run either.
	cut, down, off bool
	// fresh means that the kubelet has started, and registers its Node when it can.
	fresh bool
	// there means that the Node exists, ready that it is Ready.
	there, ready bool
	// taint is the taint of an administrator, own the taint of a fence.
	taint, own bool
	// lease means that the Lease exists.
	lease bool
	// lost means that the kubelet has been out of work at a moment since the end of the Node.
	lost  bool
	fence fence
	// machine is the number of the machine that has the name, and shows and beat the last write of its kubelet to the
	// Node: its number, and the number of the write.
	machine, shows, beat uint8
}

// fence is the fence of a node. The zero value never existed.
type fence struct {
	exists, inForce bool
	// reboot means that its agent reboots the machine. Otherwise the machine stays off.
	reboot bool
	// covers are the pods that were terminating when it began, a bit each.
	covers uint8
}

// connected reports whether the kubelet works.
func (n node) connected() bool { return !n.cut && !n.down && !n.off }

// age is the time since an event, which has not happened in its zero value.
type age = clock.Age

const never, young, old = clock.Never, clock.Young, clock.Old

// sight is the record of one replica about a pod.
type sight struct {
	finished, graceZero, lease          age
	finishedWithGrace, forced, nodeAway bool
	// leaseFound is the result of the read of the Lease, and leaseCurrent means that the Lease has not changed since.
	leaseFound, leaseCurrent bool
	// refused is the age of the first sight of a refusal after which no container was found, and heartbeat is one more
	// than the write that the first read of the Node has shown since.
	refused   age
	heartbeat uint8
}

// view is a pod in the watch of one replica, if known.
type view struct {
	known bool
	pod   pod
}

// nodeView is a node and its fence in the watch of one replica.
type nodeView struct {
	there, ready, tainted, fenced bool
	machine                       uint8
}

func (n node) view() nodeView {
	return nodeView{n.there, n.ready, n.taint || n.own, n.fence.exists, n.shows}
}

// claimView is the claim of a generic ephemeral volume in the API server, or in the watch of one replica.
type claimView struct {
	exists bool
	// goes means that the claim is being deleted, held that it has the finalizer of volume-guard.
	goes, held bool
}

// work is the state of the work of a replica on a pod, beyond the watch caches of the replica.
type work struct {
	on bool
	// pod is the pod as the session knows it, changed means that it was written since, and outdated that the API server
	// has refused a write for that.
	pod               pod
	changed, outdated bool
	seen              nodeView
	// The orders of the live reads, 0 for missing reads, and their number.
	podRead, nodeRead, leaseRead, fenceRead, reads uint8
	// sight is the record about the pod at the last use of the tracker by the session, and interrupted the record about
	// its node from the start.
	sight       sight
	interrupted bool
	// same and machine are the records of the line with these names from the start.
	same    bool
	machine uint8
	// action and reason describe the current step, the reason by its number.
	action podsafety.Action
	reason uint8
	// The results of the reads.
	nodeThere, nodeReady, nodeTaint, nodeOwn, leaseFound bool
	nodeMachine, nodeBeat                                uint8
	fence                                                fence
	// For the invariants. At the read of the node, it was tainted by a person and not Ready, or it was gone and its
	// kubelet had been cut off since. At the read of its Lease, its kubelet did not renew it.
	taintSpoke, goneSpoke, leaseSpoke bool
}

// line is one replica of volume-guard.
type line struct {
	up       bool
	pods     [maxPods]view
	nodes    [maxNodes]nodeView
	claim    claimView // only in a world with an ephemeral claim
	sights   [maxPods]sight
	sessions [maxPods]work
	// interrupted means that the watch showed an outage of the node since the replica first saw the end of the pod. The
	// age of that end is then the age of the end of the outage.
	interrupted [maxPods]bool
	// same means that the watch has shown the node of the pod Ready, and as the same machine, since before a kubelet could
	// know the pod. machine is the number of that machine, for the first node.
	same    [maxPods]bool
	machine uint8
	// woken means that the pod is in the queue, timed that it comes back by the clock.
	woken, timed [maxPods]bool
}

// lock is the object that keeps other nodes from attaching the volume.
type lock struct {
	exists bool
	// holder is the number of its pod from 1, and node the number of the node.
	holder, node uint8
}

// state is the whole state, as plain data that can be compared and copied.
type state struct {
	pods      [maxPods]pod
	born      [maxPods]bool
	processes [maxPods]process
	// graceOver means that the grace period of a deleted pod has passed.
	graceOver [maxPods]bool
	nodes     [maxNodes]node
	lines     [maxReplicas]line
	lock      lock
	// claim means that the claim of all pods exists, claimGoes that it is being deleted, and claimHeld that it is the
	// claim of a generic ephemeral volume and has the finalizer of volume-guard.
	claim, claimGoes, claimHeld bool
	// attached are the nodes that the volume is attached to, and mountSeen the nodes whose kubelet last reported it as
	// mounted.
	attached, mountSeen [maxNodes]bool
	left                Budget
	// excused means that a person answers for the processes of the pod from here on.
	excused [maxPods]bool
	// collected means that the pod garbage collector has deleted the pod by force while its volume was mounted.
	collected [maxPods]bool
	// detachExcused means that a taint has detached the volume.
	detachExcused [maxNodes]bool
}
