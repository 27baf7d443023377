// Package podsafety explores, to exhaustion within named bounds, what can happen to pods that are held until their
// processes have ended, and judges each step:
//
//   - S1: a pod is not released while its processes run or its kubelet may start them, so that a name of a StatefulSet
//     never has two running instances. Nor is a pod deleted, or deprived of its grace, that nobody asked for.
//   - S3: a claim is not removed, and its volume not attached to another node, while processes of its pod run. A pod
//     whose kubelet has set its grace to 0 is not released while its volume is mounted.
//   - L1: every state leads to rest, and at rest no pod is held for which there is evidence.
//
// volume-guard in it is the code that ships: what its tracker records, what it
// decides, and what its sessions ask and learn; so are the decisions about locks. Played are those who answer: the API
// server with its watches, which lag for each object and replica on their own; kubelets with the machines that they
// run on; the node lifecycle, pod garbage, StatefulSet, attach-detach and PVC protection controllers as the sources of
// 1.36 have them; fences; users and administrators; and chance, which breaks what can break.
//
// What a person has said is excused for the pod of which it was said, and for no other: a confirmation with its UID;
// the taint out-of-service, if the live read found it on a node that was not Ready; the end of a Node, if its kubelet
// was cut off at a moment since and had not begun to end the pod. From there on the person answers for its processes. A
// Node that is deleted while its kubelet works all the time is no excuse.
//
// # What is taken for granted
//
// A kubelet that is not cut off acts within the times that are waited for: it sees that a pod has no grace within 40
// s, renews its Lease in less, and unmounts within 30 s. One that does not track generations also ends the pod within
// 40 s. The pod garbage collector can set the grace of a pod to 0 between its end and its unmount; that the pod is
// released before the unmount then is the guess that the documentation names. So is a release after 30 s while the
// watch shows a node as Ready that is cut off. A world in which force deletions are not confirmed is one where
// volume-guard knows no policy that refuses them. volume-guard creates a lock within the six minutes until a volume
// is detached by force. A machine whose name another one takes had reported the containers that it started.
//
// Every world holds these constant. Faults and administrators come to the first node alone, for the second is where
// replacements run. Live reads do not become too old, which only lets more happen. Calls are carried out at once; that
// one arrives late is what a second leader does. The claim is one that a pod names, not a generic ephemeral volume.
//
// worlds.go lists the bounds; world.go is what exists in one; cluster.go, nodes.go, people.go and guard.go are the
// moves; machine.go makes facts and sessions of the engine; judge.go holds the promises, apart from how the code keeps
// them; story.go says how something came about. Stories of earlier wordings that broke a promise are in
// stories_test.go.
package podsafety
