// Package fencing decides how a node is fenced. It selects the nodes and the time, tries the agents, judges whether an
// agent's success is a proof, releases pods and volumes because of the proof, and lets the node return. The package is
// pure: it imports no client, context, logger or clock, and makes no calls.
//
// A [Facts] holds all knowledge of one NodeFence, its node and its agent, and [Decide] names the next step. Each step
// is written to the status of the NodeFence before it begins, so that another process can continue at the same place.
// An unknown fact is never proof: every fact that releases a pod or volume was read live after the proof.
// [DecidePolicy] selects the nodes that a FencePolicy fences, and [Evidence] returns the proof that a fence gives about
// a pod.
//
// All state is plain and exported, so that it can be copied, encoded and compared. The model checker in
// test/model/fencing drives the same functions.
package fencing
