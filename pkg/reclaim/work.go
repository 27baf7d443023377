package reclaim

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// A session asks and its caller answers, as in controller.Calls, so that the model checker can suspend it in between.
// The loop is here because a session of this engine ends with a report and one of four delays: the adapter to
// controller.Calls would be longer.

// reconcile works on the PV with this name, and on former PVs of the name that are gone. The shortest delay counts.
func (r *Controller) reconcile(ctx context.Context, name string) (result controller.Result) {
	for _, item := range r.items(name) {
		again := r.work(ctx, item)
		if again != controller.Done() && (result == controller.Done() || again.Backoff.First < result.Backoff.First) {
			result = again
		}
	}
	return result
}

// work runs the session on one item to its end.
func (r *Controller) work(ctx context.Context, item reclaim.Item) controller.Result {
	s, step, found := r.begin(item)
	if !found {
		return controller.Done()
	}
	defer r.abandon(s)
	if step.Result == reclaim.Asks {
		r.inHand.Add(1)
		defer r.inHand.Add(-1)
	}
	pv := s.Facts.PV
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("PV", pv.Name, "PVUID", pv.UID))
	ctx = r.traces.enter(ctx, s, step)
	defer r.traces.leave(s)
	last, err := r.run(ctx, s, step)
	traceReason(ctx, last.Decision.Reason)
	return r.end(ctx, s.Facts.PV, last, err)
}

// run makes the calls that a session asks for, and returns its last step, with the error of the last call.
func (r *Controller) run(ctx context.Context, s *reclaim.Session, step reclaim.Step) (last reclaim.Step, err error) {
	var secrets map[string]string
	for {
		klog.FromContext(ctx).V(5).Info("Decided", "action", step.Decision.Action, "reason", step.Decision.Reason)
		if step.Besides.Kind == reclaim.Besides {
			r.recorder.ReportAside(ctx, object(s.Facts.PV), step.Besides.Reason, step.Besides.Detail)
		}
		for _, other := range step.TooLate {
			r.recorder.ReportAside(ctx, object(other), reclaim.ReasonTooLateToKeep, "")
		}
		if step.Result != reclaim.Asks {
			return step, err
		}
		a := r.carryOut(ctx, s, secrets)
		if s.Ask.Action == reclaim.ReadSecrets {
			secrets = a.secrets
		}
		step, err = r.answer(s, a.Reply), a.err
	}
}

// moment returns the inputs of a decision that the engine does not hold.
func (r *Controller) moment(pv string) reclaim.Moment {
	now := r.cfg.Clock.Now()
	at := reclaim.Moment{Now: now, Leading: r.mayAct() == nil, TookOver: r.tookOver(now)}
	if r.cfg.InFlight == nil {
		return at
	}
	at.Log, at.LogProblem = r.cfg.InFlight.InFlight(pv)
	return at
}

// The locked sections below end with a deferred Unlock: the queue contains a panic of its work, which must not keep the
// lock from all other work.

// tookOver reports whether this replica began to lead less than Config.TakeoverPeriod ago.
func (r *Controller) tookOver(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return now.Sub(r.began) < r.cfg.TakeoverPeriod
}

func (r *Controller) items(name string) []reclaim.Item {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engine.Items(name)
}

func (r *Controller) facts(item reclaim.Item, at reclaim.Moment) (_ reclaim.Facts, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engine.Facts(item, at)
}

func (r *Controller) begin(item reclaim.Item) (_ *reclaim.Session, _ reclaim.Step, found bool) {
	at := r.moment(item.Name)
	r.mu.Lock()
	defer r.mu.Unlock()
	facts, found := r.engine.Facts(item, at)
	if !found {
		return nil, reclaim.Step{}, false
	}
	s, step := r.engine.Begin(facts, at)
	return s, step, true
}

func (r *Controller) answer(s *reclaim.Session, reply reclaim.Reply) reclaim.Step {
	at := r.moment(s.Facts.PV.Name)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engine.Answer(s, reply, at)
}

func (r *Controller) abandon(s *reclaim.Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.engine.Abandon(s)
}

func (r *Controller) tracks(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engine.Tracker.Tracks(uid)
}

// mayAct returns an error while this replica must not begin, write or report anything.
func (r *Controller) mayAct() error { return leadership.Check(r.cfg.Lease) }

// end reports how a session on a PV ended, with err as its last error, and returns when the next decision is due.
func (r *Controller) end(ctx context.Context, pv volume.PV, step reclaim.Step, err error) controller.Result {
	switch report, about := step.Report, object(pv); report.Kind {
	case reclaim.Waits:
		r.recorder.Report(ctx, about, report.Reason, report.Detail)
	case reclaim.Counts:
		r.recorder.Count(about, report.Reason)
	case reclaim.Would:
		r.recorder.ReportEach(ctx, about, reclaim.ReasonDryRun, report.Detail)
	case reclaim.Failed, reclaim.FailedByCause:
		if report.Detail != "" {
			err = errors.New(report.Detail)
		}
		r.recorder.ReportFailure(ctx, about, report.Reason, err, report.Kind == reclaim.FailedByCause)
	case reclaim.None, reclaim.Besides:
	}
	if !r.tracks(pv.UID) {
		// The end of the PV may precede the answer, so whichever comes last drops the reports.
		r.forget(pv.UID)
	}
	if step.Protect {
		r.protecting.Add(pv.Name)
	}
	switch retries := (controller.Backoff{First: r.cfg.RetryStart, Max: r.cfg.RetryMax}); step.Result {
	case reclaim.Soon:
		return controller.Soon()
	case reclaim.Later:
		return controller.After(step.Decision.Quiet)
	case reclaim.Retry:
		return retries.Retry()
	case reclaim.Slow:
		return retries.Slow()
	case reclaim.Asks, reclaim.Idle:
	}
	return controller.Done()
}

// object returns the PV as Events refer to it.
func object(pv volume.PV) events.Object {
	return events.PV(pv.Name, pv.UID, pv.ResourceVersion, pv.Claim)
}

// protect adds our finalizer to one PV, if that is still the decision once the pace allows it.
func (r *Controller) protect(ctx context.Context, name string) controller.Result {
	done, err := r.pace.Acquire(ctx)
	if err != nil {
		return controller.Done() // the program or the lease ended
	}
	defer done()
	ask, needed := r.beginProtect(name)
	if !needed {
		return controller.Done()
	}
	a := r.ask(ctx, ask, nil)
	return r.endProtect(ctx, ask, a)
}

func (r *Controller) beginProtect(name string) (_ reclaim.Ask, needed bool) {
	at := r.moment(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engine.BeginProtect(name, at)
}

func (r *Controller) answerProtect(ask reclaim.Ask, reply reclaim.Reply) reclaim.Step {
	at := r.moment(ask.PV.Name)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engine.AnswerProtect(ask, reply, at)
}

func (r *Controller) endProtect(ctx context.Context, ask reclaim.Ask, a answer) controller.Result {
	step := r.answerProtect(ask, a.Reply)
	if a.err == nil {
		klog.FromContext(ctx).V(4).Info("Added the finalizer to a PV", "PV", ask.PV.Name, "reason", ask.Reason)
	}
	return r.end(ctx, ask.PV, step, a.err)
}
