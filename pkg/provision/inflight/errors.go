package inflight

import (
	"cmp"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Errors that callers distinguish with errors.Is.
var (
	// ErrSuperseded: another process wrote a higher epoch. This Log never writes again. Whether the
	// entry of a Put that failed with it is stored is not known.
	ErrSuperseded = errors.New("another process took the in-flight log over")
	// ErrForbidden: the API server does not let us read or write the Leases. It wraps the answer.
	ErrForbidden = errors.New("the in-flight log's Leases may not be read or written")
	// ErrUnconfirmed: the entry may or may not be stored.
	ErrUnconfirmed = errors.New("it is not known whether the entry is stored in the in-flight log")
	// ErrFull: the shard of that name, or the Lease of the topologies, has no room. Nothing was changed.
	ErrFull = errors.New("the in-flight log is full")
	// ErrShare: the entry's namespace or StorageClass has as many entries in the shard as it may have. Nothing was
	// changed.
	ErrShare = errors.New("the share of the in-flight log is used up")
	// ErrTooLarge: an empty Lease has no room for the entry, or for its topologies. Nothing was changed.
	ErrTooLarge = errors.New("the request is too large for the in-flight log")
	// ErrUnreadable: the bytes stored for that name cannot be read, or its shard is read-only. See [Log.Problems].
	ErrUnreadable = errors.New("what the in-flight log holds for that name cannot be read")
	// ErrSettled: an operator settled the entry. It is removed from the log.
	ErrSettled = errors.New("an operator settled the entry of the in-flight log")
	// ErrAbsent: the log has no such entry.
	ErrAbsent = errors.New("the in-flight log has no entry of that name")
	// ErrNoShard: the Lease for that name does not exist, and Config.CreateMissing is false.
	ErrNoShard = errors.New("the in-flight log's Lease for that name does not exist")
	// ErrLeaseEnded: the leader election's lease ended. Nothing is written while that is so.
	ErrLeaseEnded = errors.New("the lease ended")
	// ErrNotReady: TakeOver has not succeeded.
	ErrNotReady = errors.New("the in-flight log was not taken over")
	// ErrStopped: Run has ended.
	ErrStopped = errors.New("the in-flight log was stopped")
	// ErrInvalid: the entry is not complete, or would not come back from the log as it is.
	ErrInvalid = errors.New("invalid entry")
)

// Reasons why a shard is read-only or an entry cannot be read. They are wrapped in the Err of a [Problem].
var (
	// ErrCopy: the Lease is not the object that the log was written to, but a copy of it.
	ErrCopy = errors.New("a copy of another Lease (restored from a backup, or applied again): check it and delete it")
	// ErrForeign: the Lease is not a shard of this driver's log.
	ErrForeign = errors.New("not a Lease of this driver's in-flight log")
	// ErrVersion: a version that this program does not know has written it.
	ErrVersion = errors.New("written by a version that is not known here")
	// ErrDecode: the bytes of the entry cannot be read.
	ErrDecode = errors.New("the entry cannot be read")
	// ErrMisplaced: the annotation or the Lease belongs to another volume.
	ErrMisplaced = errors.New("the entry is not where its volume's entry belongs")
	// ErrAppeared: somebody else added the entry while this process led. The next one reads it.
	ErrAppeared = errors.New("somebody else added the entry; it is read after the next start")
)

// Problem is a shard or an entry that cannot be used. Nothing is done about it here but to keep it.
type Problem struct {
	// Lease is the namespace and name of the shard.
	Lease string
	// Annotation is the key of the entry, empty where the whole shard is meant.
	Annotation string
	// Volume is the volume's name as far as the key has it, empty if unknown.
	Volume string
	// Err says why. It wraps ErrCopy, ErrForeign, ErrVersion, ErrDecode, ErrMisplaced or ErrAppeared.
	Err error
	// shards is the number of shards of the log, 0 if the shard does not note it.
	shards int
}

// Of reports whether what cannot be read may be about the volume of a PV of this name: it is the volume's entry, or its
// shard. A Lease whose name is no shard's may be about any; that of the chunks is about none: an entry that lacks one
// is a problem of its own.
func (p Problem) Of(pv string) bool {
	if p.Annotation != "" {
		return p.Annotation == annotationKey(pv) || p.Annotation == annotationKey(volumeOfPV(pv))
	}
	number, named := shardNumber(p.Lease)
	if p.shards == 0 && number == 0 {
		return true // it may be the only one
	}
	shards := cmp.Or(p.shards, Shards)
	return !named || number == shardOf(pv, shards) || number == shardOf(volumeOfPV(pv), shards)
}

// String returns the problem in one line.
func (p Problem) String() string {
	if p.Annotation == "" {
		return fmt.Sprintf("Lease %s: %v", p.Lease, p.Err)
	}
	return fmt.Sprintf("Lease %s, annotation %s: %v", p.Lease, p.Annotation, p.Err)
}

func leaseName(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }
