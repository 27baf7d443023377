package inflight

import (
	"cmp"
	"regexp"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Entry is one volume whose CreateVolume may have been called and whose outcome is not settled. It suffices to repeat
// the same request and to create the PersistentVolume even after the claim, its StorageClass, its node or its namespace
// are gone, but holds no values of Secrets.
type Entry struct {
	// Volume is the name of the volume and of its PersistentVolume, and identifies the entry. Required.
	Volume string
	// Claim is the claim that the volume is created for. Required.
	Claim volume.ClaimRef
	// Begun is the time at which the entry was added.
	Begun time.Time
	// Epoch is the epoch of the process that added the entry, and is set by Put.
	Epoch int64
	// Discarding means that DeleteVolume may have been called for a volume that does not match the request.
	Discarding bool
	// Requests are the requests that may have been sent, one or two. Required.
	Requests []Request
}

// Request is one CreateVolume request, together with the data that turns its answer into a PersistentVolume.
type Request struct {
	// Node is the node that was selected for the claim, empty if none was.
	Node string
	// Create is the request without its secrets, and is never changed. Required.
	Create *csi.CreateVolumeRequest
	// Secret names the Secret that goes with CreateVolume and DeleteVolume, nil for none.
	Secret *v1.SecretReference
	// Source is the source of the volume's data, nil for an empty volume.
	Source *volume.SourceRef
	// DriverVersion is the vendor_version of the driver that was called first, empty if unknown. OtherVersions is set if
	// another version may have been called, too.
	DriverVersion string
	OtherVersions bool
	// MayReschedule is set if another node may have room when the driver answers ResourceExhausted.
	MayReschedule bool
	// PV is the PersistentVolume without the fields that the driver's answer adds: handle, attributes, capacity and node
	// affinity. Required.
	PV *v1.PersistentVolume
	// Topology is set if the PersistentVolume's node affinity comes from the volume's accessible_topology.
	Topology bool
	// Migrated is set if the PersistentVolume is stored in the form of the in-tree plugin that the driver replaces.
	Migrated bool
}

// SourceInFlight returns whether an entry has a volume that is created from a source, and the problem if a part of the
// log cannot be read, which may have such an entry. The source's UID does not count. An entry counts from its Put until
// its removal is confirmed, because the next process repeats the request of an entry that is stored. The state is
// unknown before TakeOver, after another process took over, and after Run.
func (l *Log) SourceInFlight(of volume.SourceRef) (state volume.InFlight, problem string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return volume.InFlightUnknown, ""
	}
	for _, s := range l.shards {
		for it := range s.mayHave {
			if it.entry.isFrom(of) {
				return volume.InFlightOpen, ""
			}
		}
	}
	for _, p := range l.problems() {
		if p.HidesEntries() {
			return volume.InFlightUnreadable, p.String()
		}
	}
	return volume.InFlightSettled, ""
}

func (e *Entry) isFrom(of volume.SourceRef) bool {
	return slices.ContainsFunc(e.Requests, func(r Request) bool {
		return r.Source != nil && r.Source.Kind == of.Kind && r.Source.Namespace == of.Namespace && r.Source.Name == of.Name
	})
}

var apart = regexp.MustCompile(`-apart-[0-9a-f]{8}$`)

// volumeOfPV returns the name of the volume of a PersistentVolume.
func volumeOfPV(pv string) string { return apart.ReplaceAllString(pv, "") }

// State is the known state of a volume's entry, where the zero value is Unknown.
type State string

const (
	// Unknown means that TakeOver has not succeeded, another process has taken over, or Run has ended.
	Unknown State = ""
	// Absent means that the log has no entry of that name.
	Absent State = "Absent"
	// Open means that the entry is stored.
	Open State = "Open"
	// Adding means that a Put of the entry is not confirmed yet; the entry may be stored.
	Adding State = "Adding"
	// Removing means that a removal is not confirmed yet; the entry may still be stored.
	Removing State = "Removing"
	// Unreadable means that the entry's bytes cannot be read, or that its shard is read-only.
	Unreadable State = "Unreadable"
)

// String returns the name of the state.
func (s State) String() string { return cmp.Or(string(s), "Unknown") }
