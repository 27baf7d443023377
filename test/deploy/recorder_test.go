//go:build unix

package deploy

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

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
