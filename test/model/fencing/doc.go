// Package fencing explores, to exhaustion within named bounds, the fence of a node, and checks each step:
//
//   - F1: a pod is released, the node tainted, and a volume detached for the taint only while no process of the pod
//     runs, and its kubelet does not start one.
//   - F2: no agent begins for a policy on a node whose condition Ready is True or False, and none on one of the control
//     plane. The limits of policies are explored in test/model/fencepolicy; a fence counts against them while anything
//     remains on its node.
//   - F3: a node that is Ready is never tainted, and none keeps its taint after the end of its fence.
//   - F4: every state leads to rest, and at rest a fence waits for a true reason with a way out.
//   - F5: the effects of agents are undone when the fence ends, unless it was abandoned, and no agent is at work.
//   - F6: no agent is started for an attempt without a record; replicas end between any two calls.
//   - F7: a proof that a machine is off is withdrawn if it is false, and only then.
//   - F8: no two nodes write to a fenced volume: once it was given to a pod on another node, no data that processes on
//     this node have written reaches it. A person who ends the fence at once answers for that.
//   - F9: while a proven fence keeps a node from volumes, and the Node shows no other boot, new pods are kept from the
//     node by a taint, and by no taint otherwise. Nothing but a boot or a person ends that, and nothing outlasts it.
//
// The model runs the shipped code of volume-guard: the records of its tracker, its decisions, the calls and replies of
// its sessions, and the evidence of a fence about a pod. The model plays everything around it: the API server with its
// watches; the machine, its kubelet, and the node lifecycle; agents, which act, fail, hang, act late, do not end, or
// lie; taint eviction, the pod garbage collector and the attach-detach controller; the controller that holds pods,
// which reads the NodeFence and then the Node; the controller that locks claims, which gives the volume of a pod away
// after the same reads; users and administrators; and chance. Both controllers judge a fence by the same rule.
//
// A lying agent, or a person with a false confirmation, answers for the pods that are released because of it: after
// such a lie, F1 does not count. The detection of the lie does count.
//
// # What is taken for granted
//
// A session takes seconds, so no measured wait ends during one for its replica. No leader starts an agent while another
// leader, which has read that the agent was not started, records the end of its attempt. With two leaders at once that
// would be possible. The agent would then be at work after the end of its fence: the machine goes off, and no pod is
// released.
//
// A stopped agent ends within its time limit and a minute more, or has no further effect. Otherwise it could act after
// another agent has undone the fence. The same holds for an agent that undoes the fence and hangs, once the undo is
// retried.
//
// volume-guard reads a fence every 10 s. It sees that a node is back before the node, cut off once more, is not Ready
// (40 s or more), and that a Lease is not renewed before a machine has started. If a tainted node comes back and is cut
// off again while volume-guard is away, it loses the volumes of the pods that it has started.
//
// A working kubelet renews its Lease within 40 s. A kubelet that has started writes its boot ID together with Ready
// before it starts pods, and renews its Lease at most once before. A request in flight at the end of a machine is
// carried out or lost before the machine starts again.
//
// worlds.go has the bounds, and world.go the contents of a world. nodes.go, agents.go, people.go and guard.go have the
// moves, and machine.go makes facts and sessions of the engine. invariants.go has the promises, independently of their
// implementation, and trace.go prints the history of a finding. Traces in which an earlier engine broke a promise are
// in traces_test.go.
package fencing
