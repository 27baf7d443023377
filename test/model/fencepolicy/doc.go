// Package fencepolicy explores, to exhaustion within named bounds, which nodes a FencePolicy has fenced, and judges
// each step:
//
//   - F2: as many nodes are fenced at once, in all and of one zone, as the policy allows, and none is by it while it
//     is halted, or while the node is reachable.
//   - F4: every state leads to rest, and at rest no node waits that the policy ought to have fenced.
//
// The decisions are the code that ships. Played are the nodes, one of which after the
// other is cut off and returns; the node lifecycle controller; the watches, which lag for each node and NodeFence;
// the live reads between a decision and the NodeFence that it creates, as pkg/fencing makes them: all NodeFences,
// then the Node, then its Lease; the end of fences; people who fence nodes by hand; and chance.
//
// # What is taken for granted
//
// Watches show within unreachableAfter what has happened. The policy is halted by what they show: where more nodes
// turn unreachable in the moment of the decision, one may be fenced that would not be a moment later. What a person
// fences by hand counts against the limits, and is not kept from exceeding them: between the list of NodeFences and
// the creation of one, a person can create another. Two leaders at the same time can do likewise; leader election
// keeps them apart, for a NodeFence is created within seconds after the reads. What becomes of a fence once it
// exists is explored in test/model/fencing.
package fencepolicy
