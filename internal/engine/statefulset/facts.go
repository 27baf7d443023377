package statefulset

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
)

// Facts is all that is known of one claim at one moment. The zero value of every field means that the fact is not
// known, or speaks for keeping the claim.
type Facts struct {
	Rules Rules

	// Claim is the claim, from the watch cache or, when ClaimRead is set, from a live read.
	Claim     Claim
	ClaimRead session.Read
	// Ordinal is the number that the claim's name ends with.
	Ordinal int

	// SetSeen is what is known of the set that the claim's mark or name is of, and SetName its name. Set is the set, if
	// it was found, from the watch cache or, when SetRead is set, from a live read.
	SetSeen Seen
	SetName string
	Set     Set
	SetRead session.Read
	// Shared: templates of more than one set give the claim's name.
	Shared bool
	// Last is the last state of a set that gave the claim its name, and that the watch has shown to be deleted; the zero
	// value: none is remembered.
	Last Set

	// PodSeen and Pod are the same for the pod that has the name of the set's pod of the ordinal.
	PodSeen Seen
	Pod     Pod
	PodRead session.Read
	// OtherPod is the name of a pod that the watch shows with this claim, and that is not Pod; empty for none.
	OtherPod string

	// Sight is since when this process has seen what of the claim.
	Sight Sight
}

// Rules are the settings of the controller.
type Rules struct {
	// Grace is how long a claim that is condemned and has no pod is kept, unless its set says otherwise. Default 1
	// minute.
	Grace time.Duration
	// Removing: marks, owner references of this project and WokenAnnotation are removed from all objects, because
	// volume-guard is uninstalled.
	Removing bool
	// DryRun ends a session before its first write.
	DryRun bool
}

const (
	// DefaultGrace is the default of Rules.Grace.
	DefaultGrace = time.Minute
	// Settling is how long a claim is left behind by a set that was deleted before that is reported: the StatefulSet
	// controller may still make the set its owner, and garbage collection then deletes it.
	Settling = 30 * time.Second
	// maxAdditions is how often a mark or an owner reference is added to one claim from which others remove it.
	maxAdditions = 3
)

// Seen is what is known of an object. The zero value: nothing.
type Seen uint8

const (
	// Unknown: nothing is known.
	Unknown Seen = iota
	// Found: it exists.
	Found
	// Absent: it does not exist.
	Absent
)

// Sight is since when one process has seen what of a claim, by its own clock. The zero value: nothing.
type Sight struct {
	// CondemnedSince is since when the claim has been condemned, without a pod, and without anything that keeps it.
	CondemnedSince time.Time
	// LeftSince is since when the claim has been left behind by a set that was deleted.
	LeftSince time.Time
	// Added is the mark and the owners that this process has given the claim last, and Additions how often in a row.
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

// settlingLeft returns how long it takes until a claim that is left behind is reported.
func (f Facts) settlingLeft(now time.Time) time.Duration {
	if f.Sight.LeftSince.IsZero() {
		return Settling
	}
	return Settling - now.Sub(f.Sight.LeftSince)
}

// graceLeft returns how long the claim is kept yet.
func (f Facts) graceLeft(now time.Time) time.Duration {
	if f.Sight.CondemnedSince.IsZero() {
		return f.grace()
	}
	return f.grace() - now.Sub(f.Sight.CondemnedSince)
}

// given reports whether a template of the set gives the claim its name. A mark alone shows nothing: who may annotate a
// claim may not be allowed to delete it.
func (f Facts) given() bool {
	return f.SetSeen == Found && f.Set.Gives(f.Claim.Name, f.Ordinal)
}

// marked reports whether the claim has a mark of its own that names this set and its ordinal. A claim that was restored
// from a backup has a copy, and no pod ever used it.
func (f Facts) marked() bool {
	m := f.Claim.Mark
	return f.given() && f.Claim.OwnMark() && m.UID != "" && m.UID == f.Set.UID && m.Set == f.Set.Name &&
		m.Ordinal == f.Ordinal
}

// hasPod reports whether the claim has a pod of the set.
func (f Facts) hasPod() bool {
	return f.PodSeen == Found && f.Pod.Controller != "" && f.Pod.Controller == f.Set.UID
}

// scaledAway reports whether the set is to have no pod of the ordinal.
func (f Facts) scaledAway() bool { return f.SetSeen == Found && !f.Set.InRange(f.Ordinal) }

// Condemned reports whether the policy of the set has the claim deleted because its replica was scaled away: it says
// so, and said so while the claim had a pod.
func (f Facts) Condemned() bool {
	return f.marked() && f.scaledAway() && !f.Set.Terminating && f.Claim.Mark.WhenScaled == Delete &&
		f.Set.Policy.WhenScaled == Delete
}

// abandoned reports whether the claim is condemned, known to have no pod, and kept by nothing but the grace period.
func (f Facts) abandoned() bool {
	return f.Claim.UID != "" && !f.Claim.Terminating && f.Condemned() && f.PodSeen == Absent && f.keeper() == ""
}

// leftBehind reports whether Kubernetes has created the claim for a set that takes its claims along, which was deleted
// before the claim had it as an owner. No pod uses the claim, and no other set gives it its name.
func (f Facts) leftBehind() bool {
	return f.Last.UID != "" && f.Last.Gives(f.Claim.Name, f.Ordinal) && f.Last.TakesClaims() && f.madeFor(f.Last) &&
		f.SetSeen != Unknown && !f.given() && f.PodSeen == Absent && f.OtherPod == ""
}

// madeFor reports whether kube-controller-manager created the claim in the life of this set, and nothing but the name
// says whose it is: without owner or mark, and kept by nothing.
func (f Facts) madeFor(s Set) bool {
	c := f.Claim
	return c.UID != "" && !c.ByController.IsZero() && !c.ByController.Before(s.Created) && len(c.Owners) == 0 &&
		!c.Marked && !c.Hold && !c.Terminating
}
