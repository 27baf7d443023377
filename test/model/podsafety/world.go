package podsafety

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

const (
	maxPods     = 3
	maxNodes    = 2
	maxReplicas = memory.Replicas
)

// status is what the container statuses of a pod show. The zero value: they are empty.
type status uint8

const (
	noStatus status = iota
	waiting
	running
	over
	// unknown: the kubelet does not find the container, which ran according to the status before.
	unknown
)

// pod is a pod as the API server holds it. The zero value: there is none.
type pod struct {
	exists bool
	// node is the number of its node from 1, 0 for none.
	node                         uint8
	held, terminating, graceZero bool
	confirmed                    confirmation
	// ended: the phase is Failed.
	ended    bool
	statuses status
	// observed is the observedGeneration of the condition ContainersReady: 1 from before the deletion, 2 from after it.
	observed uint8
	// written is status.observedGeneration, which the pod garbage collector writes too.
	written uint8
	// phaseByKubelet, and reasonEnded: the condition ContainersReady has the reason PodFailed.
	phaseByKubelet, reasonEnded bool
}

// ending reports whether a container ran when the kubelet last spoke, after it had seen the deletion.
func (p pod) ending() bool { return p.observed == 2 && p.statuses == running }

// confirmation is the annotation for that.
type confirmation uint8

const (
	notConfirmed confirmation = iota
	confirmedOther
	confirmedThis
)

// process is a pod on the machine of its node.
type process struct {
	// node is the number of its node from 1, also when the Pod is gone; 0 for none.
	node uint8
	// runs: a container runs. mounted: the volume is mounted.
	runs, mounted bool
	// known: the kubelet knows of the pod, deleted: and of its deletion.
	known, deleted bool
	// done: the kubelet has reported the end of the pod.
	done bool
	// lost: it runs on the machine that had the name of the node before.
	lost bool
}

// found reports whether the kubelet finds a container that runs.
func (p process) found() bool { return p.runs && !p.lost }

// node is a machine, its kubelet, and its Node.
type node struct {
	// cut: the kubelet does not reach the API server. down: it does not run. off: nor does the machine.
	cut, down, off bool
	// fresh: the kubelet has started, and registers its Node when it can.
	fresh bool
	// there: the Node exists, and is Ready.
	there, ready bool
	// taint is that of an administrator, own that of a fence.
	taint, own bool
	// lease: there is one.
	lease bool
	// lost: the kubelet has not worked for a moment since the Node is gone.
	lost  bool
	fence fence
}

// fence is that of a node. The zero value: there never was one.
type fence struct {
	exists, inForce bool
	// reboot: by an agent that reboots; else the machine stays off.
	reboot bool
	// covers are the pods that were terminating when it began, a bit each.
	covers uint8
}

// connected reports whether the kubelet works.
func (n node) connected() bool { return !n.cut && !n.down && !n.off }

// age is how long something has been so.
type age uint8

const (
	never age = iota
	young
	old
)

// sight is what one replica has seen of a pod.
type sight struct {
	finished, graceZero, lease          age
	finishedWithGrace, forced, nodeAway bool
	// leaseFound and leaseCurrent: what the read of the Lease found, and that it is as it was then.
	leaseFound, leaseCurrent bool
}

// view is what the watch of one replica shows of a pod; known: it shows one.
type view struct {
	known bool
	pod   pod
}

// nodeView is what the watch of one replica shows of a node and its fence.
type nodeView struct{ there, ready, tainted, fenced bool }

func (n node) view() nodeView { return nodeView{n.there, n.ready, n.taint || n.own, n.fence.exists} }

// work is the state of the work of a replica on a pod, as far as it is not in what the replica has seen.
type work struct {
	on bool
	// pod is what it works with, and changed: that was written since.
	pod     pod
	changed bool
	seen    nodeView
	// The orders of the live reads, 0 for those not made, and how many there were.
	podRead, nodeRead, leaseRead, fenceRead, reads uint8
	// sight is what the replica had seen of the pod when the session last asked the tracker.
	sight sight
	// action and reason are those of the step that is carried out; the reason by its number.
	action podsafety.Action
	reason uint8
	// What the reads found.
	nodeThere, nodeReady, nodeTaint, nodeOwn, leaseFound bool
	fence                                                fence
	// For the judge: when the node was read it was tainted by a person and not Ready, or gone, and its kubelet had been
	// cut off since; when its Lease was read, its kubelet did not renew it.
	taintSpoke, goneSpoke, leaseSpoke bool
}

// line is one replica of volume-guard.
type line struct {
	up       bool
	pods     [maxPods]view
	nodes    [maxNodes]nodeView
	sights   [maxPods]sight
	sessions [maxPods]work
	// woken: the pod is in the queue, timed: it comes back by the clock.
	woken, timed [maxPods]bool
}

// lock is the object that keeps other nodes from attaching the volume.
type lock struct {
	exists bool
	// holder is the number of its pod from 1, and node that of the node.
	holder, node uint8
}

// state is everything. All of it is plain, so that it can be compared and copied.
type state struct {
	pods      [maxPods]pod
	born      [maxPods]bool
	processes [maxPods]process
	// graceOver: the grace period of a pod that was deleted has passed.
	graceOver [maxPods]bool
	nodes     [maxNodes]node
	lines     [maxReplicas]line
	lock      lock
	// claim is that of all pods: it exists, and is being deleted.
	claim, claimGoes bool
	// attached are the nodes that the volume is attached to, mountSeen where its kubelet has last said it is mounted.
	attached, mountSeen [maxNodes]bool
	left                Budget
	// excused: a person answers for what the processes of the pod do from here.
	excused [maxPods]bool
	// collected: the pod garbage collector has deleted the pod by force while its volume was mounted.
	collected [maxPods]bool
	// detachExcused: a taint has had the volume detached.
	detachExcused [maxNodes]bool
}
