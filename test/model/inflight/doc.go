// Package inflight explores, to exhaustion within named bounds, what can happen to the entries of one shard of the
// in-flight log, which is stored in two Leases, and checks each step:
//
//   - L1: an entry that was confirmed counts until it is replaced or removed, and one whose removal was confirmed never
//     counts again. So a process that takes over, at any moment, finds each volume that may exist.
//   - L2: what a process confirms after another one has taken over, the other one has found.
//   - L3: every state leads to rest, and at rest the leader's entries are stored as wanted, and confirmed.
//
// So the shard is one register with compare-and-swap, for which test/model/provision takes it. The division of the
// entries between the Leases is the shipped code, Split and Young of internal/engine/inflight. Played are the order of
// calls in pkg/provision/inflight, the API server, processes that end, stop and take over, a former release, and writes
// that are not answered.
//
// # What all worlds hold constant
//
//   - The shard has two entries. One name of a third volume would show nothing new: entries meet only in the Leases.
//   - The young Lease exists, is readable, and is not deleted: pkg/provision/inflight tests what such a shard blocks.
//   - No operator settles an entry, and no other program adds one. A leader obeys an annotation that it reads in the
//     joined view, as with one Lease.
//   - An answer that arrives later changes nothing but the time: until then, its process waits.
//
// # What is taken for granted
//
//   - A Lease's resourceVersion changes with each write, and a write based on an earlier one is refused.
//   - Epochs grow: a process takes over the young Lease with an epoch above the one that it found there.
//   - A former release reads the young Lease alone, and takes it for unreadable while the old one counts.
package inflight
