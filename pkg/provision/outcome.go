package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
)

// This file counts and records the outcome of each try.

// Reasons of the Events of the normal course, as in sig-storage-lib-external-provisioner.
const (
	eventProvisioning = "Provisioning"
	eventSucceeded    = "ProvisioningSucceeded"
	// provisioningEventDelay is the delay of the first of them. An earlier Event could hardly be read before the outcome,
	// and would cost one more write for each claim.
	provisioningEventDelay = time.Second
)

// succeeded records once for each entry that the volume was provisioned.
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

func (w *run) countFailure() {
	w.metrics.library.PersistentVolumeClaimProvisionFailedTotal.WithLabelValues(w.class, w.source).Inc()
}

// fail ends a try that failed with err. It counts and reports the failure, asks the scheduler for another node if that
// helps, and returns the delay of the next try.
func (w *run) fail(ctx context.Context, err error) time.Duration {
	if w.reschedule && w.claim != nil {
		if deselect := w.deselect(ctx); deselect != nil {
			err = fmt.Errorf("%w; %w", err, deselect)
		}
	}
	reason := reasonOf(err)
	if ctx.Err() == nil && reason.EventType() != "" { // otherwise this process or its lease ends
		w.countFailure()
		if reason == provision.ReasonFailed {
			err = reasons.Because(reason, fmt.Errorf("failed to provision volume with StorageClass %q: %w", w.class, err))
		}
		w.recorder.ReportFailure(ctx, w.eventOn(), reason, err, true)
	}
	return w.again(ending{slow: isSlow(err, w.cfg.Clock.Since(w.began)), unbuilt: w.building, secret: w.secret,
		full: errors.Is(err, inflight.ErrFull) || errors.Is(err, inflight.ErrShare)},
		w.firstDelay(err), w.longestDelay(err))
}

// waits reports why a try ended without a volume and without an error.
func (w *run) waits(ctx context.Context, why Reason) {
	if why.About().Severity == reasons.Warning {
		w.countFailure()
	}
	w.recorder.Report(ctx, w.eventOn(), why, "")
}

// label sets the metric labels of the outcome, as sig-storage-lib-external-provisioner does.
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

// later calls do after a delay, unless end is called first.
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
