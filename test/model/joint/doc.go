// Package joint explores, to exhaustion within named bounds, the effects of the controllers of volume-guard on each
// other: the hold of pods, the locks of claims, pvc-protection and node fencing, side by side on one volume. It checks
// each state:
//
//   - S1: at no time can processes on two nodes write to the volume. Data that a process has written before its end can
//     reach a volume that is mounted.
//   - S2: the claim does not go, and its volume with it, while processes run that can write to it.
//   - S3: no pod loses its gate without the lock, and no lock is freed while processes of its pod can write, or its
//     kubelet may start them. A release because of the end of a pod follows the unmount.
//   - L1: every state leads to rest. At rest each pod runs, has completed, or waits for a true reason with a way out,
//     and so does the fence.
//
// The world has two nodes, one volume with its claim, a pod that runs on node a, and a second pod that waits for the
// claim and runs on node b. Some worlds have no locks of claims: the volume is attached to one node at a time, and the
// VolumeLock of node a keeps it from node b. In others, the claim is that of a generic ephemeral volume of the first
// pod, which can be deleted in the foreground, and is the only one.
//
// The controllers are the shipped code. They communicate through objects of the API alone, and each controller reads
// them into its shipped records. The model plays kubelets with their machines, the pod garbage collector, taint
// eviction, the garbage collector of owners, the attach-detach controller, the scheduler, the agent of a fence, users
// and programs. Kubernetes' own pvc-protection can take the place of the shipped one.
//
// The consequences of a person's word are excused: a confirmation, the taint out-of-service on a node that is not
// Ready, the deletion of the Node of a kubelet that was cut off, and the end of a fence by spec.unfence Now. From there
// on the person answers for the processes. The deletion of a NodeFence is no such word, because programs do it.
//
// # What is taken for granted
//
// A session is a single step, with reads that are up to date. The models of each controller show events between its
// calls, lagging watches, two leaders, crashes and failed calls (test/model/podsafety, singlenode, fencing). Only node
// fencing can list the pods of a node some time before it records the end of the fence.
//
// The policies of admission are in effect: a force deletion is confirmed, or its pod has no node, or has ended and was
// not deleted before; gates, locks and finalizers are removed by volume-guard alone. Kubelets report generations
// (1.34). A working kubelet ends a pod without grace within the duration of a Lease, and unmounts within the unmount
// grace unless a fence keeps it from the volume. A kubelet whose Node is not Ready may not run, and then unmounts
// nothing. For a deleted pod, it unmounts before the unmount grace is over: after its return, the hold waits no longer.
// It renews its Lease all the time. It mounts no volume before it has written its boot ID, as kubelets do with volumes
// that are attached (ReportedInUse in pkg/volume/util/operationexecutor), and no volume that it is kept from. If
// another machine takes the name of node a, and the volume of an ended pod stays mounted, the Node has shown the
// outage. A release once the other machine was Ready for the unmount grace is a guess, which is excused if no fence may
// keep it from the volume. Agents neither fail nor lie, and fence the machine that the Node shows. An agent that was
// tried before the fence begins acts late, or never. A fence that has returned goes at once.
//
// The storage accepts the writes of two nodes: a detachment stops no process. A volume is detached by force from a node
// that is not healthy, six minutes after no pod needs it. Until then, a kubelet that is not cut off has unmounted the
// volume of an ended pod, the pod garbage collector has deleted each pod that it set to Failed, and volume-guard has
// written the VolumeLock. A kubelet that is not cut off shows at once which volumes it uses, and mounts none that its
// Node does not show as attached. Taints of administrators are left to test/model/podsafety.
//
// The claim of a generic ephemeral volume has the finalizer of the hold before its pod starts.
//
// The variable broken (worlds.go) lists the worlds in which the engines are known to break a promise.
//
// worlds.go has the bounds, and world.go the contents of a world. cluster.go, nodes.go, people.go and guard.go have the
// moves. objects.go makes the objects of the API, and machine.go the records of the controllers.
// invariants.go has the promises, independently of their implementation, and trace.go prints the history of a finding.
package joint
