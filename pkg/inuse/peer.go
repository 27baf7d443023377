package inuse

import "time"

// peer holds the evidence of other programs that do the same work: Kubernetes' own controller, or any other. It relies
// on their writes, not on names and versions; the zero value is unknown.
type peer struct {
	// seen is the last time at which another program did work that we would have done.
	seen time.Time
	// absent means that a need stayed unanswered that every program with this work would answer.
	absent bool
}

// atWork returns the state after another program was seen at work.
func (peer) atWork(now time.Time) peer { return peer{seen: now} }

// missing returns the state after a need was found unanswered.
func (p peer) missing() peer { return peer{seen: p.seen, absent: true} }

// patientUntil returns the time from which a need that began at since counts as unanswered. It moves while others are
// seen at work on other objects, because they may have a long queue.
func (p peer) patientUntil(since time.Time, patience time.Duration) time.Time {
	if p.seen.After(since) {
		since = p.seen
	}
	return since.Add(patience)
}
