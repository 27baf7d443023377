package certs

import (
	"slices"
	"time"
)

// Action is one step. The zero value is to do nothing.
type Action uint8

const (
	// Rest: nothing is to be done now.
	Wait Action = iota
	// IssueFirst issues a certificate that is presented at once.
	IssueFirst
	// Trust writes all authorities of the State, and no others, into the webhook configurations.
	Trust
	// IssueNext issues the certificate that follows the current one.
	IssueNext
	// Promote makes the next certificate the current one. The authority of the former stays trusted.
	Promote
	// RemoveExpired removes authorities that have expired.
	RemoveExpired
)

// String returns the action as used in logs.
func (a Action) String() string {
	switch a {
	case Wait:
		return "Wait"
	case IssueFirst:
		return "IssueFirst"
	case Trust:
		return "Trust"
	case IssueNext:
		return "IssueNext"
	case Promote:
		return "Promote"
	case RemoveExpired:
		return "RemoveExpired"
	}
	return "Unknown"
}

// Facts are all that is known at one moment. With the zero value nothing is done.
type Facts struct {
	// Known: the Secret was read, or there is none.
	Known bool
	State State
	// Names are those that the certificate is to be for.
	Names []string
	// Trusted: every existing webhook configuration has the bundle of the State.
	Trusted bool
	// Since is since when this process has found the same State, and it trusted. Zero: it does not.
	Since time.Time
	// RenewBefore is how long before its end a certificate is replaced.
	RenewBefore time.Duration
	// PropagationDelay is how long all API servers take at most to observe a change.
	PropagationDelay time.Duration
}

// propagated reports whether all API servers trust all of the State.
func (s Facts) propagated(now time.Time) bool {
	return s.Trusted && !s.Since.IsZero() && now.Sub(s.Since) >= s.PropagationDelay
}

// Decide returns the next step. It is a pure function.
//
// A certificate is presented only after its authority has been trusted for as long as it takes to be
// known everywhere, and an authority is trusted until what it signed has expired: a replica that could not
// read the Secret for a long time is trusted, too. So no API server meets a certificate that it does not
// trust; only where none is valid is a new one presented at once.
func Decide(s Facts, now time.Time) Action {
	current, next := s.State.Current.usable(s.Names, now), s.State.Next.usable(s.Names, now)
	due := current && !now.Before(s.State.Current.NotAfter.Add(-s.RenewBefore))
	switch {
	case !s.Known || len(s.Names) == 0:
		return Wait
	case !current && next:
		return Promote
	case !current:
		return IssueFirst
	case s.State.Next != nil && !next:
		return IssueNext
	case !s.Trusted:
		return Trust
	case next && s.propagated(now):
		return Promote
	case next:
		return Wait
	case slices.ContainsFunc(s.State.Old, expired(now)):
		return RemoveExpired
	case due:
		return IssueNext
	}
	return Wait
}

func expired(now time.Time) func(Authority) bool {
	return func(a Authority) bool { return !now.Before(a.NotAfter) }
}

// after returns the State that a step leads to, with the pair that IssueFirst or IssueNext issued.
func (s State) after(a Action, issued *Pair, now time.Time) State {
	switch a {
	case IssueFirst:
		return State{Current: issued, Old: s.old()}
	case IssueNext:
		s.Next = issued
	case Promote:
		return State{Current: s.Next, Old: s.old()}
	case RemoveExpired:
		s.Old = slices.DeleteFunc(slices.Clone(s.Old), expired(now))
	case Wait, Trust:
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
