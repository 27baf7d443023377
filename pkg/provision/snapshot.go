package provision

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Finalizer holds a claim from before the first CreateVolume until its PV is stored, or nothing
// is left of what was begun. Where each node makes its own volumes it is [FinalizerOf] the node.
const Finalizer = "csi-reclaimer.io/provisioning"

// Snapshot is all that is known about the provisioning of one claim at one moment. The zero value
// of every field means that the fact is not known, or speaks for keeping volume and claim.
type Snapshot struct {
	// Protects: claims get our finalizer before their first CreateVolume.
	Protects bool
	Claim    Claim

	// Wanted: the library asks for the claim's volume now. It has seen to all that must be so
	// before: the class is there, a node is selected where one is needed.
	Wanted bool
	// ClassGone: the claim's StorageClass is not there.
	ClassGone bool

	// PV is what is known of the claim's own PV, and PVHandle the volume it names. PVRead is when
	// that was read live; without, it is from the watch cache or from the answer to its creation,
	// which show that a PV is there, never that none is.
	PV       PV
	PVHandle string
	PVRead   time.Time
	// Shared: the watch cache shows a PV of another name for the volume.
	Shared bool
	// NameInHand: another claim's volume is being made, or cleaned up, under the same name.
	NameInHand bool

	// Volume is what is known of the volume in the storage system, and Handle its id.
	Volume Volume
	Handle string
	// Tried: this process has called CreateVolume for the claim.
	Tried bool
	// Unfit: the volume that was made is not the one that was asked for, and gets no PV.
	Unfit bool
	// Failed: the last try ended without a volume.
	Failed bool
	// Ordered: it is settled what to ask the driver for.
	Ordered bool
}

// Claim is what is known of a claim. The zero value is no claim.
type Claim struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	// Ours: the claim is to be provisioned by this driver, or has its PV of it.
	Ours bool
	// Protected: our finalizer is on it, of several nodes that of this one.
	Protected bool
	// At is what its selected node is to this process.
	At At
	// Terminating: it is being deleted, which cannot be undone. Gone: it is not there any more.
	Terminating, Gone bool
	// VolumeName is the PV it is bound to, or to be bound to (spec.volumeName), which cannot be changed once set.
	VolumeName string
	// PVName is the name of the PV that is made for it, and of the volume.
	PVName string
}

// bound tells whether the claim names its own PV, as the PV controller has it do once that PV is
// stored. It goes on to do so when the PV is gone: the volume may then be one that was to be kept.
func (c Claim) bound() bool { return c.VolumeName != "" && c.VolumeName == c.PVName }

// boundElsewhere tells whether the claim has another PV than the one that is made for it.
func (c Claim) boundElsewhere() bool { return c.VolumeName != "" && c.VolumeName != c.PVName }

// namedAlone tells whether no other claim can have the same name for its volume: all of the UID is
// in it. Of few characters, two claims may have the same, and the driver makes them one volume.
func (c Claim) namedAlone() bool {
	bare := func(s string) string { return strings.ReplaceAll(s, "-", "") }
	return strings.HasSuffix(bare(c.PVName), bare(string(c.UID)))
}

// PV is what is known of the claim's own PV.
type PV uint8

const (
	// PVUnknown: nothing.
	PVUnknown PV = iota
	// PVStored: it is there, and is the claim's.
	PVStored
	// PVTerminating: it is there, is the claim's, and is being deleted.
	PVTerminating
	// PVOther: a PV of that name is there and is not the claim's, or names another driver's volume.
	PVOther
	// PVAbsent: a live read found none.
	PVAbsent
	// PVElsewhere: it is there, is the claim's, and its volume is on another node.
	PVElsewhere
)

// Volume is what is known of the volume in the storage system.
type Volume uint8

const (
	// VolumeUnknown: it may be there, or still be being made.
	VolumeUnknown Volume = iota
	// VolumeMade: the driver said that it is there, and its id.
	VolumeMade
	// VolumeNone: it is not there, and nobody is making it.
	VolumeNone
)

// liveFor is how long a live read counts. It bounds the time between what was seen and the
// driver's call; a read that is older is repeated.
const liveFor = 5 * time.Second

// pvFresh tells whether the PV was read live and the read still counts.
func (s Snapshot) pvFresh(now time.Time) bool {
	return !s.PVRead.IsZero() && now.Sub(s.PVRead) <= liveFor
}

// hasPV tells whether the claim's own PV is stored, or was. What becomes of its volume is the PV's
// matter from then on. A claim alone shows no PV where this process has called the driver, and does not
// know of what became of that: the call may have come after the PV's end.
func (s Snapshot) hasPV() bool {
	return s.PV == PVStored || s.PV == PVTerminating || s.Claim.bound() && s.boundHere() && (!s.Tried || s.Volume == VolumeNone)
}

// held tells whether our finalizer is on the claim. One that is gone has none, whatever was last seen of
// it: whoever let it go has seen to what was begun, and a volume that is made for it now is
// remembered by nobody.
func (s Snapshot) held() bool { return s.Claim.Protected && !s.Claim.Gone }

// anothersPV tells whether the PV of the claim's own PV's name has a volume that was not made for it here.
func (s Snapshot) anothersPV() bool { return s.PV == PVOther || s.PV == PVElsewhere }

// boundHere tells whether the PV that the claim is bound to, if it is the one of its own name, is, or was,
// the one that is made for it here. A node's caches show nothing of other nodes' PVs, so there a look at the
// PV itself has to tell; where another node was selected, one that is gone can tell nothing.
func (s Snapshot) boundHere() bool {
	return s.PV != PVElsewhere && (s.Claim.At == AtCluster || s.Claim.At == AtHere && s.PV != PVUnknown)
}

// needless tells whether the claim needs no volume made for it here any more. Nothing can undo that, but
// for the selection of another node: should this one be selected once more, its volume is made anew.
func (s Snapshot) needless() bool {
	c := s.Claim
	elsewhere := s.PV == PVElsewhere || c.At == AtElsewhere || c.bound() && !s.boundHere()
	return c.Terminating || c.Gone || c.boundElsewhere() || !c.Ours && s.Tried || elsewhere
}
