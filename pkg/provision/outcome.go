package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	librarymetrics "sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller/metrics"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/internal/spans"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// This file counts and records the outcome of each try: in Events, metrics, traces and the log.

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

// label sets the metric labels of the outcome, as sig-storage-lib-external-provisioner does, but only to names of
// existing classes and to kinds that drivers support. Users choose all other values, and a metric keeps each of them.
func (w *run) label() {
	if w.claim != nil {
		if class := w.classOf(w.claim); class != nil {
			w.class = class.Name
		}
		w.source = string(request.SourceOf(w.claim).Kind)
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

// pace limits a claim's Events, in addition to the growing delay between tries: at most one a minute for a message that
// changes from try to try, such as one with the id of a request. A repeated Event is recorded again with the first try
// after 20 minutes, so that it exists when the API server removes the earlier one.
var pace = events.Pace{Change: time.Minute, Repeat: 20 * time.Minute}

// ownEvents is the recorder of a Controller without Config.Events. It drops Events until it is started.
type ownEvents struct{ record.EventRecorder }

// start records Events with this client until stop is called. It is called before the first Event.
func (e *ownEvents) start(client corev1.EventsGetter, component string) (stop func()) {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&corev1.EventSinkImpl{Interface: client.Events(metav1.NamespaceAll)})
	e.EventRecorder = broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: component})
	return broadcaster.Shutdown
}

// eventOn returns the object of the run's Events, which is its claim. If the cache does not show the claim, even its
// namespace may be gone, so the Events are on the Lease of the entry, and their message names the claim. The cache also
// lacks a claim that was bound before this process began, and whose volume is in use.
func (w *run) eventOn() events.Object {
	claim := w.facts.Claim
	log, names := w.log.(interface {
		LeaseOf(volume string) v1.ObjectReference
	})
	if !claim.Gone || !names {
		return eventOn(claim)
	}
	return events.Object{ObjectReference: log.LeaseOf(w.name), Key: types.UID(w.name),
		Prefix: fmt.Sprintf("Claim %s/%s, which is bound or gone, volume %s: ", claim.Namespace, claim.Name, w.name)}
}

// eventOn returns the object of a claim's Events.
func eventOn(c provision.Claim) events.Object {
	on := events.Claim(c.Namespace, c.Name, c.UID)
	on.ResourceVersion = c.ResourceVersion
	return events.Object{ObjectReference: on}
}

// eventOnSource returns the object of the Events of a claim or snapshot that volumes are created from.
func eventOnSource(of volume.SourceRef) events.Object {
	on := events.Claim(of.Namespace, of.Name, of.UID)
	if of.Kind == volume.SourceSnapshot {
		on.APIVersion, on.Kind = snapshotv1.SchemeGroupVersion.String(), string(of.Kind)
	}
	return events.Object{ObjectReference: on}
}

// announce records once which other program provisions the volume, unless that program says so itself.
func (p *Controller) announce(ctx context.Context, claim *v1.PersistentVolumeClaim, err error) {
	if !request.ReasonOf(err).Announced() {
		return
	}
	p.recorder.ReportAside(ctx, eventOn(p.claimOf(claim)), provision.ReasonLeftToPopulator, err.Error())
}

// Reason is the reason of a decision. The same word is an Event's reason, a value in the log and a label of the
// metrics. It is a string with methods: Sentence() string explains it, EventType() string is the type of its Events,
// empty for none, and Waits() bool reports whether a claim with it waits.
type Reason = provision.Reason

// Reasons returns all reasons.
func Reasons() []Reason { return provision.Reasons() }

// metrics are the metrics of provisioning: the ones of sig-storage-lib-external-provisioner, and ours.
type metrics struct {
	library             librarymetrics.Metrics
	discarded, finished prometheus.Counter
	own                 []prometheus.Collector
}

// newMetrics returns metrics that call working, log and now when they are collected.
func newMetrics(driver string, working func() int64, log func() inflight.Stats, now func() time.Time) *metrics {
	labels := prometheus.Labels{"driver_name": driver}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, ConstLabels: labels, Help: help})
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, ConstLabels: labels, Help: help}, value)
	}
	m := &metrics{
		library: librarymetrics.New("controller"),
		discarded: counter("csi_reclaimer_unfit_volumes_deleted_total",
			"Volumes deleted before they had a PV, because they did not match the request."),
		finished: counter("csi_reclaimer_unsettled_volumes_stored_total",
			"Volumes whose CreateVolume was in doubt, and which got their PV later."),
	}
	m.own = []prometheus.Collector{
		m.discarded, m.finished,
		gauge("csi_reclaimer_provisions_in_progress", "Claims whose provisioning is being worked on at this moment.",
			func() float64 { return float64(working()) }),
		gauge("csi_reclaimer_in_flight_entries",
			"Volumes in the in-flight log: CreateVolume may have been called, and the outcome is not settled.",
			func() float64 { return float64(log().Open) }),
		gauge("csi_reclaimer_in_flight_oldest_seconds", "Age of the oldest entry of the in-flight log, 0 for none.",
			func() float64 {
				if oldest := log().Oldest; !oldest.IsZero() {
					return now().Sub(oldest).Seconds()
				}
				return 0
			}),
		gauge("csi_reclaimer_in_flight_fill_ratio",
			"How much of its room the fullest Lease of the in-flight log has used; from 0.875 on it takes no new volumes.",
			func() float64 { return log().Fill }),
		gauge("csi_reclaimer_in_flight_unreadable_entries", "Entries of the in-flight log that cannot be read.",
			func() float64 { return float64(log().Unreadable) }),
		gauge("csi_reclaimer_in_flight_unreadable_leases",
			"Leases of the in-flight log that cannot be used: copies, or written by a version that is not known.",
			func() float64 { return float64(log().ReadOnly) }),
		gauge("csi_reclaimer_in_flight_elsewhere_entries",
			"Volumes in flight in logs of the driver that csi-reclaimer does not read, such as in another namespace. 0 also "+
				"where it may not list Leases in all namespaces.",
			func() float64 { return float64(log().Elsewhere) }),
	}
	return m
}

// register registers the metrics except the library's figures of deletions: package reclaim deletes the volumes and
// counts them under the same names.
func (m *metrics) register(to prometheus.Registerer) error {
	return events.Register(to, append(m.own, m.library.PersistentVolumeClaimProvisionTotal,
		m.library.PersistentVolumeClaimProvisionFailedTotal, m.library.PersistentVolumeClaimProvisionDurationSeconds)...)
}

const tracerName = "github.com/csi-reclaimer/csi-reclaimer/pkg/provision"

// beginTrace begins the trace of a try, unless no traces are wanted. end takes the outcome of the try. A wait between
// two tries has no span, because an entry can wait for days.
func (w *run) beginTrace(ctx context.Context) (_ context.Context, end func(provision.Decision, error)) {
	if w.tracer == nil {
		return ctx, func(provision.Decision, error) {}
	}
	ctx, span := w.tracer.Start(ctx, "Provision", trace.WithAttributes(
		spans.PV.String(w.name), spans.Driver.String(w.names[0]), spans.Namespace.String(w.claimKey.Namespace),
		spans.Claim.String(w.claimKey.Name), spans.ClaimUID.String(string(w.claimKey.UID)), spans.Resumed.Bool(w.resumed)))
	return ctx, func(d provision.Decision, err error) {
		reason := d.Reason
		if err != nil {
			reason = reasonOf(err)
		}
		span.SetAttributes(spans.Reason.String(string(reason)))
		if handle := cmp.Or(w.handle, w.track.record.Handle); handle != "" {
			span.SetAttributes(spans.Handle.String(spans.Text(handle)))
		}
		spans.Fail(span, err)
		span.End()
	}
}
