package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// Asker is a session of an engine, which is a value: a model checker copies it between any two calls. See
// [session.Progress].
type Asker[Ask any] interface {
	// Ask returns the call that the session waits for, and Next the step that the call belongs to.
	Ask() Ask
	Next() (kind session.Kind, action, reason string)
	// Ended returns how the session ended.
	Ended() session.End
}

// Calls is how the calls of a session are made. All fields are required.
type Calls[S Asker[Ask], Ask, Reply any] struct {
	// Clock is the time of calls and of decisions.
	Clock clock.PassiveClock
	// Call makes a call. The error is why the outcome that the reply says is not Succeeded: see OutcomeOf.
	Call func(ctx context.Context, ask Ask) (Reply, error)
	// Answer has the session take the reply to a call that was sent at that time.
	Answer func(s S, reply Reply, sent, now time.Time)
	// Wrote logs and counts a write that succeeded, for this reason. The session has taken the reply.
	Wrote func(ctx context.Context, s S, ask Ask, reason string)
}

// ErrSlow is the error of a session that ended with TooSlow.
var ErrSlow = fmt.Errorf("reads take longer than %v, so that each is too old when the next is answered",
	session.LiveFor)

// CarryOut makes the calls that a session asks for until it has ended. The error is why it ended with CallFailed, or
// ErrSlow.
func (c Calls[S, Ask, Reply]) CarryOut(ctx context.Context, s S) error {
	for s.Ended() == session.NotEnded {
		ask := s.Ask()
		kind, action, reason := s.Next()
		klog.FromContext(ctx).V(5).Info("Decided", "action", action, "reason", reason)
		sent := c.Clock.Now()
		reply, err := c.Call(ctx, ask)
		c.Answer(s, reply, sent, c.Clock.Now())
		switch {
		case s.Ended() == session.CallFailed:
			return err
		case err == nil && kind == session.Writes:
			c.Wrote(ctx, s, ask, reason)
		}
	}
	if s.Ended() == session.TooSlow {
		return ErrSlow
	}
	return nil
}

// OutcomeOf returns what the error of a call means for a session.
func OutcomeOf(err error) session.Outcome {
	switch {
	case err == nil:
		return session.Succeeded
	case errors.Is(err, kube.ErrGone):
		return session.Gone
	case errors.Is(err, kube.ErrChanged):
		return session.Conflict
	}
	return session.Unanswered
}

// Requeue returns when the key of a session that has ended is due again; after is how long its last decision waits.
func (b Backoff) Requeue(r session.Requeue, after time.Duration) Result {
	switch r {
	case session.RequeueSoon:
		return Soon()
	case session.RequeueRetry:
		return b.Retry()
	case session.RequeueAfter:
		return After(after)
	case session.RequeueNever:
	}
	return Done()
}
