// Package fencepolicy explores, to exhaustion within named bounds, the nodes that a FencePolicy has fenced, and checks
// each step:
//
//   - F2: the number of nodes that are fenced at once, in all and in one zone, stays within the limits of the policy.
//     The policy fences no node while it is halted, or while the node is reachable.
//   - F4: every state leads to rest, and at rest no node waits that the policy should have fenced.
//
// The decisions are the shipped code. The model plays the nodes, which are cut off and return one after the other; the
// node lifecycle controller; the watches, which lag for each node and NodeFence; the live reads of pkg/fencing between
// a decision and the creation of its NodeFence: all NodeFences, then the Node, then its Lease; the end of fences;
// people who fence nodes by hand; and chance.
//
// # What is taken for granted
//
// Watches deliver each event within unreachableAfter. The halt of the policy depends on them: if more nodes become
// unreachable at the moment of the decision, a node may be fenced that would not be a moment later. A node that a
// person fences by hand counts against the limits, but may exceed them, because a person can create a NodeFence between
// the list of NodeFences and the creation of one. Two leaders at the same time can do likewise. Leader election keeps
// them apart, as a NodeFence is created within seconds after the reads. The life of a fence after its creation is
// explored in test/model/fencing.
package fencepolicy
