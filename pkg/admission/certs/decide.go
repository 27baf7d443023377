package certs

import (
	"slices"
	"time"
)

// Action is one step; the zero value is Wait.
type Action uint8

const (
	// Wait does nothing now.
	Wait Action = iota
	// IssueFirst issues a certificate that is presented at once.
	IssueFirst
	// Trust writes exactly the authorities of the State into the webhook configurations.
	Trust
	// IssueNext issues the certificate that follows the current one.
	IssueNext
	// Promote makes the next certificate the current one, and keeps trusting the authority of the former.
	Promote
	// RemoveExpired removes authorities that have expired.
	RemoveExpired
)

// String returns the action's name for logs.
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

// Facts is the known state at one moment; no step is taken for the zero value.
type Facts struct {
	// Known is true if the Secret was read, or does not exist.
	Known bool
	State State
	// External is true if others issue the certificate. Then the State has the current pair alone.
	External bool
	// Names are the DNS names that the certificate must have.
	Names []string
	// Trusted is true if every existing webhook configuration has the bundle of the State.
	Trusted bool
	// Since is the time since when this process has found the same State trusted, zero if it does not.
	Since time.Time
	// RenewBefore is the time before its expiry at which a certificate is replaced.
	RenewBefore time.Duration
	// PropagationDelay is the longest time in which all API servers observe a change.
	PropagationDelay time.Duration
}

// propagated reports whether all API servers trust the whole State.
func (s Facts) propagated(now time.Time) bool {
	return s.Trusted && !s.Since.IsZero() && now.Sub(s.Since) >= s.PropagationDelay
}

// Decide is a pure function that returns the next step. Of a certificate that others issue, it only has the authority
// trusted.
func Decide(s Facts, now time.Time) Action {
	switch {
	case !s.Known || len(s.Names) == 0:
		return Wait
	case !s.External:
		return decideOwn(s, now)
	case s.State.Current.usable(s.Names, now) && !s.Trusted:
		return Trust
	}
	return Wait
}

// decideOwn decides on the certificates that this package issues.
//
// A certificate is presented only after its authority has been trusted for PropagationDelay, and an authority is
// trusted until its certificate has expired, so that a replica that could not read the Secret for a long time is
// trusted too. So no API server meets a certificate that it does not trust. Only if no valid certificate exists, a new
// one is presented at once.
func decideOwn(s Facts, now time.Time) Action {
	current, next := s.State.Current.usable(s.Names, now), s.State.Next.usable(s.Names, now)
	due := current && !now.Before(s.State.Current.NotAfter.Add(-s.RenewBefore))
	switch {
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

// after returns the State after a step, with the pair issued by IssueFirst or IssueNext.
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

// old returns the old authorities after a change of the current pair.
func (s State) old() []Authority {
	if s.Current == nil {
		return s.Old
	}
	return append(slices.Clone(s.Old), s.Current.CA)
}
