package certs

import (
	"slices"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
)

// action is one step; the zero value is wait.
type action uint8

const (
	// wait does nothing now.
	wait action = iota
	// issueFirst issues a certificate that is presented at once.
	issueFirst
	// trust writes exactly the authorities of the State into the webhook configurations.
	trust
	// issueNext issues the certificate that follows the current one.
	issueNext
	// promote makes the next certificate the current one, and keeps trusting the authority of the former.
	promote
	// removeExpired removes authorities that have expired.
	removeExpired
)

var actionNames = []string{
	wait: "Wait", issueFirst: "IssueFirst", trust: "Trust", issueNext: "IssueNext", promote: "Promote",
	removeExpired: "RemoveExpired",
}

// String returns the action's name for logs.
func (a action) String() string { return session.Name(a, actionNames) }

// facts is the known state at one moment; no step is taken for the zero value.
type facts struct {
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
func (s facts) propagated(now time.Time) bool {
	return s.Trusted && !s.Since.IsZero() && now.Sub(s.Since) >= s.PropagationDelay
}

// decide is a pure function that returns the next step. Of a certificate that others issue, it only has the authority
// trusted.
func decide(s facts, now time.Time) action {
	switch {
	case !s.Known || len(s.Names) == 0:
		return wait
	case !s.External:
		return decideOwn(s, now)
	case s.State.Current.usable(s.Names, now) && !s.Trusted:
		return trust
	}
	return wait
}

// decideOwn decides on the certificates that this package issues.
//
// A certificate is presented only after its authority has been trusted for PropagationDelay, and an authority is
// trusted until its certificate has expired, so that a replica that could not read the Secret for a long time is
// trusted too. So no API server meets a certificate that it does not trust. Only if no valid certificate exists, a new
// one is presented at once. One that is not valid yet is replaced like one that ends soon, because the clock of this
// replica may be the wrong one.
func decideOwn(s facts, now time.Time) action {
	current := s.State.Current.usable(s.Names, now)
	next := s.State.Next.usable(s.Names, now) && !s.State.Next.early(now)
	due := current && (s.State.Current.early(now) || !now.Before(s.State.Current.NotAfter.Add(-s.RenewBefore)))
	switch {
	case !current && next:
		return promote
	case !current:
		return issueFirst
	case s.State.Next != nil && !next:
		return issueNext
	case !s.Trusted:
		return trust
	case next && s.propagated(now):
		return promote
	case next:
		return wait
	case slices.ContainsFunc(s.State.Old, expired(now)):
		return removeExpired
	case due:
		return issueNext
	}
	return wait
}

func expired(now time.Time) func(issuer) bool {
	return func(a issuer) bool { return !now.Before(a.NotAfter) }
}

// after returns the State after a step, with the pair issued by issueFirst or issueNext.
func (s State) after(a action, issued *keyPair, now time.Time) State {
	switch a {
	case issueFirst:
		return State{Current: issued, Old: s.old()}
	case issueNext:
		s.Next = issued
	case promote:
		return State{Current: s.Next, Old: s.old()}
	case removeExpired:
		s.Old = slices.DeleteFunc(slices.Clone(s.Old), expired(now))
	case wait, trust:
	}
	return s
}

// mostOld bounds the old authorities. There are more only if replicas of other names write the same Secret, and each
// issues a pair at once.
const mostOld = 8

// old returns the old authorities after a change of the current pair.
func (s State) old() []issuer {
	if s.Current == nil {
		return s.Old
	}
	all := append(slices.Clone(s.Old), s.Current.CA)
	return all[max(0, len(all)-mostOld):]
}
