package provision

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
)

// Facts is all that is known about one volume name at one moment. The zero value of every field means that
// the fact is not known, or speaks for doing nothing.
type Facts struct {
	// MayAct: this process holds its lease, by its own clock.
	MayAct bool
	// Claim is the claim that the name belongs to: the entry's while one is open.
	Claim Claim
	// First: no entry of the name was ever closed. This process has closed none, and the claim was created after it
	// took over the log.
	First bool
	// Wanted: the claim is to get its volume now. Its class exists, and a node is selected where one is needed.
	Wanted bool
	// Composed: the request for the volume that is Wanted is composed.
	Composed bool
	// Prepared: the Secret that goes with it was read, and its source is protected.
	Prepared bool
	// SecondFailed: the open entry did not get a second request in this session.
	SecondFailed bool
	// VersionNoted: the open entry has the version of the driver that its next request would be sent to.
	VersionNoted bool
	// Log is what the in-flight log has under the name.
	Log Log
	// Record is what this process knows about the open entry. It counts only while Log is LogOpen.
	Record Record
	// PV is the PersistentVolume of the name.
	PV PV
	// Apart is the PersistentVolume that the volume gets where another node's has taken its name.
	Apart PV
	// Shared: the watch cache shows a PersistentVolume of another name for the volume that the driver created.
	Shared bool
}

// Log is what the in-flight log has under a name. The zero value: it has not been read.
type Log uint8

const (
	// LogUnknown: the log has not been read.
	LogUnknown Log = iota
	// LogAbsent: there is no entry, so that no process can have called CreateVolume without its end being known.
	LogAbsent
	// LogOpen: there is one.
	LogOpen
	// LogChanging: a write of the entry is not confirmed yet.
	LogChanging
	// LogUnreadable: there is one that cannot be read, or the log cannot be written.
	LogUnreadable
	// LogFull: there is none, and no room for one.
	LogFull
	// LogOthers: there is one for another claim, which has the same volume name.
	LogOthers
)

// Claim is what is known about a claim. The zero value is no claim.
type Claim struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	// Ours: this driver is to provision it.
	Ours bool
	// Node is what its selected node is to this process, and SelectedNode the node's name.
	Node         NodeSelection
	SelectedNode string
	// Terminating: it has a deletionTimestamp. Gone: it does not exist. Neither can be undone.
	Terminating, Gone bool
	// VolumeName is spec.volumeName, which cannot be changed once it is set.
	VolumeName string
	// PVName is the name of the claim's volume and of its PersistentVolume.
	PVName string
	// Read is when it was read live, zero for a watch cache.
	Read time.Time
}

// Fresh reports whether it was read live, and the read still counts.
func (c Claim) Fresh(now time.Time) bool { return fresh(c.Read, now) }

// needsVolume reports whether a volume that is created now can become the claim's.
func (c Claim) needsVolume() bool {
	return c.UID != "" && c.Ours && !c.Terminating && !c.Gone && c.VolumeName == ""
}

// over reports whether the claim can never use a volume that is created now.
func (c Claim) over() bool { return c.Terminating || c.Gone || c.VolumeName != "" }

// namedAlone reports whether no other claim can have the same volume name: all of the UID is in it.
func (c Claim) namedAlone() bool {
	bare := func(s string) string { return strings.ReplaceAll(s, "-", "") }
	return strings.HasSuffix(bare(c.PVName), bare(string(c.UID)))
}

// NodeSelection is what the selected node of a claim is to this process. The zero value: it does not matter,
// the process provisions for all nodes.
type NodeSelection uint8

const (
	// NodeAny: volumes are provisioned for all nodes.
	NodeAny NodeSelection = iota
	// NodeNone: no node is selected.
	NodeNone
	// NodeHere: this node is.
	NodeHere
	// NodeElsewhere: another node is.
	NodeElsewhere
)

// PV is what is known about the PersistentVolume of a name. The zero value: nothing.
type PV struct {
	// Known: the other fields hold. A watch cache that shows none leaves it false.
	Known bool
	// Exists: there is one. The fields below describe it.
	Exists bool
	// OfClaim: its claimRef has the claim's UID. OfDriver: it names a volume of this driver.
	OfClaim, OfDriver bool
	// Handle is its volume handle.
	Handle      string
	Terminating bool
	// Elsewhere: its node affinity excludes the node of this process.
	Elsewhere bool
	// Read is when it was read live, or when its creation was answered, zero for a watch cache.
	Read time.Time
}

// stored reports whether it is the claim's PersistentVolume and stays.
func (p PV) stored() bool {
	return p.Exists && p.OfClaim && p.OfDriver && !p.Terminating && !p.Elsewhere
}

// Names reports whether it is the PersistentVolume of this volume.
func (p PV) Names(handle string) bool {
	return p.Exists && p.OfDriver && handle != "" && p.Handle == handle
}

func fresh(read, now time.Time) bool { return !read.IsZero() && now.Sub(read) <= session.LiveFor }

// Fresh reports whether it was read live, and the read still counts.
func (p PV) Fresh(now time.Time) bool {
	return p.Known && fresh(p.Read, now)
}

// named reports whether a PersistentVolume names the volume that the driver created.
func (f Facts) named() bool { return f.PV.Names(f.Record.Handle) || f.Apart.Names(f.Record.Handle) }

// namedLive reports whether that was read live.
func (f Facts) namedLive(now time.Time) bool {
	h := f.Record.Handle
	return f.PV.Names(h) && f.PV.Fresh(now) || f.Apart.Names(h) && f.Apart.Fresh(now)
}

// apart reports whether the volume gets a PersistentVolume of another name than its own: another node has provisioned
// the claim meanwhile, and the claim can never bind to this volume. Its PersistentVolume is Released at once.
func (f Facts) apart() bool { return f.PV.Exists && f.PV.Elsewhere && f.Claim.over() }
