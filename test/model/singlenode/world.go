package singlenode

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

const (
	maxPods     = 3
	maxClaims   = 2
	maxNodes    = 2
	maxReplicas = memory.Replicas
)

// pod is a pod in the API server. The zero value does not exist.
type pod struct {
	exists bool
	// node is the number of its node from 1, 0 for none.
	node uint8
	// gated means that it has the scheduling gate, held that it has the finalizer of the hold.
	gated, held, terminating bool
	// queued means that it has the gate of another program, such as a queue.
	queued bool
	// foreground means that it was deleted in the foreground: its object stays until its claim is gone.
	foreground bool
	// ended means that its kubelet has reported its completion.
	ended bool
	// confirmed means that a person has confirmed the end of its processes.
	confirmed bool
}

// process is a pod on the machine of its node.
type process struct {
	// node is the number of its node from 1, even if the Pod is gone; 0 for none.
	node uint8
	// runs means that a container runs, mounted that its volumes are mounted.
	runs, mounted bool
	// known means that the kubelet knows the pod, deleted that it also knows the deletion.
	known, deleted bool
	// done means that the pod has completed by itself.
	done bool
}

// claim is a claim in the API server. The zero value does not exist.
type claim struct {
	// uid is 0 if the claim does not exist. UIDs have the order of these numbers.
	uid uint8
	// lock is the number of the pod that has the lock from 1, 0 for none, and damaged for an annotation without a pod.
	lock uint8
	// kept means that the claim has the finalizer.
	kept, terminating bool
	// bound means that it has a PV.
	bound bool
	// labelled means that the claim itself asks for the lock.
	labelled bool
	// owner is the number of the pod that controls it from 1, 0 for none.
	owner uint8
}

const damaged = maxPods + 1

// node is a machine and its kubelet.
type node struct {
	// cut means that the kubelet does not reach the API server.
	cut bool
	// run is the boot ID of the machine, and shown the boot ID in the Node, which the kubelet writes some time after a
	// boot.
	run, shown uint8
	// fence is the fence of the node.
	fence fence
	// left means that node fencing has seen a reboot of the node and no held pod that is terminating there. It ends the
	// fence.
	left bool
}

// fence is a fence of volumes, as a read returns it. The zero value does not exist.
type fence struct {
	inForce bool
	// run is the boot ID in the Node, and terminating are the terminating pods, at the begin of the fence.
	run         uint8
	terminating [maxPods]bool
}

// age is the time since an event, which has not happened in its zero value.
type age = clock.Age

const never, young, old = clock.Never, clock.Young, clock.Old

// podSession is the work of a replica on a gated pod.
type podSession struct {
	on, removing bool
	pod          pod
	mode         mode
	claims       [maxClaims]claim
	// unasked are the claims that are known to need no lock.
	unasked [maxClaims]bool
	// listed are the pods in the live list, and ended the ages of their completion.
	listed [maxPods]bool
	users  [maxPods]pod
	ended  [maxPods]age
	fences [maxPods]fence
	// runs are the boot IDs of the Nodes that were read.
	runs [maxPods]uint8
	// The orders of the live reads, 0 for missing reads, and their number.
	modeRead, listRead, reads uint8
	claimReads                [maxClaims]uint8
	fenceReads, nodeReads     [maxPods]uint8
	// The current step: the number of its reason, its claim and its user.
	action       singlenode.Action
	reason       uint8
	claim, other uint8
	// past means that the list has been carried out, so that it lacks a pod that appears now. For the invariants.
	past bool
}

// lockSession is the work of a replica on the lock of a claim.
type lockSession struct {
	on, removing bool
	claim        claim
	// holder is the number of the pod that was found under the name in the lock from 1, 0 for none.
	holder uint8
	pod    pod
	ended  age
	fence  fence
	// gone means that the watch has shown the end of the pod with the UID in the lock.
	gone bool
	// node is the boot ID of the Node that was read.
	node                                   uint8
	holderRead, fenceRead, nodeRead, reads uint8
	action                                 singlenode.Action
	reason                                 uint8
}

// line is one replica of volume-guard.
type line struct {
	up     bool
	mode   mode
	fenced bool
	pods   [maxPods]pod
	claims [maxClaims]claim
	// behind means that the watch lags behind a write to a claim, which may have the same content again.
	behind [maxClaims]bool
	// ended has the ages of the completion of pods.
	ended [maxPods]age
	// gone means that the watch has shown the end of a pod that had a lock.
	gone [maxPods]bool
	// ungated means that the replica has removed the gate of a pod, and its watch does not show that yet.
	ungated [maxPods]bool
	work    [maxPods]podSession
	locks   [maxClaims]lockSession
	// woken means that a pod is in the queue, timed that it comes back by the clock.
	woken, timed         [maxPods]bool
	lockWoken, lockTimed [maxClaims]bool
}

// lateCall is a write in flight that its sender has given up.
type lateCall struct {
	on     bool
	action singlenode.Action
	// slot is the pod that loses its gate, or claim the number of the claim.
	slot, claim uint8
	// uid and expects are the preconditions of the write, expects only if bound.
	uid     uint8
	bound   bool
	expects claim
	// lock is the written lock, and reason the reason of the write.
	lock, reason uint8
}

// mode is the mode of the namespace.
type mode = singlenode.Mode

// state is the whole state, as plain data that can be compared and copied.
type state struct {
	mode mode
	// removing means that volume-guard is uninstalled.
	removing  bool
	pods      [maxPods]pod
	born      [maxPods]bool
	processes [maxPods]process
	claims    [maxClaims]claim
	// made is the number of claims that were created again.
	made  uint8
	nodes [maxNodes]node
	lines [maxReplicas]line
	late  lateCall
	left  Budget
	// excused means that a person answers for the processes of the pod from here on.
	excused [maxPods]bool
	// forgiven are the pairs of pods of which one lost its gate by a person's word when the other had passed its list.
	forgiven [maxPods][maxPods]bool
	// stripped means that a user has removed the lock or the finalizer of a claim.
	stripped bool
}
