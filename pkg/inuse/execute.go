package inuse

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// session is one decision on an object with its step; the change made by a step enqueues the object.
type session struct {
	*Guard
	key    string
	object Object
	duty   Duty
	found  bool
}

func (g *Guard) reconcile(ctx context.Context, key string) controller.Result {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("kind", g.name, "object", key))
	s := &session{Guard: g, key: key}
	defer s.settle()
	d := s.decide(g.cfg.Clock.Now())
	klog.FromContext(ctx).V(5).Info("Decided", "action", d.Action, "reason", d.Reason)
	if d.Action == Wait || g.cfg.DryRun && d.writes() {
		return s.wait(ctx, d)
	}
	if err := s.do(ctx, d); err != nil {
		return s.fail(ctx, err)
	}
	return controller.Done()
}

// settle drops the records of a session about an object that is gone, because its end may precede that of the session.
func (s *session) settle() {
	if now, _ := s.kind.Get(s.key); now.UID != s.object.UID {
		s.tracker.settled(s.object.UID)
		s.recorder.Forget(s.object.UID)
	}
}

func (s *session) decide(now time.Time) (d Decision) {
	s.object, d, s.found = s.kind.Decide(s.key, func(o Object) Duty {
		s.duty = s.tracker.duty(o, now)
		return s.duty
	})
	return d
}

// wait reports a wait, or the step that a dry run leaves out, and returns when the object is decided on again.
func (s *session) wait(ctx context.Context, d Decision) controller.Result {
	switch {
	case !s.found:
		return controller.Done()
	case d.writes(): // a dry run
		s.proveAlone(ctx)
		s.report(ctx, reasonDryRun, d.Reason.Would(d.Action))
		return controller.Done()
	case !d.due():
		s.tracker.notDue(s.object.UID)
	}
	s.report(ctx, d.Reason, d.Detail)
	if !d.Timed {
		return controller.Done()
	}
	if d.Reason == ReasonLeftToBuiltIn {
		if left := s.tracker.due(s.object.UID, s.cfg.Clock.Now()); left > 0 {
			return controller.After(left)
		}
	}
	return controller.Retries(s.cfg.Settings).Retry()
}

func (s *session) do(ctx context.Context, d Decision) error {
	if d.Action == ReadUsers {
		s.report(ctx, reasonReadingUsers, "")
		s.kind.ReadUsers(s.object)
		return nil
	}
	s.proveAlone(ctx)
	if err := s.send(ctx, s.object, d.Action); err != nil {
		return err
	}
	s.metrics.wrote(d.Action)
	s.report(ctx, d.Reason, "")
	klog.FromContext(ctx).V(4).Info("Wrote", "action", d.Action, "reason", d.Reason)
	return nil
}

func (s *session) fail(ctx context.Context, err error) controller.Result {
	failure := controller.FailureOf(ctx, err)
	if failure == controller.Retryable || failure == controller.Lasting {
		s.recorder.ReportFailure(ctx, s.eventOn(s.object), reasonAPIWriteFailed, err, false)
	}
	return failure.Result(controller.Retries(s.cfg.Settings))
}

func (s *session) report(ctx context.Context, reason Reason, detail string) {
	s.recorder.Report(ctx, s.eventOn(s.object), reason, detail)
}

// proveAlone records that a need was left unanswered, and enqueues all objects that wait for other programs.
func (s *session) proveAlone(ctx context.Context) {
	if s.duty.Alone || !s.tracker.alone() {
		return
	}
	klog.FromContext(ctx).Info("No other controller manages the finalizer; managing it", "patience", s.cfg.Patience)
	for _, key := range s.kind.Keys() {
		s.queue.Add(key)
	}
}

// send makes a write that is tracked as our own.
func (g *Guard) send(ctx context.Context, o Object, a Action) error {
	g.tracker.begin(o.UID, a)
	err := g.patch(ctx, o, a)
	g.tracker.end(o.UID, a, outcomeOf(err))
	return err
}

func (g *Guard) patch(ctx context.Context, o Object, a Action) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	after, err := g.kind.Patch(ctx, o, a)
	if err == nil && after.Protected != (a == AddFinalizer) {
		err = fmt.Errorf("%s of %s %q: %w", a, g.name, o.Key(), kube.ErrUndone)
	}
	return err
}

func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return accepted
	case errors.Is(err, kube.ErrGone), errors.Is(err, kube.ErrChanged), errors.Is(err, kube.ErrUndone):
		return refused
	}
	return lost
}

// Patch returns the write that carries out AddFinalizer or RemoveFinalizer. The write fails if the object has changed
// since it was read.
func Patch(o Object, a Action, finalizer string) kube.FinalizerPatch {
	p := kube.FinalizerPatch{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
	if a == AddFinalizer {
		p.Add = []string{finalizer}
	} else {
		p.Remove = []string{finalizer}
	}
	return p
}
