// Package nodes explains the pods, claims and volumes that a node holds up, the progress of its fence, and the
// decision of each FencePolicy about it. It also names the possible cost of a request about a fence before a person
// makes it.
//
// [Read] reads; [Explain], [ListOf], [CheckFence], [CheckUnfence] and [CheckConfirm] are pure functions of the
// facts that it returns. The memory of a running volume-guard, such as the time since which it has seen a Lease
// unchanged, cannot be read from outside. The times in Nodes and Leases, from the clocks of other machines, stand in
// for it.
package nodes
