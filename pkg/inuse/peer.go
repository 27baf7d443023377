package inuse

import "time"

// peer is what was seen of others who do the same work: Kubernetes' own controller, or anybody.
// It goes by what is done, not by names and versions. The zero value: nothing is known.
type peer struct {
	// seen is when somebody else last did what we would have done.
	seen time.Time
	// absent: a need that all who do the work would answer was left unanswered.
	absent bool
}

// atWork returns what is known once somebody else was seen at work.
func (peer) atWork(now time.Time) peer { return peer{seen: now} }

// missing returns what is known once a need was found unanswered.
func (p peer) missing() peer { return peer{seen: p.seen, absent: true} }

// patientUntil returns when a need that has stood since a time counts as unanswered. While others are
// seen at work on other objects it does not: they may have much to do.
func (p peer) patientUntil(since time.Time, patience time.Duration) time.Time {
	if p.seen.After(since) {
		since = p.seen
	}
	return since.Add(patience)
}
