package statefulset

import (
	"cmp"
	"time"
)

// SetFacts are the inputs of DecideSet for one set.
type SetFacts struct {
	Rules Rules
	Set   Set
	// Gap is the gap among the pods and claims of the set, from the watch cache.
	Gap Gap
	// Shared reports that a template of another set gives a claim of this set its name.
	Shared bool
	// Sight is the record of this process about the set.
	Sight SetSight
}

// SetSight is the record of one process about a set, by its own clock. The zero value stands for a set that was not
// seen.
type SetSight struct {
	// QuietSince is the time of the first look at the set, its last wake, or the last change of the set, its pods or
	// claims.
	QuietSince time.Time
	// Wakes counts the wakes since the set last changed without an open gap.
	Wakes int
}

// Gap is a missing pod, claim or volume of a set.
type Gap uint8

const (
	// GapNone is the zero value: the set has all its pods, or waits for an existing pod.
	GapNone Gap = iota
	// GapOldClaim means that a pod is missing or not scheduled until the claim of its predecessor is gone.
	GapOldClaim
	// GapNoVolume means that a pod is bound to a node and waits until its claim has a volume.
	GapNoVolume
	// GapOpen means that the set lacks a pod, or a claim of a pod that was not started, without a visible cause to wait
	// for.
	GapOpen
)

// Replica is one ordinal of a set, with its pod, if it exists, and the state of its claims.
type Replica struct {
	Pod Pod
	// Claims reports that the replica has a claim of each template, Leaving that a claim is terminating or owned by a pod
	// that is gone, and NoVolume that a claim is bound to no PV.
	Claims, Leaving, NoVolume bool
}

// gap returns the gap of the ordinal.
//
// The scheduler binds a pod once its claims have volumes, but it decides from a cache. A claim that is removed at that
// moment, such as the claim of a predecessor, is not protected by the pod yet. The kubelet then waits for a claim of
// that name, and the StatefulSet controller creates it only in its next sync of the set, which the end of a claim does
// not trigger.
func (r Replica) gap() Gap {
	waits := r.Pod.Bound && r.Pod.Pending && !r.Pod.Terminating && !r.Leaving // its kubelet waits for its claims
	switch {
	case waits && !r.Claims:
		return GapOpen
	case waits && r.NoVolume:
		return GapNoVolume
	case r.Pod.Bound, r.Pod.UID != "" && r.Claims && !r.Leaving:
		return GapNone
	case !r.Leaving:
		return GapOpen
	}
	return GapOldClaim
}

// ReplicaOf returns the state of an ordinal of a set. pod is the pod with the name of the ordinal's pod, and claim
// looks up a claim by its name. Both are the zero value for a missing object.
func ReplicaOf(s Set, ordinal int, pod Pod, claim func(name string) Claim) Replica {
	r := Replica{Pod: pod, Claims: true}
	f := Facts{Set: s, Ordinal: ordinal, Pod: pod, PodSeen: Found} // without UID, it is the owner of no claim
	for _, template := range s.Templates {
		f.Claim = claim(s.ClaimName(template, ordinal))
		r.Claims = r.Claims && f.Claim.UID != ""
		r.Leaving = r.Leaving || f.Claim.Terminating || f.doomed()
		r.NoVolume = r.NoVolume || f.Claim.UID != "" && !f.Claim.Bound
	}
	return r
}

// FindGap returns the gap of a set, and looks up the ordinals in range with replica. With OrderedReady the StatefulSet
// controller waits for each pod to be ready before it creates the next.
func FindGap(s Set, replica func(ordinal int) Replica) Gap {
	gap := GapNone
	for n := s.Start; n < s.Start+s.Replicas; n++ {
		r := replica(n)
		own := r.gap()
		last := !s.Parallel && (own != GapNone || !r.Pod.Ready || r.Pod.Terminating)
		if own == GapOpen || last {
			return own
		}
		gap = max(gap, own)
	}
	return gap
}

// SetAction is a step for a set, SetWait in its zero value.
type SetAction string

const (
	// SetWait leaves the set unchanged.
	SetWait SetAction = ""
	// Wake sets WokenAnnotation, so that the StatefulSet controller works on the set.
	Wake SetAction = "Wake"
	// EndWake removes WokenAnnotation.
	EndWake SetAction = "EndWake"
)

// String returns the name used in logs.
func (a SetAction) String() string { return cmp.Or(string(a), "Wait") }

// SetDecision is the next step for one set and its reason.
type SetDecision struct {
	Action SetAction
	Reason Reason
	// After bounds the duration of a wait, and is zero for a wait that only an event ends.
	After time.Duration
}

const (
	// Quiet is the time without changes before a set is woken. The StatefulSet controller needs less than a second for
	// each step.
	Quiet = 10 * time.Second
	// maxQuiet bounds the time without changes, which doubles after each wake that does not help.
	maxQuiet = 5 * time.Minute
)

// DecideSet returns the next step for one set, or the reason to report about it.
func DecideSet(f SetFacts, now time.Time) SetDecision {
	s := f.Set
	switch {
	case s.UID == "", s.Terminating:
		return SetDecision{Reason: ReasonSetTerminating}
	case f.Rules.Removing && s.Woken:
		return SetDecision{Action: EndWake, Reason: ReasonUninstalled}
	case f.Rules.Removing:
		return SetDecision{Reason: ReasonUninstalled}
	case f.lacks() && f.quietLeft(now) > 0:
		return SetDecision{Reason: ReasonPodMissing, After: f.quietLeft(now)}
	case f.lacks():
		return SetDecision{Action: Wake, Reason: ReasonWoken}
	case s.Woken && f.Gap == GapNone:
		return SetDecision{Action: EndWake, Reason: ReasonSetComplete}
	}
	return SetDecision{Reason: f.report()}
}

// lacks reports whether a replica is missing that the StatefulSet controller will not create by itself. That only
// happens where whenScaled is Delete.
func (f SetFacts) lacks() bool {
	return f.Gap == GapOpen && f.Set.Policy.WhenScaled == Delete && len(f.Set.Templates) > 0 && !f.Shared
}

// quietLeft returns the remaining time without changes before the set is woken.
func (f SetFacts) quietLeft(now time.Time) time.Duration {
	quiet := Quiet
	for range f.Sight.Wakes {
		quiet = min(2*quiet, maxQuiet)
	}
	quiet += f.Set.MinReady
	if f.Sight.QuietSince.IsZero() {
		return quiet
	}
	return quiet - now.Sub(f.Sight.QuietSince)
}

// report returns the reason to report about a set that needs no step.
func (f SetFacts) report() Reason {
	s := f.Set
	switch {
	case s.Invalid != "":
		return ReasonInvalidPolicy
	case s.Ignored:
		return ReasonAnnotationIgnored
	case f.Shared && !s.Policy.Keeps():
		return ReasonNamesCollide
	case len(s.Templates) == 0 && s.Source == SourceAnnotation && !s.Policy.Keeps():
		return ReasonNoTemplates
	case f.Gap == GapOldClaim && s.Policy.WhenScaled == Delete:
		return ReasonOldClaimRemains
	case f.Gap == GapNoVolume && s.Policy.WhenScaled == Delete:
		return ReasonPodBoundBeforeVolume
	}
	return ReasonSetComplete
}

// Detail returns details of this set that the sentence of the reason lacks, empty if no details apply.
func (f SetFacts) Detail(r Reason) string {
	switch r {
	case ReasonInvalidPolicy:
		return f.Set.Invalid
	case ReasonAnnotationIgnored:
		return "The field says " + f.Set.Policy.String() + "."
	default:
		return ""
	}
}

// SetChanged records a change of the set, one of its pods or one of its claims.
func (t *Tracker) SetChanged(f SetFacts, now time.Time) SetSight {
	s := t.Sets[f.Set.UID]
	s.QuietSince = now
	if f.Gap != GapOpen {
		s.Wakes = 0
	}
	return t.keepSet(f, s)
}

// SetSeen returns the record of a set, and starts the time without changes for a set that was not seen before.
func (t *Tracker) SetSeen(f SetFacts, now time.Time) SetSight {
	s, known := t.Sets[f.Set.UID]
	if !known {
		s.QuietSince = now
	}
	return t.keepSet(f, s)
}

// Woke records that a set was woken.
func (t *Tracker) Woke(f SetFacts, now time.Time) SetSight {
	s := t.Sets[f.Set.UID]
	s.Wakes, s.QuietSince = s.Wakes+1, now
	return t.keepSet(f, s)
}

// keepSet drops the record of a set without a gap.
func (t *Tracker) keepSet(f SetFacts, s SetSight) SetSight {
	if f.Gap == GapNone {
		delete(t.Sets, f.Set.UID)
	} else {
		t.Sets[f.Set.UID] = s
	}
	return s
}
