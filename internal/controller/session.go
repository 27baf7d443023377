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

// Asker is a session of an engine: a value that a model checker copies between any two calls; see [session.Progress].
type Asker[Ask any] interface {
	// Ask returns the call that the session waits for, and Next the step that the call belongs to.
	Ask() Ask
	Next() (kind session.Kind, action, reason string)
	// Ended returns the End of the session.
	Ended() session.End
}

// Calls makes the calls of a session; all fields are required.
type Calls[S Asker[Ask], Ask, Reply any] struct {
	// Purpose is why the session reads, for the error of one that is too slow.
	Purpose string
	// Clock is the time of calls and of decisions.
	Clock clock.PassiveClock
	// Call makes a call; the error explains every outcome of the reply except Succeeded: see OutcomeOf.
	Call func(ctx context.Context, ask Ask) (Reply, error)
	// Answer applies the reply to the session; sent is when the call was made.
	Answer func(s S, reply Reply, sent, now time.Time)
	// Wrote logs and counts a successful write, after the session has applied the reply.
	Wrote func(ctx context.Context, s S, ask Ask, reason string)
}

// ErrOutdated is the error of a write that was not sent in time. The server may have refused it for a while.
var ErrOutdated = fmt.Errorf("the decision is older than %v, and is made again", session.LiveFor)

// errSlow is the error of a session that ended with TooSlow.
var errSlow = fmt.Errorf("reads take longer than %v: each is outdated when the next one returns",
	session.LiveFor)

// WhileLive returns a context in which a client sends no request once a read of this time is no live read any more.
func WhileLive(ctx context.Context, clock clock.PassiveClock, read time.Time) context.Context {
	return kube.Checked(ctx, func() error {
		if clock.Since(read) > session.LiveFor {
			return ErrOutdated
		}
		return nil
	})
}

// CarryOut makes the calls that a session asks for until its End. It returns the error behind CallFailed or TooSlow. A
// write is sent only while its decision is as new as a live read has to be, however long rate limits and retries take.
func (c Calls[S, Ask, Reply]) CarryOut(ctx context.Context, s S) error {
	for s.Ended() == session.NotEnded {
		ask := s.Ask()
		kind, action, reason := s.Next()
		klog.FromContext(ctx).V(5).Info("Decided", "action", action, "reason", reason)
		sent, call := c.Clock.Now(), ctx
		if kind == session.Writes {
			call = WhileLive(ctx, c.Clock, sent)
		}
		reply, err := c.Call(call, ask)
		c.Answer(s, reply, sent, c.Clock.Now())
		switch {
		case s.Ended() == session.CallFailed:
			return err
		case err == nil && kind == session.Writes:
			c.Wrote(ctx, s, ask, reason)
		}
	}
	if s.Ended() == session.TooSlow {
		return fmt.Errorf("%s: %w", c.Purpose, errSlow)
	}
	return nil
}

// OutcomeOf returns the meaning of a call's error for a session.
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

// Requeue returns when the key of an ended session is due again; after is the wait of its last decision.
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
