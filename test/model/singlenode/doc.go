// Package singlenode explores, to exhaustion within named bounds, what can happen to the locks of claims that one pod
// may use at a time, and judges each step:
//
//   - S2: no two pods have processes at a time that use a claim whose lock is asked for, on whichever nodes. No gate is
//     removed without the locks, and no lock is freed while its pod may use the volume.
//   - L1: every state leads to rest. At rest no pod that does not exist, or has completed, has a lock, and no claim is
//     kept without one; a pod that has its gate waits for what it says, which is so, and never in a circle. After an
//     uninstallation there is no gate, lock or finalizer.
//
// volume-guard in it is the code that ships: what its tracker records, what it
// decides, and what its sessions ask and learn. Played are those who answer: the API server with its watches, which
// lag for each object and replica on their own, and can skip what was between two states, as after a list; writes that
// are carried out after their sender has given them up; the scheduler, which binds no pod that has a gate; kubelets
// with the machines that they run on; the controllers of ReplicaSets, StatefulSets and ephemeral volumes; PVC
// protection; users and administrators; and chance, which breaks what can break.
//
// The hold is an abstraction here: the object of a pod that is held goes once its processes have ended, its volumes
// are unmounted and its kubelet starts it no more, or once a person has confirmed that. That the hold does so, whatever
// breaks, is what test/model/podsafety shows. So is a fence of volumes: node fencing waits until the Node has another
// boot ID, lists the pods of the node until none that is held is terminating, and then ends the fence, at any later
// time. The kubelet starts pods again before and after it writes the boot ID, also while the fence is in force. A
// person who ends a fence by hand answers for what runs there.
//
// What a person has said is excused. Who confirms the end of a pod answers for its processes. Admission refuses that a
// gate or a lock is removed by hand, that a node is preset, and that a label is removed; worlds of their own have
// somebody do it nevertheless. Then pods can meet of which one had passed its list of the pods by that moment, but no
// others: a pod without a gate is in the next list. It is the same with a label that begins to ask for locks: pods that
// have lost their gates, or are about to, can meet.
//
// # What is taken for granted
//
// The gate is added by all API servers from the moment on at which the namespace asks for locks: one whose cache lags
// creates pods without it, which are as those that ran before. Reads do not become too old, which only lets more
// happen. The first pod runs on the node that faults come to, the others on another: the judge does not ask where pods
// run. A write whose resourceVersion is an older one counts as up to date if the claim is the same again, which only
// lets more writes succeed. A kubelet that works unmounts within the unmount grace. Objects of one namespace alone are
// there: a lock of a claim depends on no other. Nobody writes a lock by hand that names a pod.
//
// Every world holds more constant, and says what. worlds.go has the bounds; world.go is what exists in one; cluster.go,
// nodes.go, people.go, guard.go and calls.go are the moves; machine.go makes facts and sessions of the engine; judge.go
// holds the promises, apart from how the code keeps them; story.go says how something came about. Stories in which
// the engine broke a promise once are in stories_test.go, and what happens without each guard in singlenode_test.go.
package singlenode
