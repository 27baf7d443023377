package reclaim

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/text"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// maxClass is how long the name of a StorageClass can be (a DNS subdomain, RFC 1123).
const maxClass = 253

// metrics are the figures of deletions. The names and the label are those of
// sig-storage-lib-external-provisioner, so that dashboards and alerts stay as they are.
type metrics struct {
	total, failed *prometheus.CounterVec
	duration      *prometheus.HistogramVec
	repeated      prometheus.Counter
	told          *prometheus.CounterVec
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
			Help: "Failures to delete a volume or, after that, its PV, each of which is tried again, by storage class.",
		}, class),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "controller_persistentvolume_delete_duration_seconds",
			Help:    "Time the driver took to delete a volume, by storage class.",
			Buckets: prometheus.DefBuckets,
		}, class),
		repeated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_repeated_deletions_total", ConstLabels: own,
			Help: "Volumes that were deleted in role companion although the provisioner beside had the time to delete them first.",
		}),
		told: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "csi_reclaimer_reports_total", ConstLabels: own,
			Help: "What was told to people as Events, by reason.",
		}, []string{"reason"}),
		missed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_admission_policy_missed_total", ConstLabels: own,
			Help: "PVs that were bound, or turned to policy Delete, without the finalizer although an admission policy for the driver has stood for a minute.",
		}),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.total, m.failed, m.duration, m.repeated, m.told, m.missed}
}

func (m *metrics) deleted(pv volume.PV, err error, took time.Duration) {
	// The annotation that names a class can hold anything, and a label that is not UTF-8 makes
	// Prometheus panic.
	class := text.Text(pv.StorageClass, maxClass)
	if err != nil {
		m.failed.WithLabelValues(class).Inc()
		return
	}
	m.total.WithLabelValues(class).Inc()
	m.duration.WithLabelValues(class).Observe(took.Seconds())
}

// unfinished counts a write that follows the volume's deletion and failed, as sig-storage-lib-external-provisioner does.
func (m *metrics) unfinished(pv volume.PV, err error) {
	if err != nil && !errors.Is(err, kube.ErrGone) && !errors.Is(err, kube.ErrChanged) {
		m.failed.WithLabelValues(text.Text(pv.StorageClass, maxClass)).Inc()
	}
}

// inventory counts PVs at the moment it is asked.
type inventory struct {
	observer *observer
	reports  *reports

	volumes, waiting, oldest, contested, braked *prometheus.Desc
}

func newInventory(o *observer, r *reports) inventory {
	driver := prometheus.Labels{"driver_name": o.rules.Driver}
	return inventory{
		observer: o, reports: r,
		volumes: prometheus.NewDesc("csi_reclaimer_pvs",
			"Claimed PVs with reclaim policy Delete, by whether a finalizer protects them.", []string{"protected"}, driver),
		waiting: prometheus.NewDesc("csi_reclaimer_waiting_pvs",
			"PVs that are to be deleted and have to wait, by reason.", []string{"reason"}, driver),
		oldest: prometheus.NewDesc("csi_reclaimer_oldest_terminating_pv_seconds",
			"Time since the deletion of the PV that is terminating for the longest time, 0 if there is none.", nil, driver),
		contested: prometheus.NewDesc("csi_reclaimer_finalizers_contested",
			"1 while another program removes the finalizer from several PVs again and again, so that it is added to none.", nil, driver),
		braked: prometheus.NewDesc("csi_reclaimer_braked",
			"1 while the brake stops all deletions, or it is not known whether it does.", nil, driver),
	}
}

func (i inventory) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{i.volumes, i.waiting, i.oldest, i.contested, i.braked} {
		descs <- desc
	}
}

func (i inventory) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	now := i.observer.clock.Now().Unix()
	var protected, unprotected int
	var oldest int64
	i.observer.pvs.Each(func(pv *volume.PV) {
		if !i.observer.owns(pv) {
			return
		}
		if pv.Terminating {
			oldest = max(oldest, now-pv.TerminatingSince)
		}
		switch {
		case pv.Policy != volume.PolicyDelete || !pv.Claimed():
		case i.observer.rules.protects(*pv):
			protected++
		default:
			unprotected++
		}
	})
	gauge(i.volumes, float64(protected), "true")
	gauge(i.volumes, float64(unprotected), "false")
	gauge(i.oldest, float64(oldest))
	// What a leader remembers whose Lease has run out counts for nothing.
	leading := i.observer.leading.Load()
	lapsed := leading && !holds(i.observer.lease)
	gauge(i.contested, one(!lapsed && i.observer.notes.inContest()))
	gauge(i.braked, one(leading && !lapsed && i.observer.brake.State() != BrakeOff))
	if lapsed {
		return
	}
	for reason, count := range i.reports.Waiting() {
		gauge(i.waiting, float64(count), string(reason))
	}
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func register(to prometheus.Registerer, collectors ...prometheus.Collector) error {
	if to == nil {
		return nil
	}
	var failed []error
	for _, c := range collectors {
		failed = append(failed, to.Register(c))
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}
