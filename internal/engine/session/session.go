// Package session has the common parts of the engines' sessions. A session is the work on one object, from its key to
// the next wait. It is a value that asks for one call to the API server after the other and takes the replies, so that
// a controller can carry it out, and a model checker can copy it between any two calls.
//
// An engine embeds State, and adds the calls of its steps (Ask) and the facts that their replies show (Answer).
//
// The package is pure: it imports no client, context, logger or clock, and makes no calls.
package session

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
)

// LiveFor is the validity of a live read, and so bounds the time between an observation and the action that depends on
// it. An older read is repeated.
const LiveFor = 5 * time.Second

// Read is a live read of the API server, or none in its zero value.
type Read struct {
	// Sent is the time when the request was sent; its result is at least as new.
	Sent time.Time
	// Order numbers the reads of one session from 1, because times alone do not order reads on a coarse clock.
	Order int
}

// Fresh reports whether the read was made and is still valid.
func (r Read) Fresh(now time.Time) bool { return r.Order > 0 && now.Sub(r.Sent) <= LiveFor }

// FreshAfter reports whether the read is still valid and was sent after the answer to other.
func (r Read) FreshAfter(other Read, now time.Time) bool {
	return r.Fresh(now) && r.Order > other.Order
}

// Newer reports whether the first of two resourceVersions of one object is the later one. Versions that cannot be
// compared count as newer, so that no fact is taken from an old read.
func Newer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err != nil || order > 0
}

// Patience is how long a wait is the normal course of things. Only a longer one has an Event.
const Patience = time.Minute

// Quiet returns the rest of the Patience with a wait since this time, in seconds since 1970. It is 0 for a time that is
// not known, so that the wait is reported, and at most Patience, whatever the API server's clock says.
func Quiet(since int64, now time.Time) time.Duration {
	return min(max(time.Unix(since, 0).Add(Patience).Sub(now), 0), Patience)
}

// Kind classifies the next step of a session by its effect.
type Kind uint8

const (
	// Waits means that the session does nothing now.
	Waits Kind = iota
	// Reads means that the step changes nothing.
	Reads
	// Writes means that the step may change something, so a dry run ends before it.
	Writes
)

// KindOf returns the kind of an action, which shows in its name: the actions that read are named Read or List. Any
// other name, such as that of an unknown action, counts as a write.
func KindOf(action fmt.Stringer) Kind {
	switch name := action.String(); {
	case name == "Wait":
		return Waits
	case strings.HasPrefix(name, "Read"), strings.HasPrefix(name, "List"):
		return Reads
	}
	return Writes
}

// Name returns the name of an action, of the names that its package has for them, and "Unknown" for an unknown action.
func Name[A ~uint8](action A, names []string) string {
	if int(action) < len(names) && names[action] != "" {
		return names[action]
	}
	return "Unknown"
}

// Outcome is how a call ended; the zero value knows nothing of its effect.
type Outcome uint8

const (
	// Unanswered means that the call was refused or not answered, and may have been carried out.
	Unanswered Outcome = iota
	Succeeded
	// Conflict means that the call changed nothing, because the object has changed since it was read, or exists already.
	Conflict
	// Gone means that the call changed nothing, because no object with the UID exists.
	Gone
)

// End is how a session ended, if it has.
type End uint8

const (
	// NotEnded means that the session waits for the answer to its call.
	NotEnded End = iota
	// Waiting means that no work is left for now.
	Waiting
	// Skipped means that a dry run leaves out the next step.
	Skipped
	Written
	// ObjectGone means that the session's object no longer exists.
	ObjectGone
	// Conflicted means that the object to write had changed.
	Conflicted
	// CallFailed means that the API server refused a call or did not answer it.
	CallFailed
	// TooSlow means that each read was too old by the time the next was answered.
	TooSlow
)

// Progress is the progress of a session.
type Progress struct {
	ReadCount, Steps int
	End              End
}

// Step begins the next step, or ends the session if it waits, before a write in a dry run, and after more than limit
// steps. Only reads that grow too old before the next is answered take that many.
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

// Took applies the outcome of a call, and reports whether it succeeded; if not, the session has ended.
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

// Requeue determines when another session about the object begins.
type Requeue uint8

const (
	// RequeueNever means that only an event begins it.
	RequeueNever Requeue = iota
	// RequeueSoon begins it a moment later.
	RequeueSoon
	// RequeueRetry begins it after a delay that grows with each try.
	RequeueRetry
	// RequeueAfter begins it after the time in the last decision.
	RequeueAfter
)

// Requeue returns when another session begins after the end of this one. after is the wait of the last decision, 0 for
// a wait that only an event ends.
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

// Reason is the reason of a step, such as a [reasons.Word].
type Reason interface {
	~string
	Would(action fmt.Stringer) string
}

// Step is the next step of a session and its reason.
type Step[R ~string] struct {
	Action interface {
		Kind() Kind
		fmt.Stringer // the name used in logs
	}
	Reason R
	// After bounds the duration of a wait, and is zero for a wait that only an event ends.
	After time.Duration
}

// State is the state of a session: plain data that can be copied and compared as far as its facts can. F are the facts
// about the object, D the decisions of the engine, and R their reasons.
type State[F any, D interface{ Step() Step[R] }, R Reason] struct {
	Progress
	Facts F
	// Decision is the step in progress, or after End the last one.
	Decision D
}

// Decided begins the step of a decision, as far as Progress.Step permits.
func (s *State[F, D, R]) Decided(d D, dryRun bool, limit int) {
	s.Decision = d
	s.Step(d.Step().Action.Kind(), dryRun, limit)
}

// Next returns the step that the session waits for.
func (s *State[F, D, R]) Next() (kind Kind, action, reason string) {
	step := s.Decision.Step()
	return step.Action.Kind(), step.Action.String(), string(step.Reason)
}

// Requeue returns when to begin another session after this one has ended.
func (s *State[F, D, R]) Requeue() Requeue { return s.Progress.Requeue(s.Decision.Step().After) }

// Reason returns the reason to report after the session has ended, or "".
func (s *State[F, D, R]) Reason() R {
	step := s.Decision.Step()
	switch {
	case s.End == Skipped:
		return reasons.DryRun
	case s.End == TooSlow, s.End == CallFailed && step.Action.Kind() == Reads:
		return reasons.APIReadFailed
	case s.End == CallFailed:
		return reasons.APIWriteFailed
	case s.End == Waiting, s.End == Written:
		return step.Reason
	}
	return ""
}

// Would returns the report of a dry run that skips the step.
func (s *State[F, D, R]) Would() string {
	step := s.Decision.Step()
	return step.Reason.Would(step.Action)
}
