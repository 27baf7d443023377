// Package sessiontest has the checks that the unit tests of all engines make, and plays their sessions.
package sessiontest

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
)

// Session is a session whose calls are of type Ask, a struct with the field Action.
type Session[Ask any] interface {
	Ask() Ask
	Ended() session.End
	Next() (kind session.Kind, action, reason string)
}

// Answer is the reply to the call of an action, and the time that it takes.
type Answer[A fmt.Stringer, R any] struct {
	Action A
	Reply  R
	Takes  time.Duration
}

// Answers are the types of answers that an engine derives from Answer, so that its tests can omit the names of fields.
type Answers[A fmt.Stringer, R any] interface {
	~struct {
		Action A
		Reply  R
		Takes  time.Duration
	}
}

// Stale returns an answer so many times, each after the read is no longer valid.
func Stale[W Answers[A, R], A fmt.Stringer, R any](times int, answer W) []W {
	late := Answer[A, R](answer)
	late.Takes = session.LiveFor + time.Second
	return slices.Repeat([]W{W(late)}, times)
}

// Serve replies to the calls of a session until its end, beginning at a time, and returns the calls and the time of the
// end. Each call is the one of the next step, an ended session has none, and only a write is left out by a dry run.
func Serve[Ask, R any](t *testing.T, s Session[Ask], at time.Time, reply func(call int, ask Ask) (R, time.Duration),
	answer func(r R, sent, now time.Time)) (asked []Ask, end time.Time) {
	t.Helper()
	for s.Ended() == session.NotEnded {
		ask := s.Ask()
		_, action, _ := s.Next()
		if got := actionOf(ask); got != action {
			t.Errorf("call %d is of %s, and the next step is %s", len(asked), got, action)
		}
		r, takes := reply(len(asked), ask)
		asked = append(asked, ask)
		sent := at
		at = at.Add(takes)
		answer(r, sent, at)
	}
	if ask := s.Ask(); !reflect.ValueOf(ask).IsZero() {
		t.Errorf("asks %+v after its end", ask)
	}
	kind, action, _ := s.Next()
	if as := s.Ended(); as == session.Skipped && kind != session.Writes || as == session.Waiting && kind != session.Waits {
		t.Errorf("ends as %d with the step %s", as, action)
	}
	return asked, at
}

func actionOf(ask any) string {
	return fmt.Sprint(reflect.ValueOf(ask).FieldByName("Action").Interface())
}

// Play is Serve with one answer for each call, whose action it checks. A session takes one step for each call, and one
// for an end without a call.
func Play[Ask any, W Answers[A, R], A fmt.Stringer, R any](t *testing.T, s Session[Ask], p *session.Progress,
	at time.Time, answer func(r R, sent, now time.Time), answers []W) (asked []Ask, end time.Time) {
	t.Helper()
	asked, end = Serve(t, s, at, func(call int, ask Ask) (R, time.Duration) {
		t.Helper()
		if call == len(answers) {
			t.Fatalf("call %d, which has no answer, asks %+v", call, ask)
		}
		next := Answer[A, R](answers[call])
		if want := next.Action.String(); actionOf(ask) != want {
			t.Fatalf("call %d asks %+v, want %s", call, ask, want)
		}
		return next.Reply, next.Takes
	}, answer)
	if len(asked) != len(answers) {
		t.Fatalf("%d calls, want %d", len(asked), len(answers))
	}
	steps := len(asked)
	if slices.Contains([]session.End{session.Waiting, session.Skipped, session.TooSlow}, p.End) {
		steps++
	}
	if p.Steps != steps {
		t.Errorf("%d steps, want %d", p.Steps, steps)
	}
	return asked, end
}

// End is how a session ends, with its report and the beginning of the next session.
type End struct {
	End     session.End
	Reason  string
	Requeue session.Requeue
}

// The ends that every session can have.
var (
	Gone        = End{session.ObjectGone, "", session.RequeueNever}
	Conflicted  = End{session.Conflicted, "", session.RequeueSoon}
	ReadFailed  = Failed(reasons.APIReadFailed)
	WriteFailed = Failed(reasons.APIWriteFailed)
	TooSlow     = End{session.TooSlow, reasons.APIReadFailed, session.RequeueRetry}
	DryRun      = End{session.Skipped, reasons.DryRun, session.RequeueNever}
)

// Failed is the end of a session whose call failed.
func Failed[R ~string](reason R) End {
	return End{session.CallFailed, string(reason), session.RequeueRetry}
}

// Written is the end after a write, which an event of the watch follows.
func Written[R ~string](reason R) End {
	return End{session.Written, string(reason), session.RequeueNever}
}

// Waits is a wait that only an event ends.
func Waits[R ~string](reason R) End {
	return End{session.Waiting, string(reason), session.RequeueNever}
}

// Timed is a wait that ends after a time.
func Timed[R ~string](reason R) End {
	return End{session.Waiting, string(reason), session.RequeueAfter}
}

// Polls is a wait after which the session is tried again.
func Polls[R ~string](reason R) End {
	return End{session.Waiting, string(reason), session.RequeueRetry}
}

// Ends checks the end of a session.
func Ends[R ~string](t *testing.T, s interface {
	Ended() session.End
	Reason() R
	Requeue() session.Requeue
}, want End) {
	t.Helper()
	if got := (End{s.Ended(), string(s.Reason()), s.Requeue()}); got != want {
		t.Errorf("ends as %+v, want %+v", got, want)
	}
}
