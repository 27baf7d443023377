//go:build unix

package deploy

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

var record = flag.String("record", "", "record those runs of testdata/recorded.yaml again whose names match this")

const (
	recordedFile = "testdata/recorded.yaml"
	// longest is for how many minutes a recording goes on if an alert of half a day is to fire, or none at all.
	longest = 14 * 60
	// before is the number of scrapes before the first event.
	before = 3
)

// recordedRun is a run of both programs with a real control plane and a driver.
type recordedRun struct {
	name string
	// scrapes is the number of scrapes. Default: 40.
	scrapes int
	// goesOn is for how many minutes the recording goes on as it ended. Default 90.
	goesOn int
	// args are further ones of csi-reclaimer, and driver is how the driver starts, without its name.
	args   []string
	driver mockdriver.Options
	// happens makes the faults of the run.
	happens func(*testing.T, live)
	// fire are the alerts that fire in the run. No other does.
	fire []string
}

func (r recordedRun) minutes() int { return max(r.scrapes, 40) }

// record makes the run.
func (r recordedRun) record(t *testing.T, driver string) []series {
	ctx := patiently(t)
	forgetGuard(t)
	r.driver.Name = driver
	programs := startBoth(t, r.driver, r.args...)
	must(t, programs.car.WaitReady(ctx))
	must(t, programs.keeper.WaitReady(ctx))
	into, whole := newRecorder(t), r.minutes()
	began, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		next := time.NewTicker(scrapeEvery)
		defer next.Stop()
		for into.scrapes < whole && ctx.Err() == nil {
			into.scrape(ctx, map[string]*program.Program{"csi-reclaimer": programs.car, guard: programs.keeper})
			if into.scrapes == before {
				close(began)
			}
			<-next.C
		}
	}()
	select {
	case <-began:
	case <-ended:
	}
	r.happens(t, programs)
	select {
	case <-ended:
		t.Error("the faults took longer than the recording")
	default:
		<-ended
	}
	must(t, programs.driver.ClearFaults(ctx)) // so that all of it goes
	must(t, client.CoreV1().PersistentVolumeClaims(programs.maker.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}))
	return into.series()
}

// recordings returns the series of each run, by its name.
func recordings(t *testing.T) map[string][]series {
	t.Helper()
	all := map[string][]series{}
	text, err := os.ReadFile(recordedFile)
	must(t, err)
	must(t, yaml.UnmarshalStrict(text, &all))
	if *record == "" {
		return all
	}
	again, err := regexp.Compile(*record)
	must(t, err)
	buildBoth(t)
	kept := map[string][]series{}
	for i, run := range recordedRuns() {
		kept[run.name] = all[run.name]
		if again.MatchString(run.name) {
			t.Run("record "+run.name, func(t *testing.T) {
				kept[run.name] = run.record(t, fmt.Sprintf("recorded-%d.csi-reclaimer.io", i))
			})
		}
	}
	text, err = yaml.Marshal(kept)
	must(t, err)
	must(t, os.WriteFile(recordedFile,
		append([]byte("# Written by go test ./test/deploy -run TestAlertsOnRecordedRuns -record .\n"), text...), 0o644))
	return kept
}

// evaluate has promtool evaluate rules on the recorded runs. It returns promtool's complaints: alerts that fire
// unexpectedly, or do not fire.
func evaluate(t *testing.T, rules string, recorded map[string][]series) (complaints string, err error) {
	t.Helper()
	type fired struct {
		Labels string `json:"labels"`
		Value  int    `json:"value"`
	}
	var tests []any
	for _, run := range recordedRuns() {
		var input []series
		goesOn := max(run.goesOn, 90)
		for _, s := range recorded[run.name] {
			input = append(input, series{s.Series, s.lasting(goesOn)})
		}
		var want []fired
		for _, name := range run.fire {
			want = append(want, fired{fmt.Sprintf("{alertname=%q}", name), 1})
		}
		tests = append(tests, map[string]any{"name": run.name, "interval": "1m", "input_series": input,
			"promql_expr_test": []any{map[string]any{
				"expr":      `max by (alertname) (max_over_time(ALERTS{alertstate="firing"}[1d]))`,
				"eval_time": fmt.Sprintf("%dm", run.minutes()+goesOn), "exp_samples": want,
			}}})
	}
	text, err := yaml.Marshal(map[string]any{"rule_files": []string{rules}, "evaluation_interval": "1m", "tests": tests})
	must(t, err)
	file := filepath.Join(t.TempDir(), "recorded.yaml")
	must(t, os.WriteFile(file, text, 0o600))
	return promtool(t, "test", "rules", file)
}

// TestAlertsOnRecordedRuns expects exactly the alerts of each run to fire.
func TestAlertsOnRecordedRuns(t *testing.T) {
	if out, err := evaluate(t, inDeploy(t, "alerts", rulesFile), recordings(t)); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestEachAlertIsRecorded expects each alert in a recorded run, or in the list of exceptions with a reason.
func TestEachAlertIsRecorded(t *testing.T) {
	unknown := map[string]bool{}
	for _, run := range recordedRuns() {
		for _, name := range run.fire {
			unknown[name] = true
		}
	}
	for name := range notRecorded {
		if unknown[name] {
			t.Errorf("%s is recorded, and has a reason why it is not", name)
		}
		unknown[name] = true
	}
	for _, a := range alerts(t) {
		if !unknown[a.Alert] {
			t.Errorf("%s fires in no recorded run, and notRecorded does not say why", a.Alert)
		}
		delete(unknown, a.Alert)
	}
	for name := range unknown {
		t.Errorf("%s is recorded or has a reason, and is no alert", name)
	}
}

// A recording has the programs' values of the metrics that alerts read. The programs are scraped once in each
// scrapeEvery, and the recording counts each scrape as a minute, because alerts wait for minutes and hours. So ages in
// seconds are multiplied by scale, and points in time count from the beginning of the recording, where promtool's clock
// begins.
const (
	scrapeEvery = time.Second
	scale       = float64(time.Minute / scrapeEvery)
)

// series is one time series, as promtool test rules reads it.
type series struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

// recorder collects the series of a run.
type recorder struct {
	began time.Time
	// read are the metrics that alerts read.
	read    map[string]bool
	scrapes int
	// values has the value of each scrape, by series; noValue where the series was not served.
	values map[string][]string
}

const noValue = "_"

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	r := &recorder{began: time.Now(), read: map[string]bool{}, values: map[string][]string{}}
	for _, a := range alerts(t) {
		names, _ := named(a.Expr)
		for _, name := range names {
			r.read[name] = true
		}
	}
	return r
}

// sampleLine is a line of a scrape: the metric, its labels, the value.
var sampleLine = regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$`)

// scrape adds the programs' current values. A program that does not answer is down.
func (r *recorder) scrape(ctx context.Context, programs map[string]*program.Program) {
	for name, p := range programs {
		target := fmt.Sprintf(`container=%q,namespace="csi",pod="%s-0"`, name, name)
		text, err := p.Get(ctx, "/metrics")
		if err != nil {
			r.add("up{"+target+"}", "0")
			continue
		}
		r.add("up{"+target+"}", "1")
		for _, found := range sampleLine.FindAllStringSubmatch(text, -1) {
			metric, labels := found[1], target
			if found[2] != "" {
				labels = found[2] + "," + target
			}
			if r.read[metric] {
				r.add(metric+"{"+labels+"}", r.scaled(metric, found[3]))
			}
		}
	}
	r.scrapes++
}

func (r *recorder) add(name, value string) {
	for len(r.values[name]) < r.scrapes {
		r.values[name] = append(r.values[name], noValue)
	}
	r.values[name] = append(r.values[name], value)
}

// isAge reports whether a metric is a time since something, in seconds.
func isAge(metric string) bool {
	return strings.Contains(metric, "_oldest_") && strings.HasSuffix(metric, "_seconds")
}

// scaled returns a value in the time of the recording. 0 seconds means none.
func (r *recorder) scaled(metric, value string) string {
	number, err := strconv.ParseFloat(value, 64)
	switch {
	case err != nil || number == 0:
		return value
	case strings.HasSuffix(metric, "_timestamp_seconds"):
		since := number - float64(r.began.Unix())
		if since < 24*time.Hour.Seconds() { // within the run, not the end of a certificate
			since *= scale
		}
		number = max(1, since)
	case isAge(metric):
		number *= scale
	default:
		return value
	}
	return strconv.FormatFloat(number, 'f', 0, 64)
}

// series returns the recording. A repeated value is written once, with its count.
func (r *recorder) series() (all []series) {
	for _, name := range slices.Sorted(maps.Keys(r.values)) {
		values := slices.Clone(r.values[name])
		for len(values) < r.scrapes {
			values = append(values, noValue)
		}
		var text []string
		for at, end := 0, 0; at < len(values); at = end {
			for end < len(values) && values[end] == values[at] {
				end++
			}
			switch n := end - at; {
			case n == 1:
				text = append(text, values[at])
			case values[at] == noValue:
				text = append(text, fmt.Sprintf("_x%d", n))
			default:
				text = append(text, fmt.Sprintf("%sx%d", values[at], n-1)) // x counts the values after the first
			}
		}
		all = append(all, series{name, strings.Join(text, " ")})
	}
	return all
}

// lasting returns the values of a series that goes on for some minutes as the recording ended: nothing changes, and
// ages grow.
func (s series) lasting(minutes int) string {
	metric, _, _ := strings.Cut(s.Series, "{")
	fields := strings.Fields(s.Values)
	last, _, _ := strings.Cut(fields[len(fields)-1], "x")
	switch {
	case last == noValue:
		return s.Values
	case isAge(metric) && last != "0":
		return fmt.Sprintf("%s %s+60x%d", s.Values, last, minutes)
	}
	return fmt.Sprintf("%s %sx%d", s.Values, last, minutes)
}

func TestRecorderWritesSeries(t *testing.T) {
	r := recorder{began: time.Unix(1000, 0), values: map[string][]string{}}
	for _, value := range []string{"1", "1", "0", "1"} {
		r.add("a", value)
		r.scrapes++
	}
	r.add("b", "7")
	r.scrapes++
	if got, want := r.series(), []series{{"a", "1x1 0 1 _"}, {"b", "_x4 7"}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for metric, c := range map[string][2]string{
		"csi_reclaimer_waiting_pvs":                   {"2", "2"},
		"csi_reclaimer_oldest_terminating_pv_seconds": {"2.5", "150"},
		"last_timestamp_seconds":                      {"1002", "120"},
		"none_timestamp_seconds":                      {"0", "0"},
		"earlier_timestamp_seconds":                   {"900", "1"},
		"expiration_timestamp_seconds":                {"1.73e+06", "1729000"},
	} {
		if got := r.scaled(metric, c[0]); got != c[1] {
			t.Errorf("%s %s is recorded as %s, want %s", metric, c[0], got, c[1])
		}
	}
	for s, want := range map[series]string{
		{"csi_reclaimer_waiting_pvs{}", "0x3 1"}:                  "0x3 1 1x9",
		{"csi_reclaimer_oldest_terminating_pv_seconds{}", "0 60"}: "0 60 60+60x9",
		{"csi_reclaimer_oldest_terminating_pv_seconds{}", "60 0"}: "60 0 0x9",
		{"csi_reclaimer_waiting_pvs{b=\"a\"}", "1x3 _x2"}:         "1x3 _x2",
	} {
		if got := s.lasting(9); got != want {
			t.Errorf("%v goes on as %s, want %s", s, got, want)
		}
	}
}
