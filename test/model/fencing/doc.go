// Package fencing explores, to exhaustion within named bounds, what can happen to a node that is fenced, and judges
// each step:
//
//   - F1: a pod is released, the node tainted, and a volume detached for the taint only while no process of the pod
//     runs, and its kubelet does not start one.
//   - F2: no agent begins for a policy on a node that is Ready, and none on one of the control plane. The limits of
//     policies are explored in test/model/fencepolicy; a fence counts against them while anything remains on its node.
//   - F3: a node that is Ready is never tainted, and none keeps its taint after the end of its fence.
//   - F4: every state leads to rest, and at rest a fence waits for a reason that is so and names a way out.
//   - F5: what agents did is undone when the fence ends, unless somebody has abandoned it, and no agent is at work.
//   - F6: no agent is started for an attempt that was not written down; replicas end between any two calls.
//   - F7: the proof that a machine is off is not withdrawn while it is, and one that is not so is.
//   - F8: no two nodes write to a volume that is fenced: once it was given to a pod on another node, nothing that
//     processes on this one have written reaches it. Who ends the fence at once answers for that.
//
// volume-guard in it is the code that ships: what its tracker records, what it
// decides, what its sessions ask and learn, and what a fence shows about a pod. Played are those who answer: the API
// server with its watches; the machine, its kubelet, and the node lifecycle; agents, which act, fail, hang, act
// late, do not end, or lie; taint eviction, the pod garbage collector and the attach-detach controller; the
// controller that holds pods, which reads the NodeFence and then the Node; the one that locks claims, and gives the
// volume of a pod away by such reads; users and administrators; and chance. What a fence shows is the rule of both.
//
// What a lying agent, or a person who confirms what is not so, has released is theirs to answer for: in worlds with
// such a lie F1 does not count from there on. That the lie is found out does.
//
// # What is taken for granted
//
// A session takes seconds: no wait that is measured ends during one for its replica. Nor does one leader start an
// agent while another, which has read that it was not started, writes down the end of its attempt. With two leaders
// at once that could be. Then the agent is at work after the end of its fence: the machine goes off, and nothing is
// released.
//
// An agent that was stopped ends within its time limit and a minute more, or does nothing more. Else it could act
// after another agent has undone the fence. So does one that undoes it and hangs, once it is tried again.
//
// volume-guard reads a fence every 10 s: it sees that a node is back before a node that is cut off once more is not
// Ready (40 s or more), and that a Lease is not renewed before a machine has started. While volume-guard is away, a
// node with the taint that comes back and is cut off again loses the volumes of what it has started.
//
// A kubelet that works renews its Lease within 40 s. One that has started writes its boot ID together with Ready
// before it starts pods, and renews its Lease no more than once before. A request that was under way when a machine
// ended is carried out or lost before it starts again.
//
// worlds.go lists the bounds; world.go is what exists in one; nodes.go, agents.go, people.go and guard.go are the
// moves; machine.go makes facts and sessions of the engine; judge.go holds the promises, apart from how the code
// keeps them; story.go says how something came about. Stories in which the engine broke a promise once are in
// stories_test.go.
package fencing
