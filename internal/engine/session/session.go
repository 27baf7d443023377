// Package session has what the sessions of the engines share. A session is the work on one object, from its key to the
// next wait. It is a value that asks for one call to the API server after the other and takes the replies, so that a
// controller can carry it out, and a model checker can copy it between any two calls.
//
// The package is pure: it imports no client, context, logger or clock, and makes no calls.
package session

import "time"

// LiveFor is how long a live read counts. It bounds the time between what was seen and what is done about it; a read
// that is older is repeated.
const LiveFor = 5 * time.Second

// Read is a live read of the API server. The zero value: none was made.
type Read struct {
	// Sent is when the request was sent; what it shows is at least as new.
	Sent time.Time
	// Order numbers the reads of one session from 1. Times alone do not show which read came last where a clock is
	// coarse.
	Order int
}

// Fresh reports whether the read was made and still counts.
func (r Read) Fresh(now time.Time) bool { return r.Order > 0 && now.Sub(r.Sent) <= LiveFor }

// FreshAfter reports whether the read still counts and was sent after the answer to another.
func (r Read) FreshAfter(other Read, now time.Time) bool {
	return r.Fresh(now) && r.Order > other.Order
}

// Kind is what the next step of a session does. The zero value: nothing.
type Kind uint8

const (
	// Waits: nothing is to be done now.
	Waits Kind = iota
	// Reads: it changes nothing.
	Reads
	// Writes: it may change something. A dry run ends before it.
	Writes
)

// Outcome is how a call ended. The zero value: nothing is known of it.
type Outcome uint8

const (
	// Unanswered: the call was refused or not answered. It may have been carried out.
	Unanswered Outcome = iota
	// Succeeded: the call did what it was for.
	Succeeded
	// Conflict: nothing was done, for the object is not as it was read, or exists already.
	Conflict
	// Gone: nothing was done, for there is no object of the UID.
	Gone
)

// End is how a session ended. The zero value: it has not.
type End uint8

const (
	// NotEnded: the session waits for the answer to its call.
	NotEnded End = iota
	// Waiting: there is nothing to do now.
	Waiting
	// Skipped: the next step is what a dry run leaves out.
	Skipped
	// Written: the last write succeeded.
	Written
	// ObjectGone: what the session is about does not exist any more.
	ObjectGone
	// Conflicted: what was to be written had changed.
	Conflicted
	// CallFailed: the API server refused a call or did not answer it.
	CallFailed
	// TooSlow: each read was too old when the next was answered.
	TooSlow
)

// Progress is how far a session is. A session embeds it.
type Progress struct {
	// ReadCount counts the live reads, and Steps the steps.
	ReadCount, Steps int
	End              End
}

// Step begins the next step, or ends the session: where there is nothing to do, where a dry run ends, and after more
// than limit steps, which only reads that are too old before the next is answered take.
func (p *Progress) Step(next Kind, dryRun bool, limit int) {
	p.Steps++
	switch {
	case next == Waits:
		p.End = Waiting
	case p.Steps > limit:
		p.End = TooSlow
	case dryRun && next == Writes:
		p.End = Skipped
	}
}

// Ended returns how the session ended.
func (p *Progress) Ended() End { return p.End }

// Took takes how a call ended, and reports whether it succeeded. If not, the session has ended.
func (p *Progress) Took(o Outcome) bool {
	switch o {
	case Succeeded:
		return true
	case Conflict:
		p.End = Conflicted
	case Gone:
		p.End = ObjectGone
	default:
		p.End = CallFailed
	}
	return false
}

// Live numbers a live read that was sent at this time.
func (p *Progress) Live(sent time.Time) Read {
	p.ReadCount++
	return Read{Sent: sent, Order: p.ReadCount}
}

// Requeue is when another session about the object begins. The zero value: an event begins it.
type Requeue uint8

const (
	// RequeueNever: an event begins it.
	RequeueNever Requeue = iota
	// RequeueSoon: in a moment.
	RequeueSoon
	// RequeueRetry: after a delay that grows with each try.
	RequeueRetry
	// RequeueAfter: after the time that the last decision names.
	RequeueAfter
)

// Requeue returns when another session begins after this one has ended. after is how long the last decision waits, 0
// for as long as no event comes.
func (p Progress) Requeue(after time.Duration) Requeue {
	switch {
	case p.End == Conflicted:
		return RequeueSoon
	case p.End == CallFailed, p.End == TooSlow:
		return RequeueRetry
	case after > 0:
		return RequeueAfter
	}
	return RequeueNever
}
