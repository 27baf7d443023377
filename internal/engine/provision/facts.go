package provision

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
)

// Facts is all knowledge about one volume name at one moment. The zero value of every field means that the fact is not
// known, or speaks for doing nothing.
type Facts struct {
	// MayAct is true if this process holds its lease, by its own clock.
	MayAct bool
	// Claim is the claim that the name belongs to: the entry's claim while an entry is open.
	Claim Claim
	// First is true if no entry of the name was ever closed: this process has closed none, and the claim was created
	// after it took over the log.
	First bool
	// Wanted is true if the claim is to get its volume now: its class exists, and a node is selected if one is needed.
	Wanted bool
	// Composed is true if the CreateVolume request for a volume that is Wanted is composed.
	Composed bool
	// Prepared is true if the request's Secret was read, and its source is protected.
	Prepared bool
	// SecondFailed is true if adding a second request to the open entry failed in this session.
	SecondFailed bool
	// Confirmed is true if, in this session, the open entry was written, or a live read of the log found it not settled by
	// an operator.
	Confirmed bool
	// VersionNoted is true if the open entry has the version of the driver that would receive its next request.
	VersionNoted bool
	// Log is the in-flight log's state for the name.
	Log Log
	// Record is this process's record of the open entry, which counts only while Log is LogOpen.
	Record Record
	// PV is the PersistentVolume with the volume's name.
	PV PV
	// Apart is the PersistentVolume that the volume gets if another node's has taken its name.
	Apart PV
	// Shared is true if the watch cache shows a PersistentVolume with another name for the volume that the driver
	// created.
	Shared bool
}

// Log is the in-flight log's state for a name, which is unknown until the log has been read.
type Log uint8

const (
	// LogUnknown means that the log has not been read.
	LogUnknown Log = iota
	// LogAbsent means that the log has no entry, so that no process can have called CreateVolume with an unknown outcome.
	LogAbsent
	// LogOpen means that the log has an entry.
	LogOpen
	// LogChanging means that a write of the entry is not confirmed yet.
	LogChanging
	// LogUnreadable means that the entry cannot be read, or the log cannot be written.
	LogUnreadable
	// LogFull means that the log has no entry, and no room for one.
	LogFull
	// LogOthers means that the entry belongs to another claim with the same volume name.
	LogOthers
)

// Claim is the knowledge about a claim, or no claim in its zero value.
type Claim struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	Ours            bool
	// Node relates the claim's selected node to this process, and SelectedNode is the node's name.
	Node         NodeSelection
	SelectedNode string
	// Terminating is true if the claim has a deletionTimestamp, and Gone if it does not exist, or was bound before the
	// watch began: the cache shows neither. Nothing of that can be undone.
	Terminating, Gone bool
	// VolumeName is spec.volumeName, which is immutable once it is set.
	VolumeName string
	// PVName is the name of the claim's volume and of its PersistentVolume.
	PVName string
	// Renamed is true if the claim's volume has another name, so that the claim needs no volume of this one.
	Renamed bool
	// Read is the time of a live read, zero for the watch cache.
	Read time.Time
}

// Fresh reports whether the claim was read live and the read is still valid.
func (c Claim) Fresh(now time.Time) bool { return fresh(c.Read, now) }

// needsVolume reports whether a volume that is created now can become the claim's.
func (c Claim) needsVolume() bool {
	return c.UID != "" && c.Ours && !c.Terminating && !c.Gone && c.VolumeName == "" && !c.Renamed
}

// over reports whether the claim can never use a volume that is created now.
func (c Claim) over() bool { return c.Terminating || c.Gone || c.VolumeName != "" }

// namedAlone reports whether no other claim can have the same volume name, because the name contains the whole UID.
func (c Claim) namedAlone() bool {
	bare := func(s string) string { return strings.ReplaceAll(s, "-", "") }
	return strings.HasSuffix(bare(c.PVName), bare(string(c.UID)))
}

// NodeSelection relates the selected node of a claim to this process. In the zero value the node does not matter,
// because the process provisions for all nodes.
type NodeSelection uint8

const (
	// NodeAny means that volumes are provisioned for all nodes.
	NodeAny NodeSelection = iota
	NodeNone
	NodeHere
	NodeElsewhere
)

// PV is the knowledge about the PersistentVolume with a name; the zero value knows nothing.
type PV struct {
	// Known is true if the other fields are valid. A watch cache that lacks the PersistentVolume leaves it false.
	Known bool
	// Exists is true if the PersistentVolume exists, as the fields below describe it.
	Exists bool
	// OfClaim is true if its claimRef has the claim's UID, and OfDriver if it names a volume of this driver.
	OfClaim, OfDriver bool
	Handle            string
	Terminating       bool
	// Elsewhere is true if its node affinity excludes the node of this process.
	Elsewhere bool
	// Read is the time of a live read or of the answer to its creation, zero for the watch cache.
	Read time.Time
}

// stored reports whether it is the claim's PersistentVolume and stays.
func (p PV) stored() bool {
	return p.Exists && p.OfClaim && p.OfDriver && !p.Terminating && !p.Elsewhere
}

// Names reports whether it is the PersistentVolume of the volume with this handle, in any case (volume.HandleKey).
func (p PV) Names(handle string) bool {
	return p.Exists && p.OfDriver && handle != "" && strings.EqualFold(p.Handle, handle)
}

func fresh(read, now time.Time) bool { return !read.IsZero() && now.Sub(read) <= session.LiveFor }

// Fresh reports whether the PersistentVolume was read live and the read is still valid.
func (p PV) Fresh(now time.Time) bool {
	return p.Known && fresh(p.Read, now)
}

// named reports whether a PersistentVolume names the volume that the driver created.
func (f Facts) named() bool { return f.PV.Names(f.Record.Handle) || f.Apart.Names(f.Record.Handle) }

// namedLive reports whether a live read shows that.
func (f Facts) namedLive(now time.Time) bool {
	h := f.Record.Handle
	return f.PV.Names(h) && f.PV.Fresh(now) || f.Apart.Names(h) && f.Apart.Fresh(now)
}

// storedBefore reports whether the claim's PersistentVolume has the only volume that the entry can have created.
func (f Facts) storedBefore() bool {
	return f.Record.hasOneVolume() && f.PV.OfClaim && f.PV.OfDriver && f.PV.Handle != "" && !f.PV.Elsewhere
}

// mayBeStored reports whether the claim's PersistentVolume may name the volume in another form than the driver.
func (f Facts) mayBeStored() bool {
	return !f.Record.InPVForm && f.PV.Exists && f.PV.OfDriver && f.PV.OfClaim
}

// apart reports whether the volume gets a PersistentVolume with a name other than its own, which is Released at once:
// another node has provisioned the claim, which can never bind to this volume.
func (f Facts) apart() bool { return f.PV.Exists && f.PV.Elsewhere && f.Claim.over() }
