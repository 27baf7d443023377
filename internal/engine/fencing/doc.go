// Package fencing decides how a node is fenced: which nodes, when, by which agent, what that proves, what is released
// because of it, and when the node may return. It is pure: it imports no client, context, logger or clock, and makes no
// calls.
//
// A [Facts] holds what is known of one NodeFence, its node and its agent, and [Decide] names the next step. All that is
// begun was written to the status of the NodeFence before, so that another process continues where one ended. Unknown
// is never proof: what releases was read live, after the proof. [DecidePolicy] decides for one FencePolicy which nodes
// are fenced. [Evidence] is what a fence shows about a pod.
//
// All state is plain and exported, so that it can be copied, encoded and compared. The model checker drives the same
// functions (test/model/fencing).
package fencing
