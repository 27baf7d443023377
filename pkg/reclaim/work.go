package reclaim

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/reclaiming"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/lease"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// The loop of steps is not controller.Reconcile, whose sessions wait for each step they take: here a session asks, and
// its driver answers, so that the model checker can put it aside between the two.

// reconcile works on the PV of a name, and on those that had the name and are gone.
func (r *Controller) reconcile(ctx context.Context, name string) (result controller.Result) {
	defer r.traces.end(name, func(uid types.UID) bool { return !r.tracks(uid) })
	r.mu.Lock()
	items := r.engine.Items(name)
	r.mu.Unlock()
	for _, item := range items {
		if again := r.work(ctx, item); again != controller.Done() {
			result = again
		}
	}
	return result
}

// work carries the session on one item to its end.
func (r *Controller) work(ctx context.Context, item reclaiming.Item) controller.Result {
	s, step, found := r.begin(item)
	if !found {
		return controller.Done()
	}
	pv := s.Facts.PV
	defer r.abandon(s)
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("PV", pv.Name, "PVUID", pv.UID))
	ctx = r.traces.in(ctx, pv)
	defer r.traces.end(pv.Name, func(uid types.UID) bool { return uid == pv.UID && !s.Facts.Underway() })
	if step.Result == reclaiming.Asks {
		r.inHand.Add(1)
		defer r.inHand.Add(-1)
		if s.Ask.Action != reclaiming.RemoveFinalizer {
			ctx = r.traces.resume(ctx, pv)
		}
	}
	var a answer
	for {
		logDecision(ctx, step.Decision)
		if step.Besides.Kind == reclaiming.Besides {
			r.recorder.ReportAside(ctx, object(s.Facts.PV), step.Besides.Reason, step.Besides.Detail)
		}
		if step.Result != reclaiming.Asks {
			return r.end(ctx, s.Facts, step, a.err)
		}
		secrets := a.secrets
		a = r.traces.call(ctx, s.Ask, func(ctx context.Context) answer { return r.carryOut(ctx, s, secrets) })
		if s.Ask.Action != reclaiming.ReadSecrets {
			a.secrets = secrets
		}
		step = r.answer(s, a.Reply)
	}
}

func logDecision(ctx context.Context, d reclaiming.Decision) {
	klog.FromContext(ctx).V(5).Info("Decided", "action", d.Action, "reason", d.Reason)
	traceDecision(ctx, d.Reason)
}

// moment returns what the engine does not know by itself.
func (r *Controller) moment(pv string) reclaiming.Moment {
	at := reclaiming.Moment{Now: r.cfg.Clock.Now(), Leading: r.mayAct() == nil}
	if r.cfg.InFlight == nil {
		return at
	}
	at.Log, at.LogProblem = r.cfg.InFlight.InFlight(pv)
	return at
}

func (r *Controller) begin(item reclaiming.Item) (_ *reclaiming.Session, _ reclaiming.Step, found bool) {
	at := r.moment(item.Name)
	r.mu.Lock()
	defer r.mu.Unlock()
	facts, found := r.engine.Facts(item, at)
	if !found {
		return nil, reclaiming.Step{}, false
	}
	s, step := r.engine.Begin(facts, at)
	return s, step, true
}

func (r *Controller) answer(s *reclaiming.Session, reply reclaiming.Reply) reclaiming.Step {
	at := r.moment(s.Facts.PV.Name)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engine.Answer(s, reply, at)
}

func (r *Controller) abandon(s *reclaiming.Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.engine.Abandon(s)
}

func (r *Controller) tracks(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engine.Tracker.Tracks(uid)
}

// mayAct is an error when this replica must not begin, write or report anything.
func (r *Controller) mayAct() error { return lease.Check(r.cfg.Lease) }

// end reports how a session ended, and returns when the PV is decided on again. err is the last answer's.
func (r *Controller) end(ctx context.Context, f reclaiming.Facts, step reclaiming.Step, err error) controller.Result {
	report, about := step.Report, object(f.PV)
	if report.Detail != "" {
		err = errors.New(report.Detail)
	}
	switch report.Kind {
	case reclaiming.Waits:
		r.recorder.Report(ctx, about, report.Reason, r.detail(f, report.Reason))
	case reclaiming.Would:
		r.recorder.ReportEach(ctx, about, reclaiming.ReasonDryRun, report.Detail)
	case reclaiming.Failed, reclaiming.FailedByCause:
		r.recorder.ReportFailure(ctx, about, report.Reason, err, report.Kind == reclaiming.FailedByCause)
	case reclaiming.None, reclaiming.Besides:
	}
	if step.Settled {
		r.recorder.Forget(f.PV.UID)
	}
	if step.Protect {
		r.protecting.Add(f.PV.Name)
	}
	switch retries := (controller.Backoff{First: r.cfg.RetryStart, Max: r.cfg.RetryMax}); step.Result {
	case reclaiming.Soon:
		return controller.Soon()
	case reclaiming.Retry:
		return retries.Retry()
	case reclaiming.Slow:
		return retries.Slow()
	case reclaiming.Asks, reclaiming.Idle:
	}
	return controller.Done()
}

// detail adds to a reason's sentence what is known about this PV.
func (r *Controller) detail(f reclaiming.Facts, reason Reason) string {
	detail := reclaiming.EventDetail(f, reason)
	if reason == reclaiming.ReasonReclaimAbandoned && r.cfg.Clock.Since(r.began) < r.cfg.TakeoverPeriod {
		detail += " Or the previous leader removed it after it had the volume deleted: it led until a moment ago."
	}
	return detail
}

// object is the PV as reports name it.
func object(pv volume.PV) events.Object {
	o := events.PV(pv.Name, pv.UID, pv.ResourceVersion, events.Claim("", "", ""))
	o.Claim.Kind = ""
	if pv.Claim.Name != "" {
		o.Claim = events.Claim(pv.Claim.Namespace, pv.Claim.Name, pv.Claim.UID)
	}
	return o
}

// protect adds our finalizer to one PV, if that is still the decision when there is room for such work.
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

func (r *Controller) beginProtect(name string) (_ reclaiming.Ask, needed bool) {
	at := r.moment(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engine.BeginProtect(name, at)
}

func (r *Controller) endProtect(ctx context.Context, ask reclaiming.Ask, a answer) controller.Result {
	at := r.moment(ask.PV.Name)
	r.mu.Lock()
	step := r.engine.AnswerProtect(ask, a.Reply, at)
	r.mu.Unlock()
	if a.err == nil {
		klog.FromContext(ctx).V(4).Info("Added the finalizer to a PV", "PV", ask.PV.Name, "reason", ask.Reason)
	}
	return r.end(ctx, reclaiming.Facts{PV: ask.PV}, step, a.err)
}
