package inflight

import (
	"cmp"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Errors of a Log, for errors.Is.
var (
	// ErrSuperseded means that another process wrote a higher epoch, so this Log never writes again. The entry of a Put
	// that failed with it may or may not be stored.
	ErrSuperseded = errors.New("another process took the in-flight log over")
	// ErrForbidden means that the API server denies reads or writes of the Leases, and wraps its error.
	ErrForbidden = errors.New("the in-flight log's Leases may not be read or written")
	// ErrUnconfirmed means that the entry may or may not be stored.
	ErrUnconfirmed = errors.New("it is not known whether the entry is stored in the in-flight log")
	// ErrFull means that the shard of that name, or the Lease of the topologies, has no room, and that no change was made.
	ErrFull = errors.New("the in-flight log is full")
	// ErrShare means that the entry's namespace or StorageClass has used up its share of the shard, and that no change was
	// made.
	ErrShare = errors.New("the share of the in-flight log is used up")
	// ErrTooLarge means that even an empty Lease has no room for the entry or for its topologies, and that no change was
	// made.
	ErrTooLarge = errors.New("the request is too large for the in-flight log")
	// ErrUnreadable means that the stored bytes for that name cannot be read, or that its shard is read-only. See
	// [Log.Problems].
	ErrUnreadable = errors.New("the entry of the in-flight log for that name cannot be read")
	// ErrSettled means that an operator settled the entry, which is removed from the log.
	ErrSettled = errors.New("an operator settled the entry of the in-flight log")
	// ErrAbsent means that the log has no such entry.
	ErrAbsent = errors.New("the in-flight log has no entry of that name")
	// ErrNoShard means that the Lease for that name does not exist and Config.CreateMissing is false.
	ErrNoShard = errors.New("the in-flight log's Lease for that name does not exist")
	// ErrLeaseEnded means that the leader election's lease has ended, without which the log sends no writes.
	ErrLeaseEnded = errors.New("the lease ended")
	// ErrNotReady means that TakeOver has not succeeded.
	ErrNotReady = errors.New("the in-flight log was not taken over")
	// ErrStopped means that Run has ended.
	ErrStopped = errors.New("the in-flight log was stopped")
	// ErrInvalid means that the entry is incomplete, or would not be decoded to an equal one.
	ErrInvalid = errors.New("invalid entry")
)

// Causes of a read-only shard or an unreadable entry. The Err of a [Problem] wraps one of them.
var (
	// ErrCopy means that the Lease is a copy of the object that the log was written to.
	ErrCopy = errors.New("a copy of another Lease (restored from a backup, or applied again): check it and delete it")
	// ErrForeign means that the Lease is no shard of this driver's log.
	ErrForeign = errors.New("not a Lease of this driver's in-flight log")
	// ErrVersion means that the writer used a format version that this program does not know.
	ErrVersion = errors.New("written by a version that is not known here")
	// ErrDecode means that the bytes of the entry cannot be decoded.
	ErrDecode = errors.New("the entry cannot be read")
	// ErrMisplaced means that the annotation or the Lease belongs to another volume.
	ErrMisplaced = errors.New("the entry is not where its volume's entry belongs")
	// ErrAppeared means that another program added the entry, or changed an unreadable one, while this process led; the
	// next process reads it.
	ErrAppeared = errors.New("another program added the entry; it is read after the next start")
)

// Ways out of a Lease that stops a release.
const (
	// ToSettle is for entries that can be read. Nothing finishes a forged one, and settle shows the claims first.
	ToSettle = "look for each in the storage system and settle it (kubectl reclaim settle), even if its Lease is forged"
	// IfForged is for a Lease that cannot be read, and that may not name its driver. The process of a log can run in
	// another namespace than its log, or outside of the cluster.
	IfForged = "it is forged, and can be deleted, if no csi-reclaimer ever had its log in the Lease's namespace: " +
		"--leader-election-namespace, by default the pod's namespace, outside of a pod \"default\""
)

// ownOnly ends the error about an entry that exceeds a limit of Locate.
const ownOnly = "which only the csi-reclaimer of this log reads"

// Problem is a shard or an entry that cannot be used, and that the log keeps unchanged.
type Problem struct {
	// Lease is the namespace and name of the shard.
	Lease string
	// Annotation is the key of the entry, empty if the whole shard is affected.
	Annotation string
	// Volume is the name of the volume, as far as the key contains it, and empty if unknown.
	Volume string
	// Err is the cause and wraps ErrCopy, ErrForeign, ErrVersion, ErrDecode, ErrMisplaced or ErrAppeared.
	Err error
	// shards is the number of shards of the log, 0 if the shard does not record it.
	shards int
}

// Of reports whether the unreadable content may concern the volume of the PV with this name, being either the volume's
// entry or its shard. A Lease whose name is not a shard's may concern any volume. The Lease of the chunks concerns
// none, because an entry that lacks a chunk is a problem of its own.
func (p Problem) Of(pv string) bool {
	if p.Annotation != "" {
		return p.Annotation == annotationKey(pv) || p.Annotation == annotationKey(volumeOfPV(pv))
	}
	number, named := shardNumber(p.Lease)
	if p.shards == 0 && number == 0 {
		return true // it may be the only shard
	}
	shards := cmp.Or(p.shards, Shards)
	return !named || number == shardOf(pv, shards) || number == shardOf(volumeOfPV(pv), shards)
}

// OfShard reports whether a whole shard is unreadable, which may have the entry of a volume with any name.
func (p Problem) OfShard() bool {
	number, _ := shardNumber(p.Lease)
	return p.Annotation == "" && number != topologyNumber
}

// HidesEntries reports whether the unreadable content may have entries. The Lease of the chunks has none, and an entry
// that lacks a chunk is a problem of its own.
func (p Problem) HidesEntries() bool { return p.Annotation != "" || p.OfShard() }

// String formats the problem as one line.
func (p Problem) String() string {
	if p.Annotation == "" {
		return fmt.Sprintf("Lease %s: %v", p.Lease, p.Err)
	}
	return fmt.Sprintf("Lease %s, annotation %s: %v", p.Lease, p.Annotation, p.Err)
}

func leaseName(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }
