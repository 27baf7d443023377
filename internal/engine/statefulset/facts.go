package statefulset

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
)

// Facts are the inputs of Decide for one claim. The zero value of every field means unknown, or favors keeping the
// claim.
type Facts struct {
	Rules Rules

	// Claim comes from the watch cache or, if ClaimRead is set, from a live read.
	Claim     Claim
	ClaimRead session.Read
	// Ordinal is the ordinal at the end of the claim's name.
	Ordinal int

	// SetSeen is the state of the set that the claim's mark or name refers to, and SetName the name of that set. Set is
	// the set, if found, from the watch cache or, if SetRead is set, from a live read.
	SetSeen Seen
	SetName string
	Set     Set
	SetRead session.Read
	// Shared reports that templates of more than one set give the claim's name.
	Shared bool
	// Last is the last state of a deleted set that gave the claim its name, from the event of its deletion. The zero value
	// means that no such set is remembered.
	Last Set

	// PodSeen and Pod are the same for the pod with the name of the set's pod of this ordinal.
	PodSeen Seen
	Pod     Pod
	PodRead session.Read
	// OtherPod is the name of a pod other than Pod that has this claim in the watch cache, empty for none.
	OtherPod string

	// Sight has the times at which this process saw states of the claim begin.
	Sight Sight
}

// Rules are the settings of the controller.
type Rules struct {
	// Grace is the delay between the deletion of a replica's pod and of its claim, unless the set has GraceAnnotation.
	// Default 1 minute.
	Grace time.Duration
	// Removing removes marks, owner references of volume-guard and WokenAnnotation from all objects, because volume-guard
	// is uninstalled.
	Removing bool
	// DryRun ends a session before its first write.
	DryRun bool
}

const (
	// DefaultGrace is the default of Rules.Grace.
	DefaultGrace = time.Minute
	// Settling is the delay before a claim left behind by a deleted set is reported. The StatefulSet controller may still
	// make the set its owner, and garbage collection then deletes the claim.
	Settling = 30 * time.Second
	// maxAdditions bounds how often in a row a claim gets the same mark and owner references while another program keeps
	// removing them.
	maxAdditions = 3
)

// Seen is the known state of an object.
type Seen uint8

const (
	// Unknown is the zero value: the object was not looked up.
	Unknown Seen = iota
	// Found means that the object exists.
	Found
	// Absent means that the object does not exist.
	Absent
)

// SeenOf returns the state of an object that was looked up.
func SeenOf(found bool) Seen {
	if found {
		return Found
	}
	return Absent
}

// Sight has the times at which one process saw states of a claim begin, by its own clock. The zero value stands for a
// claim in none of these states.
type Sight struct {
	// CondemnedSince is the start of the grace period: since then, the claim has been condemned, without a pod, and kept
	// by no other reason.
	CondemnedSince time.Time
	// Generation is the latest generation of the set in this time.
	Generation int64
	// LeftSince is the time since which the claim has been left behind by a deleted set.
	LeftSince time.Time
	// Added are the mark and the owners that this process wrote last, and Additions the number of such writes in a row.
	Added     string
	Additions int
}

func (f Facts) grace() time.Duration {
	switch {
	case f.Set.GraceGiven:
		return f.Set.Grace
	case f.Rules.Grace == 0:
		return DefaultGrace
	}
	return f.Rules.Grace
}

// settlingLeft returns the remaining time until a claim that is left behind is reported.
func (f Facts) settlingLeft(now time.Time) time.Duration {
	if f.Sight.LeftSince.IsZero() {
		return Settling
	}
	return Settling - now.Sub(f.Sight.LeftSince)
}

// graceLeft returns the remaining grace period of the claim.
func (f Facts) graceLeft(now time.Time) time.Duration {
	if f.Sight.CondemnedSince.IsZero() {
		return f.grace()
	}
	return f.grace() - now.Sub(f.Sight.CondemnedSince)
}

// given reports whether a template of the set gives the claim its name. A mark alone does not prove it: a user with
// permission to annotate claims may not be allowed to delete them.
func (f Facts) given() bool {
	return f.SetSeen == Found && f.Set.Gives(f.Claim.Name, f.Ordinal)
}

// marked reports whether the claim has a mark of its own that names this set and its ordinal. A claim restored from a
// backup has a copied mark, and no pod ever used it.
func (f Facts) marked() bool {
	m := f.Claim.Mark
	return f.given() && f.Claim.OwnMark() && m.UID != "" && m.UID == f.Set.UID && m.Set == f.Set.Name &&
		m.Ordinal == f.Ordinal
}

// hasPod reports whether the claim has a pod of the set.
func (f Facts) hasPod() bool {
	return f.PodSeen == Found && f.Pod.Controller != "" && f.Pod.Controller == f.Set.UID
}

// scaledAway reports whether the ordinal is outside the range of the set.
func (f Facts) scaledAway() bool { return f.SetSeen == Found && !f.Set.InRange(f.Ordinal) }

// Condemned reports whether the policy of the set deletes the claim because its replica was scaled away. whenScaled has
// to be Delete now, and must have been Delete while the claim had a pod.
func (f Facts) Condemned() bool {
	return f.marked() && f.scaledAway() && !f.Set.Terminating && f.Claim.Mark.WhenScaled == Delete &&
		f.Set.Policy.WhenScaled == Delete
}

// abandoned reports whether the claim is condemned, known to have no pod, and kept by nothing but the grace period.
func (f Facts) abandoned() bool {
	return f.Claim.UID != "" && !f.Claim.Terminating && f.Condemned() && f.PodSeen == Absent && f.keeper() == ""
}

// leftBehind reports whether kube-controller-manager created the claim for a set with whenDeleted: Delete that was
// deleted before it owned the claim. No pod uses the claim, and no other set gives it its name.
func (f Facts) leftBehind() bool {
	return f.Last.UID != "" && f.Last.Gives(f.Claim.Name, f.Ordinal) && f.Last.TakesClaims() && f.madeFor(f.Last) &&
		f.SetSeen != Unknown && !f.given() && f.PodSeen == Absent && f.OtherPod == ""
}

// madeFor reports whether kube-controller-manager created the claim in the lifetime of this set, and only the name
// links the two: the claim has no owner, mark or hold.
func (f Facts) madeFor(s Set) bool {
	c := f.Claim
	return c.UID != "" && !c.ByController.IsZero() && !c.ByController.Before(s.Created) && len(c.Owners) == 0 &&
		!c.Marked && !c.Hold && !c.Terminating
}
