// Package inflight is the write-ahead log of provisioning. It holds one [Entry] for each volume whose CreateVolume may
// have been called and whose outcome is not settled. The API server confirms an entry before the driver is called, so a
// process that starts later knows every volume that may exist without a PersistentVolume.
//
// The log is stored in annotations of eight Leases in the driver's namespace, its shards, or in a single Lease for a
// node. The volume's name selects the shard. Long lists of topologies, which entries share, are in one more Lease. The
// rights of the stock external-provisioner's Role suffice: get, create and update on leases.
//
// All writes are updates with the resourceVersion that was read. A process that starts to lead writes an epoch, higher
// than any before, into each shard. The writes of earlier processes fail from then on, and those processes learn that
// they are superseded.
//
// The take-over creates a missing shard before the shard's first entry, because the epoch in it keeps earlier processes
// from writing. The only Lease of a node's log is owned by the Node while it is empty, so garbage collection may remove
// it at any time. The process that creates it anew then goes on, and any other process finds a foreign epoch in it.
//
// No unreadable content is dropped. An entry that cannot be decoded blocks its volume's name. A shard is read-only, and
// blocks the names that belong to it, if it is a copy (restored from a backup, applied in another namespace), another
// driver's, or of an unknown version. [Log.Problems] lists these entries and shards.
//
// The exported methods are safe for concurrent use.
//
// Stability: for embedders. Until version 1.0 it changes only with a minor release, and CHANGELOG.md lists each change.
package inflight
