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
	// handle is the handle of the volume that the driver has named in this try, for the trace.
	handle string
	// class and source are the metric labels of the outcome.
	class, source string
}

// work runs steps until no step is due or one fails, and returns the last decision.
func (w *run) work(ctx context.Context) (provision.Decision, error) {
	session := &session{run: w}
	defer w.end()
	controller.Reconcile(ctx, session, controller.Steps{Max: maxSteps, Clock: w.cfg.Clock})
	return session.last, session.err
}

// session adapts a run to the loop of steps.
type session struct {
	*run
	last provision.Decision
	err  error
}

// Decide implements controller.Session, and observes the claim again before each step, because the claim may have been
// deleted while the driver worked.
func (s *session) Decide(now time.Time) provision.Decision {
	s.observe()
	s.label()
	if s.track.storing && s.facts.PV.OfClaim && s.facts.PV.Names(s.facts.Record.Handle) {
		s.succeeded()
	}
	return provision.Decide(s.facts, now, s.cfg.Quiet)
}

// Do implements controller.Session.
func (s *session) Do(ctx context.Context, d provision.Decision) (over bool, err error) {
	s.building = d.Action == provision.BuildRequest
	s.track.storing = s.track.storing || d.Action == provision.StorePV
	adds := s.facts.Adds(d.Action)
	err = spans.Step(ctx, s.tracer, d.Action.String(), string(d.Reason),
		func(ctx context.Context) error { return s.act(ctx, d) })
	s.track.record = s.facts.Record
	if err == nil && d.Action == provision.CreateVolume && s.facts.Record.Unfit {
		s.countFailure()
	}
	switch {
	case err != nil && adds && (d.Action != provision.OpenEntry || s.facts.SecondFailed):
		s.secondFailed(ctx, d.Action, err)
		err = nil
	case err != nil && s.facts.Log == provision.LogOpen && (s.facts.Record.Settled() || s.facts.Record.Unsent()):
		s.closeEntry() // the driver created no volume, or was not called
	}
	s.last = d
	return d.Action == provision.CloseEntry, err
}

// secondFailed reports why the open entry gets no request for the node that is selected now.
func (s *session) secondFailed(ctx context.Context, action provision.Action, err error) {
	if action != provision.OpenEntry { // which already learned it
		s.learn(action, provision.Reply{Class: errclass.Refused}, s.cfg.Clock.Now())
	}
	s.recorder.Report(ctx, s.eventOn(), reasonOf(err), err.Error())
}

// Wait implements controller.Session.
func (s *session) Wait(_ context.Context, d provision.Decision) controller.Result {
	s.last = d
	return controller.Done()
}

// Fail implements controller.Session.
func (s *session) Fail(_ context.Context, d provision.Decision, err error) controller.Result {
	s.last, s.err = d, err
	return controller.Done()
}
