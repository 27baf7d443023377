// Package joint explores, to exhaustion within named bounds, what the controllers of volume-guard do to each other: the
// hold of pods, the locks of claims, pvc-protection and node fencing, beside each other on one volume. It judges each
// state:
//
//   - S1: at no time can processes on two nodes write to the volume. What a process has written before its end can
//     reach a volume that is mounted.
//   - S2: the claim does not go, and its volume with it, while processes run that can write to it.
//   - S3: no pod loses its gate without the lock, and no lock is freed while processes of its pod can write, or its
//     kubelet may start them. What is released because a pod has ended is released after the unmount.
//   - L1: every state leads to rest. At rest each pod runs, has completed, or waits for a reason that is so and has a
//     way out, and so does the fence.
//
// There are two nodes, one volume with its claim, a pod that runs on node a, and a second one that waits for the claim
// and runs on node b. The controllers are the code that ships. What one gives another passes through objects of
// the API alone, and each reads them by its own record, as it ships. Played are kubelets with their machines, the pod garbage collector, taint eviction, the
// scheduler, the agent of a fence, users and programs.
//
// What a person has said is excused: a confirmation, the taint out-of-service on a node that is not Ready, the deletion
// of the Node of a kubelet that was cut off, and a fence that is ended by spec.unfence Now. From there on the person
// answers for the processes. The deletion of a NodeFence is no such word: programs do it.
//
// # What is taken for granted
//
// A session is carried out at once, with reads that are up to date: what happens between its calls, watches that lag,
// two leaders, crashes and calls that fail are what the models of each controller show (test/model/podsafety,
// singlenode, fencing). Only node fencing can list the pods of a node some time before it writes that the fence ends.
//
// The policies of admission are applied: a force deletion is confirmed, or its pod has no node, or has ended and was
// not deleted before; nobody else removes gates, locks and finalizers. Kubelets report generations (1.34). One that
// works ends a pod without grace within the duration of a Lease, and unmounts within the unmount grace unless a fence
// keeps it from the volume. It renews its Lease all the time, and mounts no volume before it has written its boot ID,
// as kubelets do with volumes that are attached (ReportedInUse in pkg/volume/util/operationexecutor), nor one that it
// is kept from. Agents neither fail nor lie, and fence the machine that the Node shows. A fence that has returned goes
// at once. Nothing is attached: VolumeLocks are explored in test/model/podsafety.
//
// The worlds in which the engines are known to break a promise are listed in broken (worlds.go).
//
// worlds.go lists the bounds; world.go is what exists in one; cluster.go, nodes.go, people.go and guard.go are the
// moves; objects.go makes the objects of the API, and machine.go what the controllers record of them; judge.go holds
// the promises, apart from how the code keeps them; story.go says how something came about.
package joint
