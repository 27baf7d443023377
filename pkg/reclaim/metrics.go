package reclaim

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// maxClass is the maximum length of a StorageClass name (a DNS subdomain, RFC 1123).
const maxClass = 253

// metrics counts deletions. The names and the label class come from sig-storage-lib-external-provisioner, so that
// existing dashboards and alerts keep working.
type metrics struct {
	total, failed *prometheus.CounterVec
	duration      *prometheus.HistogramVec
	repeated      prometheus.Counter
	reported      *prometheus.CounterVec
	missed        prometheus.Counter
}

func newMetrics(driver string) *metrics {
	own := prometheus.Labels{"driver_name": driver}
	class := []string{"class"}
	return &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "controller_persistentvolume_delete_total",
			Help: "Volumes deleted, by storage class.",
		}, class),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "controller_persistentvolume_delete_failed_total",
			Help: "Failed deletions of a volume or, after that, of its PV, by storage class. Each is tried again.",
		}, class),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "controller_persistentvolume_delete_duration_seconds",
			Help:    "Time the driver took to delete a volume, by storage class.",
			Buckets: prometheus.DefBuckets,
		}, class),
		repeated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_repeated_deletions_total", ConstLabels: own,
			Help: "Volumes that were deleted in role companion although the provisioner beside had the time to delete them " +
				"first.",
		}),
		reported: events.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_reports_total", ConstLabels: own,
			Help: "Events reported, by reason.",
		}, Reasons()),
		missed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_admission_policy_missed_total", ConstLabels: own,
			Help: "PVs that were bound, or turned to policy Delete, without the finalizer although an admission " +
				"policy had listed the driver for a minute.",
		}),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.total, m.failed, m.duration, m.repeated, m.reported, m.missed}
}

// called counts a call that deletes a volume, and a write after that which failed, as
// sig-storage-lib-external-provisioner does.
func (m *metrics) called(ask reclaim.Ask, err error, took time.Duration) {
	deletion := ask.Action == reclaim.DeleteVolume
	if !deletion && ask.Action != reclaim.DeletePV && ask.Action != reclaim.FinalizePV {
		return
	}
	// The annotation that names a class can hold any bytes, and a label that is not UTF-8 makes Prometheus panic.
	switch class := text.Truncate(ask.PV.StorageClass, maxClass); {
	case err == nil && deletion:
		m.total.WithLabelValues(class).Inc()
		m.duration.WithLabelValues(class).Observe(took.Seconds())
	case err == nil, !deletion && (errors.Is(err, kube.ErrGone) || errors.Is(err, kube.ErrChanged)):
	default:
		m.failed.WithLabelValues(class).Inc()
	}
}

// inventory counts PVs whenever it is collected.
func (r *Controller) inventory() prometheus.Collector {
	driver := prometheus.Labels{"driver_name": r.driver}
	volumes := prometheus.NewDesc("csi_reclaimer_pvs",
		"Claimed PVs with reclaim policy Delete, by whether a finalizer protects them.", []string{"protected"}, driver)
	terminating := prometheus.NewDesc("csi_reclaimer_oldest_terminating_pv_seconds",
		"Time since the deletion of the PV that is terminating for the longest time, 0 if there is none.", nil, driver)
	contests := prometheus.NewDesc("csi_reclaimer_finalizers_contested",
		"1 while another program removes the finalizer from several PVs again and again, so csi-reclaimer adds it to no PV.",
		nil, driver)
	braked := prometheus.NewDesc("csi_reclaimer_braked",
		"1 while the brake stops all deletions, or it is not known whether it does.", nil, driver)
	return events.Gauges(func(set events.SetGauge) {
		now := r.cfg.Clock.Now().Unix()
		var protected, unprotected int
		var oldest int64
		r.pvs.Each(func(pv *volume.PV) {
			if !r.engine.Owns(pv) {
				return
			}
			if pv.Terminating {
				oldest = max(oldest, now-pv.TerminatingSince)
			}
			switch {
			case pv.Policy != volume.PolicyDelete || !pv.Claimed():
			case r.engine.Rules.Protects(*pv):
				protected++
			default:
				unprotected++
			}
		})
		set(volumes, float64(protected), "true")
		set(volumes, float64(unprotected), "false")
		set(terminating, float64(oldest))
		r.mu.Lock()
		leading, contested, brake := r.engine.Leading, r.engine.Tracker.Contested, r.engine.Breaker.State
		r.mu.Unlock()
		// The memory of a leader whose Lease has run out is not valid.
		lapsed := leading && r.mayAct() != nil
		set(contests, events.Bool(!lapsed && contested))
		set(braked, events.Bool(leading && !lapsed && brake != reclaim.BrakeOff))
	}, volumes, terminating, contests, braked)
}
