//go:build unix

package deploy

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
