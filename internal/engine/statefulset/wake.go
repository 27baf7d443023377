package statefulset

import "time"

// SetFacts is all that is known of one set at one moment.
type SetFacts struct {
	Rules Rules
	Set   Set
	// Gap is what the watch shows of the pods and claims of the set.
	Gap Gap
	// Shared: a template of another set gives a claim of this set its name.
	Shared bool
	// Sight is since when this process has seen what of the set.
	Sight SetSight
}

// SetSight is since when one process has seen what of a set, by its own clock. The zero value: nothing.
type SetSight struct {
	// QuietSince is when the set, one of its pods or one of its claims changed last.
	QuietSince time.Time
	// Wakes counts how often the set was woken since it was complete.
	Wakes int
}

// Gap is what a set lacks. The zero value: nothing, as far as is known.
type Gap uint8

const (
	// GapNone: the set has all its pods, or waits for one that exists.
	GapNone Gap = iota
	// GapOldClaim: the set lacks a pod, which waits until the claim of its predecessor is gone.
	GapOldClaim
	// GapNoVolume: a pod is bound to a node, which waits until its claim has a volume.
	GapNoVolume
	// GapOpen: the set lacks a pod, or a claim of one that was not started, and nothing is seen that it waits for.
	GapOpen
)

// Replica is one ordinal of a set: its pod, if there is one, and what is known of its claims.
type Replica struct {
	Pod Pod
	// Claims: it has a claim of each template. Leaving: one of its claims is terminating, or owned by a pod that is
	// gone. NoVolume: one of its claims is bound to no PV.
	Claims, Leaving, NoVolume bool
}

// gap returns what the ordinal lacks.
//
// The scheduler binds a pod whose claims have volumes. But it decides from a cache: a claim that is removed at that
// moment is protected by no pod yet, and may be that of a predecessor. The kubelet waits for a claim of that name. The
// StatefulSet controller creates it when it works on the set, which the end of a claim does not make it do.
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

// ReplicaOf returns what is known of an ordinal of a set: pod is the pod with the name of its pod, and claim returns
// the claim of a name. Of what there is none, they are the zero value.
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

// FindGap returns what a set lacks; replica returns what the watch shows of an ordinal in range. With OrderedReady the
// StatefulSet controller waits for each pod to be ready before it creates the next.
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

// SetAction is a step for a set. The zero value is to do nothing.
type SetAction uint8

const (
	// SetWait: nothing is to be done now.
	SetWait SetAction = iota
	// Wake sets WokenAnnotation, so that the StatefulSet controller works on the set.
	Wake
	// EndWake removes WokenAnnotation.
	EndWake
)

// String returns the action as used in logs.
func (a SetAction) String() string {
	names := [...]string{SetWait: "Wait", Wake: "Wake", EndWake: "EndWake"}
	if int(a) < len(names) {
		return names[a]
	}
	return "Unknown"
}

// SetDecision is the next step for one set, and why.
type SetDecision struct {
	Action SetAction
	Reason Reason
	// After, if not zero, is how long this wait lasts at most.
	After time.Duration
}

const (
	// Quiet is for how long nothing has happened to a set that is woken. The StatefulSet controller needs less than a
	// second for each step.
	Quiet = 10 * time.Second
	// maxQuiet is for how long, if waking the set does not help.
	maxQuiet = 5 * time.Minute
)

// DecideSet returns what to do about one set, and what to report about it.
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

// lacks reports whether the set is woken unless something happens: where no claims are deleted, no pod waits for that.
func (f SetFacts) lacks() bool {
	return f.Gap == GapOpen && f.Set.Policy.WhenScaled == Delete && len(f.Set.Templates) > 0 && !f.Shared
}

// quietLeft returns how long it takes until the set has been quiet for long enough.
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

// report returns what a person is to know about the set.
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

// Detail returns what is known of this set beyond the reason's sentence, empty for nothing.
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

// SetChanged records that the set, one of its pods or one of its claims has changed.
func (t *Tracker) SetChanged(f SetFacts, now time.Time) SetSight {
	s := t.Sets[f.Set.UID]
	s.QuietSince = now
	if f.Gap != GapOpen {
		s.Wakes = 0
	}
	return t.keepSet(f, s)
}

// SetSeen returns what is known of a set, and begins the quiet of one that was not seen before.
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

// keepSet keeps nothing of sets that lack nothing.
func (t *Tracker) keepSet(f SetFacts, s SetSight) SetSight {
	if f.Gap == GapNone {
		delete(t.Sets, f.Set.UID)
	} else {
		t.Sets[f.Set.UID] = s
	}
	return s
}
