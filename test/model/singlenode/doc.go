// Package singlenode explores, to exhaustion within named bounds, the locks of claims that one pod may use at a time,
// and checks each step:
//
//   - S2: no two pods have processes at the same time that use a claim with a required lock, on any nodes. No gate is
//     removed without the locks, and no lock is freed while its pod may use the volume.
//   - L1: every state leads to rest. At rest no pod that is gone or has completed has a lock, and no claim is kept
//     without one. A pod with its gate waits for the reported reason, which is true, and never in a circle. After an
//     uninstallation no gate, lock or finalizer is left. A pod that a queue has admitted waits for none that the queue
//     keeps.
//
// The model runs the shipped code of volume-guard: the records of its tracker, its decisions, and the calls and replies
// of its sessions. The model plays everything around it: the API server with its watches, which lag separately for each
// object and replica, and can skip states, as after a list; writes that are carried out after their sender has given
// them up; the scheduler, which binds no gated pod; kubelets with their machines; the controllers of ReplicaSets,
// StatefulSets and ephemeral volumes; PVC protection; users and administrators; and chance, which breaks every
// component that can break.
//
// The hold is an abstraction here. The object of a held pod goes, or its hold if another finalizer keeps the object,
// once its processes have ended, its volumes are unmounted and its kubelet no longer starts it, or once a person has
// confirmed that. test/model/podsafety shows that the hold keeps this promise under all faults. A fence of volumes is
// an abstraction, too: node fencing waits until the Node has another boot ID, lists the pods of the node until no held
// pod is terminating, and then ends the fence, at any later time. The kubelet starts pods again before and after it
// writes the boot ID, even while the fence is in force. A person who ends a fence by hand answers for the pods that run
// there.
//
// The consequences of a person's word are excused. A person who confirms the end of a pod answers for its processes.
// Admission refuses to remove a gate or a lock by hand, to preset a node, and to remove a label. In worlds of their
// own, a user does so nevertheless. Two pods can then meet only if one of them had passed its list of the pods at that
// moment, since a pod without a gate is in the next list. The same applies to a label that begins to ask for locks:
// pods can meet that have lost their gates, or are about to.
//
// # What is taken for granted
//
// All API servers add the gate from the moment when the namespace asks for locks. An API server with a lagging cache
// creates pods without it, which are equivalent to pods that ran before. Reads do not become too old, which only lets
// more happen. The first pod runs on the node with the faults, and the others on another node, because the check
// ignores the nodes of pods. A write with an older resourceVersion counts as up to date if the claim has the same
// content again, which only lets more writes succeed. A kubelet that is not cut off unmounts within the unmount grace,
// and its Node shows at once whether it is. All objects are in one namespace, because a lock of a claim depends on no
// other. No user writes a lock by hand that names a pod.
//
// Every world has further constants, and names them. worlds.go has the bounds, and world.go the contents of a world.
// cluster.go, nodes.go, people.go, guard.go and calls.go have the moves, and machine.go makes facts and sessions of the
// engine. invariants.go has the promises, independently of their implementation, and trace.go prints the history of a
// finding. Traces in which an earlier engine broke a promise are in traces_test.go, and the effects of missing guards
// in singlenode_test.go.
package singlenode
