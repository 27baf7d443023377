// Package inflight is the write-ahead log of provisioning: one [Entry] for each volume whose CreateVolume may
// have been called and whose outcome is not settled. An entry is confirmed by the API server before the driver
// is called, so that a process that starts later knows each volume that may exist without a PersistentVolume.
//
// The log is stored in annotations of eight Leases in the driver's namespace, its shards, or of one for a node. The
// name of a volume gives its shard. Long lists of topologies, which entries share, are in one more Lease. The rights of
// the stock external-provisioner's Role suffice: get, create and update on leases.
//
// All writes are updates with the resourceVersion that was read. A process that starts to lead writes an
// epoch, higher than any before, into each shard: the writes of earlier processes fail from then on, and
// those processes learn that they are superseded.
//
// A shard that is missing is created by the take-over, before its first entry: the epoch in it is what keeps earlier
// processes from writing. The only Lease of a node's log has the Node as its owner while it is empty, so garbage
// collection may remove it at any time. Then the process that creates it anew goes on, and another one finds an epoch
// there that is not its own.
//
// Nothing unreadable is dropped: an entry of unknown bytes blocks its volume's name, and a shard that is a copy
// (restored from a backup, applied in another namespace), of another driver or of an unknown version is read-only and
// blocks the names that belong to it. [Log.Problems] names them.
//
// The exported methods are safe for concurrent use.
package inflight
