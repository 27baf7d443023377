// Package nodes explains what stands still because of a node: the pods that are held on it, their claims and volumes;
// how far its fence is, and what that lacks; and what each FencePolicy does about the node, and when. It also says what
// a request about a fence may cost, before somebody makes it.
//
// A [Reader] reads; [Explain], [ListOf], [CheckFence], [CheckUnfence] and [CheckConfirm] are pure functions of what it
// found. The package has no rules of its own: it calls the functions by which volume-guard acts, with the facts of live
// reads. What a running volume-guard remembers cannot be read from outside, such as since when it has seen a Lease
// unchanged: instead, the times in Nodes and Leases count here, which are by the clocks of other machines.
package nodes
