package docs

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/certs"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/capacity"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/statefulset"
)

// ofBoth are the metrics that each program has of its HTTP port and of Kubernetes' libraries. test/deploy compares
// them, as the whole page, with a live scrape.
const ofBoth = `
## Both

| metric | type | labels | meaning |
|---|---|---|---|
| ` + "`csi_reclaimer_missing_permissions` | gauge |  | Permissions that the program lacked at its last check. It repeats the check until it lacks none." + ` |
| ` + "`csi_reclaimer_ready` | gauge |  | 1 while `/readyz` succeeds, else 0." + ` |

The libraries of Kubernetes add their own. These are of use for dashboards and alerts:

| metric | type | labels | meaning |
|---|---|---|---|
| ` + "`go_goroutines` | gauge |  | Number of goroutines that currently exist." + ` |
| ` + "`leader_election_master_status` | gauge | `name` | With `--leader-election`: 1 while this replica holds the Lease of that name, else 0." + ` |
| ` + "`process_cpu_seconds_total` | counter |  | Total user and system CPU time spent in seconds." + ` |
| ` + "`process_resident_memory_bytes` | gauge |  | Resident memory size in bytes." + ` |
| ` + "`process_start_time_seconds` | gauge |  | When the process started, in seconds since 1970." + ` |
| ` + "`rest_client_request_duration_seconds` | histogram | `host`, `verb` | Latency of calls to the API server." + ` |
| ` + "`rest_client_requests_total` | counter | `code`, `host`, `method` | Calls to the API server, by the answer's status." + ` |
| ` + "`workqueue_adds_total` | counter | `name` | Items added to a work queue." + ` |
| ` + "`workqueue_depth` | gauge | `name` | Items that wait in a work queue." + ` |
| ` + "`workqueue_queue_duration_seconds` | histogram | `name` | How long an item waited in a work queue." + ` |
| ` + "`workqueue_retries_total` | counter | `name` | Retries of items of a work queue." + ` |
| ` + "`workqueue_work_duration_seconds` | histogram | `name` | How long the work on an item took." + ` |
`

// ofDriverCalls is the row of csi-lib-utils' metric, which is not registered without a driver, and a remark on all
// rows.
const ofDriverCalls = "| `csi_sidecar_operations_seconds` | histogram | `driver_name`, `grpc_status_code`, " +
	"`method_name` | " +
	"Each call of the driver, as in all kubernetes-csi sidecars. For a driver that took over from an in-tree plugin it " +
	"has the label `migrated` too: `true` for a volume of that plugin. |\n" +
	"\nNames without `csi_reclaimer_` are those of external-provisioner, for its dashboards.\n"

// registered collects a program's registrations as a prometheus.Registerer.
type registered struct{ collectors []prometheus.Collector }

func (r *registered) Register(c prometheus.Collector) error {
	r.collectors = append(r.collectors, c)
	return nil
}
func (r *registered) MustRegister(all ...prometheus.Collector) {
	r.collectors = append(r.collectors, all...)
}
func (r *registered) Unregister(prometheus.Collector) bool { return false }

func TestMetricReferenceIsCurrent(t *testing.T) {
	var text strings.Builder
	text.WriteString("# Metrics\n\nGenerated from what the programs register by `make docs`.\n\n" +
		"Each program serves them under `--metrics-path` of `--http-endpoint`.\n\n" +
		"- Values of the label `reason`: of [csi-reclaimer](events.md),\n  of [volume-guard](events-volume-guard.md)\n" +
		"- What to do about an alert: [respond to alerts](../how-to/respond-to-alerts.md)\n")
	metrics(t, &text, "csi-reclaimer", sidecar(t))
	text.WriteString(ofDriverCalls)
	metrics(t, &text, "volume-guard", guard(t))
	text.WriteString(ofBoth)
	CheckPage(t, "metrics.md", text.String())
}

// nobody returns a configuration that is never used, because no controller is started here.
func nobody() *rest.Config { return &rest.Config{Host: "http://127.0.0.1:1"} }

func sidecar(t *testing.T) []prometheus.Collector {
	t.Helper()
	var all registered
	_, err := reclaim.New(nobody(), "disk.csi.example.com", struct{ reclaim.Deleter }{}, reclaim.Config{Metrics: &all})
	must(t, err)
	_, err = provision.New(nobody(), "disk.csi.example.com", struct{ provision.Driver }{},
		struct{ provision.RequestBuilder }{}, provision.Config{Log: unread{}, Metrics: &all})
	must(t, err)
	_, err = leaks.New(nobody(), "disk.csi.example.com", struct{ leaks.Driver }{},
		leaks.Config{Interval: time.Hour, Metrics: &all})
	must(t, err)
	_, err = capacity.New(nobody(), "disk.csi.example.com", struct{ capacity.Driver }{}, nil,
		capacity.Config{Namespace: "csi", Metrics: &all})
	must(t, err)
	_, err = events.NewSender(events.SenderConfig{
		Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"driver_name": "disk.csi.example.com"}, &all)})
	must(t, err)
	return all.collectors
}

// unread is an in-flight log that is never read, because no controller is started here.
type unread struct{ provision.Log }

func (unread) Follow(func(volume string)) {}

func guard(t *testing.T) []prometheus.Collector {
	t.Helper()
	var all registered
	_, err := events.NewSender(events.SenderConfig{Metrics: &all})
	must(t, err)
	_, err = intree.New(nobody(), intree.Config{Settings: controllers.Settings{Metrics: &all}})
	must(t, err)
	_, err = pvc.New(nobody(), pvc.Config{Config: inuse.Config{Settings: controllers.Settings{Metrics: &all}}})
	must(t, err)
	_, err = pv.New(nobody(), inuse.Config{Settings: controllers.Settings{Metrics: &all}})
	must(t, err)
	_, err = podsafety.New(nobody(), podsafety.Config{Settings: controllers.Settings{Metrics: &all}})
	must(t, err)
	_, err = singlenode.New(nobody(), singlenode.Config{Settings: controllers.Settings{Metrics: &all}})
	must(t, err)
	_, err = statefulset.New(nobody(), statefulset.Config{Settings: controllers.Settings{Metrics: &all}})
	must(t, err)
	_, err = fencing.New(nobody(), fencing.Config{Settings: controllers.Settings{Metrics: &all}})
	must(t, err)
	_, err = certs.New(nobody(), certs.Config{Namespace: "csi", Secret: "webhooks", Webhooks: []string{"webhooks"},
		Names: []string{"guard.csi.svc"}, Metrics: &all})
	must(t, err)
	_, err = admission.NewDriverWatcher(nobody(), &all)
	must(t, err)
	return all.collectors
}

// A prometheus.Desc shows its fields only as text.
var described = regexp.MustCompile(`^Desc{fqName: "(.*?)", help: "(.*)", unit: ".*", constLabels: {(.*?)}, variableLabels: {(.*?)}}$`)

func metrics(t *testing.T, to *strings.Builder, program string, collectors []prometheus.Collector) {
	t.Helper()
	rows := map[string]string{}
	for _, c := range collectors {
		descs := make(chan *prometheus.Desc, 100)
		c.Describe(descs)
		close(descs)
		for desc := range descs {
			found := described.FindStringSubmatch(desc.String())
			if found == nil {
				t.Fatalf("nothing is to be read from %s", desc)
			}
			var labels []string
			for _, label := range strings.FieldsFunc(found[3]+","+found[4], func(r rune) bool { return r == ',' }) {
				name, _, _ := strings.Cut(label, "=")
				labels = append(labels, "`"+strings.TrimSpace(name)+"`")
			}
			rows[found[1]] = fmt.Sprintf("| `%s` | %s | %s | %s |\n", found[1], kind(c, found[1]), strings.Join(labels, ", "),
				cell(found[2]))
		}
	}
	if len(rows) < 5 {
		t.Fatalf("%s has %d metrics", program, len(rows))
	}
	fmt.Fprintf(to, "\n## %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", program)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		to.WriteString(rows[name])
	}
}

// kind returns the metric's type. Counters of our own collectors have Prometheus' ending for counters; their other
// metrics are gauges.
func kind(c prometheus.Collector, name string) string {
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	case prometheus.Gauge: // which has all that a Counter has, too
		return "gauge"
	case prometheus.Counter:
		return "counter"
	}
	if strings.HasSuffix(name, "_total") {
		return "counter"
	}
	return "gauge"
}
