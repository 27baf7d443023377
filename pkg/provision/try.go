package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/spans"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// One queue of volume names makes every try: the first one for an accepted claim, its repetitions, and
// the tries that settle entries in flight, even if the claim is gone.

// try works on one volume name and returns the time of the next try. The queue never gives one name to two workers.
func (p *Controller) try(ctx context.Context, name string) controller.Result {
	defer p.nextSlow()
	now, last := p.cfg.Clock.Now(), p.tracker.retryOf(name)
	if wait := last.due.Sub(now); wait > 0 {
		return controller.After(wait)
	}
	if last.slow {
		if !p.slow.Enter(name, last.count) {
			return controller.Done() // nextSlow brings it back
		}
		defer p.slow.Leave()
	}
	w := &run{Controller: p, name: name, began: now, track: p.tracker.get(name), seen: p.tracker.offered(),
		reserved: map[volume.SourceRef]func(){}}
	if !w.choose(ctx) {
		p.tracker.forget(name)
		return controller.Done()
	}
	p.trying.Add(1)
	defer p.trying.Add(-1)
	if !w.resumed {
		w.track.close() // others may have removed the protection of its source
		w.track.since = now
		defer w.announceStart(w.claimOf(w.claim))()
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("claim", w.claimName(), "volume", name))
	ctx, end := w.beginTrace(ctx)
	var d provision.Decision
	var err error
	defer func() { end(d, err) }() // after a panic, too
	d, err = w.work(ctx)
	return w.ended(ctx, d, err)
}

// nextSlow queues a slow name while the lane has room, because a name that was queued before may not have used its
// room.
func (p *Controller) nextSlow() {
	if next, found := p.slow.Next(); found {
		p.queue.Add(next)
	}
}

// choose selects the claim of the entry, or else the first claim that wants the volume, and returns false if neither
// exists. An entry whose rewrite is not confirmed is stored in one form or the other. An entry that is gone, although
// this process has not closed it, was settled, which the run reports.
func (w *run) choose(ctx context.Context) bool {
	entry, state := w.log.Get(w.name)
	kept := state == inflight.Open || state == inflight.Adding
	if !kept {
		entry = w.track.entry
	}
	if w.resumed = kept || w.track.record.Count > 0; w.resumed {
		w.claimKey = entry.Claim
		w.want(ctx)
		return true
	}
	for _, w.claimKey = range w.tracker.claimsOf(w.name) {
		w.want(ctx)
		switch {
		case w.claim == nil || w.claim.Spec.VolumeName != "" || w.claim.DeletionTimestamp != nil ||
			w.nameOf(w.claim.UID) != w.name || w.stored(w.claim.UID):
			w.leave()
		case w.wanted != nil:
			return true
		}
	}
	return false
}

// want sets wanted to the current class of the claim if the claim wants its volume.
func (w *run) want(ctx context.Context) {
	if w.claim = w.claims.WholeByUID(w.claimKey.UID); w.claim != nil {
		w.wanted = w.wantedClass(ctx, w.claim)
	}
}

// leave forgets the claim, which gets no other volume of this name. A claim that was offered since the try began stays
// for the next try, because this one may not have seen the cause, such as the end of the PersistentVolume.
func (w *run) leave() {
	w.recorder.Forget(w.claimKey.UID)
	w.recorder.Forget(types.UID(w.name)) // of the Events on the Lease
	w.tracker.leave(w.name, w.claimKey, w.seen)
}

// ended ends a try and returns the time of the next one. The number of failures is kept until the claim has its volume
// or is gone.
func (w *run) ended(ctx context.Context, d provision.Decision, err error) controller.Result {
	others := request.RemediationOf(err) == request.RemediationIgnore && w.log.State(w.name) != inflight.Open
	switch {
	case others, err == nil && (d.Done || d.Reason == provision.ReasonStored):
		if w.resumed && err == nil && d.Reason == provision.ReasonStored {
			w.metrics.finished.Inc()
		}
		if w.leave(); w.tracker.knows(w.name) {
			w.queue.Add(w.name) // for the next claim
		}
		return controller.Done()
	case err != nil:
		return controller.After(w.fail(ctx, err))
	}
	w.waits(ctx, d.Reason)
	switch {
	case d.Reason == provision.ReasonNotQuiet:
		return controller.After(w.cfg.Quiet - w.cfg.Clock.Since(w.facts.Record.Unanswered) + time.Millisecond)
	case d.Action == provision.CloseEntry: // the claim may want another volume
		return controller.After(w.again(ending{}, w.cfg.RetryStart, w.cfg.RetryMax))
	}
	return w.retries().Retry()
}

// again counts a failure that ended so, and returns the delay of the next try, which starts at first, doubles each
// time, and is limited to most. A change since the try began ends the delay.
func (w *run) again(as ending, first, most time.Duration) time.Duration {
	now := w.cfg.Clock.Now()
	w.tracker.failed(w.name, as, now, first, most)
	return w.tracker.changedSince(w.name, w.began, now, correctedRetries*w.cfg.RetryStart)
}

// deselectTries limits the tries to deselect a node while other clients keep changing the claim.
const deselectTries = 5

// deselect asks the scheduler for another node. If the claim has changed since the watch showed it, it is read, and
// deselect does nothing if it needs no other node any more.
func (w *run) deselect(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	claim := w.claim
	for range deselectTries {
		if err = w.selectNode(ctx, claim, ""); !errors.Is(err, kube.ErrChanged) {
			return err
		}
		read, readErr := w.cluster.readClaim(ctx, claim.Namespace, claim.Name)
		switch {
		case readErr != nil:
			return fmt.Errorf("%w; %w", err, readErr)
		case read == nil, read.UID != claim.UID, read.Spec.VolumeName != "", read.DeletionTimestamp != nil,
			read.Annotations[volume.AnnSelectedNode] != claim.Annotations[volume.AnnSelectedNode]:
			return nil
		}
		claim = read
	}
	return err
}

// firstDelay is longer for failures that a person has to correct.
func (p *Controller) firstDelay(err error) time.Duration {
	class, remedy := errclass.Of(err), request.RemediationOf(err)
	if class == errclass.Refused || class == errclass.Unfit || class == errclass.Exhausted ||
		remedy == request.RemediationChange || remedy == request.RemediationDiscard {
		return 10 * p.cfg.RetryStart
	}
	return p.cfg.RetryStart
}

// run is one try for a volume name, from its wake-up to the next wait.
type run struct {
	*Controller
	name     string
	claimKey volume.ClaimRef
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
	reserved map[volume.SourceRef]func()
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
}

// claimName names the claim in log messages.
func (w *run) claimName() string { return w.claimKey.Namespace + "/" + w.claimKey.Name }

// work runs steps until no step is due or one fails, and returns the last decision.
func (w *run) work(ctx context.Context) (provision.Decision, error) {
	defer w.end()
	return controller.Steps(ctx, maxSteps, w.decide, w.do)
}

// decide observes the claim again before each step, because the claim may have been deleted while the driver worked.
func (w *run) decide() provision.Decision {
	now := w.cfg.Clock.Now()
	w.observe()
	w.label()
	if w.track.storing && w.facts.PV.OfClaim && w.facts.PV.Names(w.facts.Record.Handle) {
		w.succeeded()
	}
	return provision.Decide(w.facts, now, w.cfg.Quiet)
}

// do carries out a step, and is over when the entry is closed.
func (w *run) do(ctx context.Context, d provision.Decision) (over bool, err error) {
	w.building = d.Action == provision.BuildRequest
	w.track.storing = w.track.storing || d.Action == provision.StorePV
	adds := w.facts.Adds(d.Action)
	err = w.remembered(func() error {
		return spans.Step(ctx, w.tracer, d.Action, string(d.Reason),
			func(ctx context.Context) error { return w.act(ctx, d) })
	})
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
	return d.Action == provision.CloseEntry, err
}

// remembered carries out a step, and keeps what the run has learned by it for the next try. The call of a step that
// panics, such as of the driver, may still arrive, so it counts as not answered.
func (w *run) remembered(step func() error) error {
	returned := false
	defer func() {
		if w.track.record = w.facts.Record; !returned {
			w.track.record.Unheard(w.cfg.Clock.Now())
		}
	}()
	err := step()
	returned = true
	return err
}

// secondFailed reports why the open entry gets no request for the node that is selected now.
func (w *run) secondFailed(ctx context.Context, action provision.Action, err error) {
	if action != provision.OpenEntry { // which already learned it
		w.learn(action, provision.Reply{Class: errclass.Refused}, w.cfg.Clock.Now())
	}
	w.recorder.Report(ctx, w.eventOn(), reasonOf(err), err.Error())
}

// isSlow reports whether a failed try kept a worker for long.
func isSlow(err error, took time.Duration) bool {
	return took >= controller.SlowTry || errors.Is(err, context.DeadlineExceeded) ||
		status.Code(err) == codes.DeadlineExceeded
}
