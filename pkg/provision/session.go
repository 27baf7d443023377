package provision

import (
	"context"
	"time"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/spans"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
)

// run is one try for a volume name, from its wake-up to the next wait.
type run struct {
	*Controller
	name     string
	claimKey key
	track    *track
	// claim is the claim in the cache, nil if it is gone or claims are not watched.
	claim *v1.PersistentVolumeClaim
	facts provision.Facts
	// wanted is the class for the claim's volume, nil if the claim does not want a volume now.
	wanted *storagev1.StorageClass
	// resumed means that the entry was open when the try began.
	resumed bool
	// built is the request that is not in the log yet. prepared is the Secret that was read for the request of this run,
	// nil for none.
	built    *inflight.Request
	prepared map[string]string
	// reserved has the sources that the run's calls need, with the ends of their reservations.
	reserved map[request.SourceRef]func()
	// secret is the Secret that was read last.
	secret seenSecret
	// reschedule means that another node has to be selected.
	reschedule bool
	// began is the start of the try. building means that its last step was to build a request.
	began    time.Time
	building bool
	// seen is the number of the last offer before the start.
	seen uint64
	// handle is the handle of the volume that the driver has named in this try, for the trace.
	handle string
	// class and source are the metric labels of the outcome.
	class, source string
	// last is the last decision, and err the error of its step.
	last provision.Decision
	err  error
}

// work runs steps until no step is due or one fails, and returns the last decision.
func (w *run) work(ctx context.Context) (provision.Decision, error) {
	defer w.end()
	controller.Reconcile(ctx, w, controller.Steps{Max: maxSteps, Clock: w.cfg.Clock})
	return w.last, w.err
}

// Decide implements controller.Session, and observes the claim again before each step, because the claim may have been
// deleted while the driver worked.
func (w *run) Decide(now time.Time) provision.Decision {
	w.observe()
	w.label()
	if w.track.storing && w.facts.PV.OfClaim && w.facts.PV.Names(w.facts.Record.Handle) {
		w.succeeded()
	}
	return provision.Decide(w.facts, now, w.cfg.Quiet)
}

// Do implements controller.Session.
func (w *run) Do(ctx context.Context, d provision.Decision) (over bool, err error) {
	w.building = d.Action == provision.BuildRequest
	w.track.storing = w.track.storing || d.Action == provision.StorePV
	adds := w.facts.Adds(d.Action)
	err = spans.Step(ctx, w.tracer, d.Action.String(), string(d.Reason),
		func(ctx context.Context) error { return w.act(ctx, d) })
	w.track.record = w.facts.Record
	if err == nil && d.Action == provision.CreateVolume && w.facts.Record.Unfit {
		w.countFailure()
	}
	switch {
	case err != nil && adds && (d.Action != provision.OpenEntry || w.facts.SecondFailed):
		w.secondFailed(ctx, d.Action, err)
		err = nil
	case err != nil && w.facts.Log == provision.LogOpen && (w.facts.Record.Settled() || w.facts.Record.Unsent()):
		w.closeEntry() // the driver created no volume, or was not called
	}
	w.last = d
	return d.Action == provision.CloseEntry, err
}

// secondFailed reports why the open entry gets no request for the node that is selected now.
func (w *run) secondFailed(ctx context.Context, action provision.Action, err error) {
	if action != provision.OpenEntry { // which already learned it
		w.learn(action, provision.Reply{Class: errclass.Refused}, w.cfg.Clock.Now())
	}
	w.recorder.Report(ctx, w.eventOn(), reasonOf(err), err.Error())
}

// Wait implements controller.Session.
func (w *run) Wait(_ context.Context, d provision.Decision) controller.Result {
	w.last = d
	return controller.Done()
}

// Fail implements controller.Session.
func (w *run) Fail(_ context.Context, d provision.Decision, err error) controller.Result {
	w.last, w.err = d, err
	return controller.Done()
}
