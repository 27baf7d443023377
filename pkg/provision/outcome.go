package provision

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
)

// The outcome of each try is counted and recorded here. The library is told that it has nothing to record.

// Reasons of the Events of the normal course, which are those of sig-storage-lib-external-provisioner.
const (
	eventProvisioning = "Provisioning"
	eventSucceeded    = "ProvisioningSucceeded"
	// provisioningEventDelay is how long the first of them waits for the outcome: nobody can read it before, and it would
	// be one more write for each claim.
	provisioningEventDelay = time.Second
)

// succeeded records that the volume was provisioned, once for each entry.
func (w *run) succeeded() {
	t := w.track
	if t.counted {
		return
	}
	t.counted = true
	began := t.since
	if began.IsZero() {
		began = t.entry.Begun
	}
	m := w.metrics.library
	m.PersistentVolumeClaimProvisionDurationSeconds.WithLabelValues(w.class, w.source).
		Observe(max(0, w.cfg.Clock.Since(began)).Seconds())
	m.PersistentVolumeClaimProvisionTotal.WithLabelValues(w.class, w.source).Inc()
	if !w.facts.Claim.Gone {
		w.normal(eventOn(w.facts.Claim).ObjectReference, eventSucceeded, "Successfully provisioned volume "+w.name)
	}
}

// countFailure counts a try that failed.
func (w *run) countFailure() {
	w.metrics.library.PersistentVolumeClaimProvisionFailedTotal.WithLabelValues(w.class, w.source).Inc()
}

// fail ends a try that failed with err: it is counted and reported, and the scheduler is asked for another node where
// that helps. It returns how long the next try has to wait.
func (w *run) fail(ctx context.Context, err error) time.Duration {
	if w.reschedule && w.claim != nil {
		if deselect := w.deselect(ctx); deselect != nil {
			err = fmt.Errorf("%w; %w", err, deselect)
		}
	}
	reason := reasonOf(err)
	if ctx.Err() == nil && reason.EventType() != "" { // else the end of this process, or of its lease
		w.countFailure()
		if reason == provision.ReasonFailed {
			err = reasons.Because(reason, fmt.Errorf("failed to provision volume with StorageClass %q: %w", w.class, err))
		}
		w.recorder.ReportFailure(ctx, w.eventOn(), reason, err, true)
	}
	slow := isSlow(err, w.cfg.Clock.Since(w.began))
	wait := w.again(w.firstDelay(err), w.longestDelay(err))
	w.tracker.mark(w.name, slow, w.building)
	return wait
}

// waits reports why a try ended without a volume and without an error.
func (w *run) waits(ctx context.Context, why Reason) {
	if why.About().Severity == reasons.Warning {
		w.countFailure()
	}
	w.recorder.Report(ctx, w.eventOn(), why, "")
}

// label notes by which labels the outcome is counted, as the library does.
func (w *run) label() {
	if w.claim != nil {
		if name := w.claim.Spec.StorageClassName; name != nil {
			w.class = *name
		}
		if from := w.claim.Spec.DataSource; from != nil {
			w.source = from.Kind
		}
		return
	}
	for _, asked := range w.track.entry.Requests {
		if asked.PV != nil {
			w.class = cmp.Or(w.class, asked.PV.Spec.StorageClassName)
		}
		w.source = cmp.Or(w.source, string(sourceOf(asked).Kind))
	}
}

// normal records an Event of the normal course.
func (p *Controller) normal(on v1.ObjectReference, reason, message string) {
	p.events.Event(&on, v1.EventTypeNormal, reason, message)
}

// announceStart records that a volume is being provisioned, unless end is called in time.
func (p *Controller) announceStart(claim provision.Claim) (end func()) {
	return later(p.cfg.Clock, provisioningEventDelay, func() {
		p.normal(eventOn(claim).ObjectReference, eventProvisioning, fmt.Sprintf(
			"External provisioner is provisioning volume for claim %q", claim.Namespace+"/"+claim.Name))
	})
}

// later calls do after a delay, unless end is called before.
func later(clk clock.Clock, delay time.Duration, do func()) (end func()) {
	timer, ended := clk.NewTimer(delay), make(chan struct{})
	go func() {
		select {
		case <-ended:
			timer.Stop()
		case <-timer.C():
			do()
		}
	}()
	return func() { close(ended) }
}
