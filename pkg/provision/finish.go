package provision

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
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
	defer p.nextSlow()
	if wait := p.tracker.due(name, p.cfg.Clock.Now()); wait > 0 {
		return controller.After(wait)
	}
	if !p.gate.Enter() {
		return controller.Done()
	}
	defer p.gate.Leave()
	if slow, failures := p.tracker.isSlow(name); slow && p.log.State(name) == inflight.Open {
		if !p.slow.enter(name, failures) {
			return controller.Done()
		}
		defer p.slow.leave()
	}
	t, giveBack := p.tracker.tryTake(name)
	if t == nil {
		return controller.Done() // who has it brings it back
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

// nextSlow has a slow name worked on while there is room for it: one that was to be worked on may have needed none.
func (p *Controller) nextSlow() {
	if next, found := p.slow.next(); found {
		p.unsettled.Add(next)
	}
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
	if w.log.State(w.name) != inflight.Open {
		return w.handBack()
	}
	d, err := w.work(ctx)
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("volume", w.name))
	if err != nil {
		return controller.After(w.fail(ctx, err))
	}
	w.waits(ctx, d.Reason)
	switch {
	case d.Action == provisioning.CloseEntry || d.Done:
		w.tracker.freely(w.name)
		if d.Reason == provisioning.ReasonStored {
			w.metrics.finished.Inc()
		}
	case d.Reason == provisioning.ReasonNotQuiet:
		return controller.After(w.cfg.Quiet - w.cfg.Clock.Since(w.facts.Record.Unanswered) + time.Millisecond)
	case d.Timed:
		return w.retries().Retry()
	}
	return controller.Done()
}

// handBack brings the claim of a volume that is not in flight to the library, if it still needs one: the library
// forgets a claim after each try. How often it failed stays known, so that the delay grows from try to try.
func (w *run) handBack() controller.Result {
	w.claimed.Delete(w.name)
	uid := cmp.Or(w.claimKey.uid, w.tracker.claimOf(w.name))
	claim := w.claims.WholeByUID(uid)
	switch {
	case claim == nil:
		w.tracker.over(uid) // it was bound, or gone, before its entry was closed
	case claim.Spec.VolumeName == "" && claim.DeletionTimestamp == nil && !w.stored(uid):
		w.offer(claim)
		return controller.Done()
	}
	w.recorder.Forget(uid)
	w.recorder.Forget(types.UID(w.name))
	w.tracker.forget(w.name)
	return controller.Done()
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
