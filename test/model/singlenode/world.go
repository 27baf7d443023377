package singlenode

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

const (
	maxPods     = 3
	maxClaims   = 2
	maxNodes    = 2
	maxReplicas = memory.Replicas
)

// pod is a pod as the API server holds it. The zero value: there is none.
type pod struct {
	exists bool
	// node is the number of its node from 1, 0 for none.
	node uint8
	// gated: it has the scheduling gate. held: the hold's finalizer.
	gated, held, terminating bool
	// ended: its kubelet has reported that it has completed.
	ended bool
	// confirmed: a person has said that its processes cannot run any more.
	confirmed bool
}

// process is a pod on the machine of its node.
type process struct {
	// node is the number of its node from 1, also when the Pod is gone; 0 for none.
	node uint8
	// runs: a container runs. mounted: its volumes are mounted.
	runs, mounted bool
	// known: the kubelet knows of the pod, deleted: and of its deletion.
	known, deleted bool
	// done: it has completed by itself.
	done bool
}

// claim is a claim as the API server holds it. The zero value: there is none.
type claim struct {
	// uid is 0 where there is none. UIDs are compared as these are.
	uid uint8
	// lock is the number of the pod that has the lock from 1, 0 for none, and damaged for an annotation that names none.
	lock uint8
	// kept: it has the finalizer.
	kept, terminating bool
	// bound: it has a PV.
	bound bool
	// labelled: the claim itself asks for the lock.
	labelled bool
	// owner is the number of the pod that controls it from 1, 0 for none.
	owner uint8
}

const damaged = maxPods + 1

// node is a machine and its kubelet.
type node struct {
	// cut: the kubelet does not reach the API server.
	cut bool
	// run is the boot ID of the machine, and shown that of the Node: its kubelet writes it some time after it has booted.
	run, shown uint8
	// fence is what there is of a fence.
	fence fence
	// left: node fencing has found that the node was rebooted since, and that no pod that is held is terminating there. It
	// ends the fence.
	left bool
}

// fence is a fence of volumes, as a read of it shows it. The zero value: there is none.
type fence struct {
	inForce bool
	// run is the boot ID that the Node had, and terminating are the pods that were, when the fence began.
	run         uint8
	terminating [maxPods]bool
}

// age is how long ago something began, as a replica counts it. The zero value: it has not.
type age uint8

const (
	never age = iota
	young
	old
)

// podSession is the work of a replica on a gated pod.
type podSession struct {
	on, removing bool
	pod          pod
	mode         mode
	claims       [maxClaims]claim
	// unasked are the claims of which it is known that nothing asks for the lock.
	unasked [maxClaims]bool
	// listed are the pods that the live list has found, and ended how long they had completed.
	listed [maxPods]bool
	users  [maxPods]pod
	ended  [maxPods]age
	fences [maxPods]fence
	// runs are the boot IDs of the Nodes that were read.
	runs [maxPods]uint8
	// The orders of the live reads, 0 for those not made, and how many there were.
	modeRead, listRead, reads uint8
	claimReads                [maxClaims]uint8
	fenceReads, nodeReads     [maxPods]uint8
	// The step that is carried out: the reason by its number, and the claim and the user that it is about.
	action       singlenode.Action
	reason       uint8
	claim, other uint8
	// past: the list has been carried out, so that a pod that appears now is not in it. For the judge.
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
	// behind: a claim was written since, and may be the same again.
	behind [maxClaims]bool
	// ended is since when it has seen that a pod has completed.
	ended [maxPods]age
	// ungated: it has removed the gate of a pod, and its watch does not show that yet.
	ungated [maxPods]bool
	work    [maxPods]podSession
	locks   [maxClaims]lockSession
	// woken: it is in the queue, timed: it comes back by the clock.
	woken, timed         [maxPods]bool
	lockWoken, lockTimed [maxClaims]bool
}

// lateCall is a write that is under way, and whose sender has given it up.
type lateCall struct {
	on   bool
	call singlenode.Call
	// slot is the pod whose gate goes, or claim the number of the claim.
	slot, claim uint8
	// uid and expects are what the write is bound to, where bound.
	uid     uint8
	bound   bool
	expects claim
	// lock is what it writes, and reason why it is made.
	lock, reason uint8
	// unmounted: it is made after the unmount grace. For the judge.
	unmounted bool
}

// mode is what the namespace asks for.
type mode = singlenode.Mode

// state is everything. All of it is plain, so that it can be compared and copied.
type state struct {
	mode mode
	// removing: volume-guard is uninstalled.
	removing  bool
	pods      [maxPods]pod
	born      [maxPods]bool
	processes [maxPods]process
	claims    [maxClaims]claim
	// made is how many claims were created again.
	made  uint8
	nodes [maxNodes]node
	lines [maxReplicas]line
	late  lateCall
	left  Budget
	// excused: a person answers for what the processes of the pod do from here.
	excused [maxPods]bool
	// forgiven are the pairs of pods of which one lost its gate by a person's word when the other had passed its list.
	forgiven [maxPods][maxPods]bool
	// stripped: somebody has removed the lock or the finalizer of a claim.
	stripped bool
}
