package certs

import (
	"slices"
	"time"
)

// Action is one step. The zero value is to do nothing.
type Action uint8

const (
	// Rest: nothing is to be done now.
	Rest Action = iota
	// MakeFirst makes a certificate that is presented at once.
	MakeFirst
	// Trust has the API server trust all authorities of the State, and no others.
	Trust
	// MakeNext makes the certificate that comes after the current one.
	MakeNext
	// Promote has the next certificate presented. The authority of the one before stays trusted.
	Promote
	// Retire ends the trust in authorities that have ended.
	Retire
)

// String returns the action as used in logs.
func (a Action) String() string {
	switch a {
	case Rest:
		return "Rest"
	case MakeFirst:
		return "MakeFirst"
	case Trust:
		return "Trust"
	case MakeNext:
		return "MakeNext"
	case Promote:
		return "Promote"
	case Retire:
		return "Retire"
	}
	return "Unknown"
}

// Snapshot is all that is known at one moment. With its zero value nothing is done.
type Snapshot struct {
	// Known: the Secret was read, or there is none.
	Known bool
	State State
	// Names are those that the certificate is to be for.
	Names []string
	// Trusted: every webhook configuration that there is holds the bundle of the State.
	Trusted bool
	// Since is since when this process has found the same State, and it trusted. Zero: it does not.
	Since time.Time
	// RenewBefore is how long before its end a certificate is replaced.
	RenewBefore time.Duration
	// Settle is how long all API servers take at most to learn of a change.
	Settle time.Duration
}

// settled tells whether all API servers trust all of the State.
func (s Snapshot) settled(now time.Time) bool {
	return s.Trusted && !s.Since.IsZero() && now.Sub(s.Since) >= s.Settle
}

// Decide says what to do next. It is a pure function.
//
// A certificate is presented only after its authority has been trusted for as long as it takes to be
// known everywhere, and an authority is trusted until what it signed has ended: a replica that could not
// look for a long time is trusted too. So at no moment can an API server meet a certificate that it
// does not trust; only where there is none that is valid is one presented at once.
func Decide(s Snapshot, now time.Time) Action {
	current, next := s.State.Current.usable(s.Names, now), s.State.Next.usable(s.Names, now)
	due := current && !now.Before(s.State.Current.NotAfter.Add(-s.RenewBefore))
	switch {
	case !s.Known || len(s.Names) == 0:
		return Rest
	case !current && next:
		return Promote
	case !current:
		return MakeFirst
	case s.State.Next != nil && !next:
		return MakeNext
	case !s.Trusted:
		return Trust
	case next && s.settled(now):
		return Promote
	case next:
		return Rest
	case slices.ContainsFunc(s.State.Old, ended(now)):
		return Retire
	case due:
		return MakeNext
	}
	return Rest
}

func ended(now time.Time) func(Authority) bool {
	return func(a Authority) bool { return !now.Before(a.NotAfter) }
}

// after returns the State that a step leads to, with the pair that MakeFirst or MakeNext made.
func (s State) after(a Action, made *Pair, now time.Time) State {
	switch a {
	case MakeFirst:
		return State{Current: made, Old: s.old()}
	case MakeNext:
		s.Next = made
	case Promote:
		return State{Current: s.Next, Old: s.old()}
	case Retire:
		s.Old = slices.DeleteFunc(slices.Clone(s.Old), ended(now))
	case Rest, Trust:
	}
	return s
}

// old returns the authorities that are old once there is another current pair.
func (s State) old() []Authority {
	if s.Current == nil {
		return s.Old
	}
	return append(slices.Clone(s.Old), s.Current.CA)
}
