package provision

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/provisioning"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
)

// The library makes the first attempt for a claim. Once that has opened an entry whose outcome is in doubt, our own
// queue continues until it is settled, also when the claim is gone. Then the library has the claim again.

// finish works on one volume that is unsettled.
func (p *Controller) finish(ctx context.Context, name string) controller.Result {
	if wait := p.tracker.due(name, p.cfg.Clock.Now()); wait > 0 {
		return controller.After(wait)
	}
	if !p.gate.Enter() {
		return controller.Done()
	}
	defer p.gate.Leave()
	t, giveBack, err := p.tracker.take(ctx, name)
	if err != nil {
		return controller.Done()
	}
	defer giveBack()
	entry, state := p.log.Get(name)
	w := &run{Controller: p, name: name, track: t}
	if state == inflight.Open {
		w.claimKey = key{entry.Claim.Namespace, entry.Claim.Name, entry.Claim.UID}
	} else if claim, known := p.claimed.Load(name); known {
		w.claimKey, _ = claim.(key)
	}
	w.ask(ctx)
	return w.finished(ctx)
}

// ask has the claim's volume asked for with the class and node that it has now.
func (w *run) ask(ctx context.Context) {
	if w.cfg.FinishOnly || w.claimKey.uid == "" {
		return
	}
	claim := w.claims.Of(w.claimKey.namespace, w.claimKey.name, w.claimKey.uid)
	if claim != nil && w.wants(ctx, claim) {
		w.wanted = &wanted{class: w.classOf(claim)}
	}
}

// finished works, and says when the name is looked at again.
func (w *run) finished(ctx context.Context) controller.Result {
	state := w.log.State(w.name)
	claim := w.claims.Of(w.claimKey.namespace, w.claimKey.name, w.claimKey.uid)
	legacy := claim != nil && w.claimOf(claim).Finalizer
	if state != inflight.Open && !legacy {
		return w.handBack()
	}
	d, err := w.work(ctx)
	switch {
	case err != nil:
		return w.failedInLoop(ctx, err)
	case d.Action == provisioning.CloseEntry || d.Done:
		w.recorder.Report(ctx, eventOn(w.facts.Claim), d.Reason, "")
		w.tracker.freely(w.name)
		w.succeeded(d.Reason)
		return controller.Done()
	}
	w.recorder.Report(ctx, eventOn(w.facts.Claim), d.Reason, "")
	if d.Reason == provisioning.ReasonNotQuiet {
		return controller.After(w.cfg.Quiet - w.cfg.Clock.Since(w.facts.Record.Unanswered) + time.Millisecond)
	}
	if d.Timed {
		return w.retries().Retry()
	}
	return controller.Done()
}

// handBack brings the claim of a settled volume to the library, if that asked too early.
func (w *run) handBack() controller.Result {
	w.claimed.Delete(w.name)
	if w.tracker.comesBack(w.name) {
		if claim := w.claims.WholeByUID(w.claimKey.uid); claim != nil {
			w.offer(claim)
			return controller.Done()
		}
	}
	w.forget()
	return controller.Done()
}

// forget forgets a volume that is settled, unless the library waits for its next try. While its claim still needs a
// volume, how often it failed stays known: the delay grows from try to try.
func (w *run) forget() {
	claim := w.tracker.claimOf(w.name)
	w.recorder.Forget(claim)
	switch c := w.claims.WholeByUID(claim); {
	case c == nil:
		w.tracker.over(claim) // it was bound, or gone, before its entry was closed
	case c.Spec.VolumeName == "" && c.DeletionTimestamp == nil && w.tracker.hasFailed(w.name):
		return
	}
	if w.tracker.due(w.name, w.cfg.Clock.Now()) == 0 {
		w.tracker.forget(w.name)
	}
}

// succeeded counts a volume that was provisioned by our queue; the library counts its own.
func (w *run) succeeded(why Reason) {
	if why == provisioning.ReasonStored {
		w.metrics.finished.Inc()
	}
}

// failedInLoop ends a run of our queue that failed.
func (w *run) failedInLoop(ctx context.Context, err error) controller.Result {
	if w.reschedule && w.claim != nil {
		if deselect := w.deselect(ctx); deselect != nil {
			err = fmt.Errorf("%w; %w", err, deselect)
		}
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("volume", w.name))
	w.recorder.ReportFailure(ctx, eventOn(w.facts.Claim), reasonOf(err), err, false)
	return controller.After(w.tracker.failed(w.name, w.cfg.Clock.Now(), w.firstDelay(err), w.cfg.RetryMax))
}

// deselect asks the scheduler for another node, as the library does after a first attempt.
func (w *run) deselect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return w.cluster.selectNode(ctx, w.claim, "")
}

// firstDelay is longer for what a person has to change first.
func (p *Controller) firstDelay(err error) time.Duration {
	class, remedy := errclass.Of(err), request.RemediationOf(err)
	if class == errclass.Refused || class == errclass.Unfit || class == errclass.Exhausted ||
		remedy == request.RemediationChange || remedy == request.RemediationDiscard {
		return 10 * p.cfg.RetryStart
	}
	return p.cfg.RetryStart
}
