// Package podsafety explores, to exhaustion within named bounds, pods that are held until their processes have ended,
// and checks each step:
//
//   - S1: a pod is not released while its processes run or its kubelet may start them, so that a name of a StatefulSet
//     never has two running instances. No pod is deleted, or loses its grace, without a request.
//   - S3: a claim is not removed, and its volume not attached to another node, while processes of its pod run. A pod
//     whose kubelet has set its grace to 0 is not released while its volume is mounted.
//   - L1: every state leads to rest, and at rest no pod is held despite evidence.
//
// The model runs the shipped code of volume-guard: the records of its tracker, its decisions, including those about
// locks, and the calls and replies of its sessions. The model plays everything around it: the API server with its
// watches, which lag separately for each object and replica; kubelets with their machines; the node lifecycle, pod
// garbage, StatefulSet, attach-detach and PVC protection controllers, according to the sources of 1.36; fences; users
// and administrators; and chance, which breaks every component that can break.
//
// The consequences of a person's word are excused for the pod that it names, and for no other. Such a word is a
// confirmation with the UID of the pod; the taint out-of-service, if the live read found it on a node that was not
// Ready; and the deletion of a Node, if its kubelet was cut off at a moment since and had not begun to end the pod.
// From there on the person answers for its processes. The deletion of a Node whose kubelet works all the time is no
// excuse.
//
// # What is taken for granted
//
// A kubelet that is not cut off acts within the measured times: it sees that a pod has no grace within 40 s, renews its
// Lease in less, and unmounts within 30 s. A kubelet that does not track generations also ends the pod within 40 s. The
// pod garbage collector can set the grace of a pod to 0 between its end and its unmount. A release before the unmount
// is then the guess that the documentation names. So is a release after 30 s while the watch shows a node as Ready that
// is cut off. In a world without confirmed force deletions, volume-guard knows no policy that refuses them.
// volume-guard creates a lock within the six minutes from the moment at which no pod needs a volume until it is
// detached by force: an unmount takes less. A machine whose name another one takes has reported the containers that it
// started. If its volumes stay mounted, the Node has shown the outage. A release 30 s after the other machine is Ready
// is a guess, too. In the worlds with refusals, the former machine may have reported nothing, and the next one refuses
// the pod. The former machine does not return.
//
// Every world holds these constant. Faults and administrators only affect the first node, because the second is for
// replacements. Live reads do not become too old, which only lets more happen. Calls are carried out at once, since a
// late call is equivalent to a second leader. A pod names its claim, except in the
// world of a generic ephemeral volume, where only the first pod has a claim, with the finalizer from the start.
//
// worlds.go has the bounds, and world.go the contents of a world. cluster.go, nodes.go, people.go and guard.go have the
// moves, and machine.go makes facts and sessions of the engine. invariants.go has the promises, independently of their
// implementation, and trace.go prints the history of a finding. Traces in which earlier definitions of evidence broke
// a promise are in traces_test.go.
package podsafety
