package intree

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestInvalidSettings(t *testing.T) {
	t.Parallel()
	somewhere := &rest.Config{Host: "http://127.0.0.1:1"}
	taken := prometheus.NewRegistry()
	if _, err := New(somewhere, Config{controllers.Settings{Metrics: taken}}); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		config *rest.Config
		cfg    Config
		want   string
	}{
		"no cluster":         {nil, Config{}, "nil rest.Config"},
		"negative workers":   {somewhere, Config{controllers.Settings{Workers: -1}}, "workers"},
		"a negative delay":   {somewhere, Config{controllers.Settings{RetryStart: -1}}, "retries"},
		"a shrinking delay":  {somewhere, Config{controllers.Settings{RetryStart: time.Hour, RetryMax: 1}}, "retries"},
		"a bad address":      {&rest.Config{Host: "http://%"}, Config{}, "client"},
		"metrics registered": {somewhere, Config{controllers.Settings{Metrics: taken}}, "register metrics"},
	}
	for name, c := range cases {
		if _, err := New(c.config, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error about %q", name, err, c.want)
		}
	}
}

func TestRunEnds(t *testing.T) {
	t.Parallel()
	listed := make(chan struct{}, 100)
	cases := map[string]http.HandlerFunc{
		"while the first list fails": func(w http.ResponseWriter, _ *http.Request) {
			listed <- struct{}{}
			http.Error(w, "not now", http.StatusServiceUnavailable)
		},
		"while it works": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") == "" {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"kind":"PersistentVolumeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`))
				return
			}
			listed <- struct{}{}
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	}
	for name, answer := range cases {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(answer)
			defer server.Close()
			c := must.Get(New(&rest.Config{Host: server.URL}, Config{}))(t)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- c.Run(ctx) }()
			<-listed
			if name == "while it works" {
				if err := c.WaitSynced(ctx); err != nil || !c.Synced() {
					t.Errorf("synced: %v, %v", c.Synced(), err)
				}
				c.Stop()
				if err := <-done; err != nil {
					t.Errorf("Run after Stop = %v", err)
				}
				cancel()
				return
			}
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) || c.Synced() {
				t.Errorf("Run = %v, synced %v", err, c.Synced())
			}
		})
	}
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	name := func(r permission.Permission) string { return r.Verb + " " + r.Resource }
	names := func(c Config) (all []string) {
		for _, right := range c.permissions() {
			all = append(all, name(right))
			if right.Without == "" {
				t.Errorf("%s: nothing is said of what does not work without", name(right))
			}
		}
		return all
	}
	reads := []string{"list persistentvolumes", "watch persistentvolumes", "get persistentvolumes",
		"get persistentvolumeclaims", "list volumeattachments"}
	writes := []string{"patch persistentvolumes", "create persistentvolumes", "delete persistentvolumes"}
	events := []string{"create events", "patch events"}
	for what, c := range map[string]struct {
		cfg  Config
		want []string
	}{
		"nothing set": {Config{}, slices.Concat(reads, writes)},
		"with Events": {Config{controllers.Settings{Events: record.NewFakeRecorder(1)}},
			slices.Concat(reads, writes, events)},
		"a dry run": {Config{controllers.Settings{Events: record.NewFakeRecorder(1), DryRun: true}}, reads},
	} {
		if got := names(c.cfg); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// figures returns the metrics of a registry.
func figures(t *testing.T, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families := must.Get(from.Gather())(t)
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := strings.TrimPrefix(family.GetName(), "csi_reclaimer_intree_")
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			all[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return all
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	registry := prometheus.NewRegistry()
	recorder := record.NewFakeRecorder(100)
	w.startWith(Config{controllers.Settings{Metrics: registry, Events: recorder}})
	for _, name := range []string{"used", "held", "done"} {
		w.provision(name)
	}
	pvFirst(w, "done")
	if said := nextEvent(recorder); !strings.HasPrefix(said, "Normal TerminatingBound") {
		t.Errorf("reported %q of a PV whose claim was deleted after a while", said)
	}
	w.edit("held", hold)
	w.deletePVBy("held")
	at := w.clock.Now()
	delete(w.claims, "claim-held")
	w.settle()
	got := figures(t, registry)
	for name, want := range map[string]float64{
		"volumes_deleted_total": 1, "pvs true": 2, "pvs false": 0, "twins": 0, "waiting_pvs Held": 1, "managed_by_other": 0,
		"reports_total Held":            1,
		"oldest_terminating_pv_seconds": w.clock.Now().Sub(at).Seconds(),
	} {
		if got[name] != want {
			t.Errorf("%s = %v, want %v", name, got[name], want)
		}
	}
	if said := nextEvent(recorder); !strings.HasPrefix(said, "Normal Held") || !strings.Contains(said, "a look first") ||
		len(recorder.Events) > 0 {
		t.Errorf("reported %q, and %d more", said, len(recorder.Events))
	}
	w.edit("used", guard(false, ""))
	w.edit("used", guard(true, kcm))
	w.settleOnce()
	if got = figures(t, registry); got["managed_by_other"] != 1 || got["waiting_pvs Held"] != 0 ||
		got["waiting_pvs HoldNotObeyed"] != 1 {
		t.Errorf("with another manager: %v", got)
	}
}

func TestOneEventPerChange(t *testing.T) {
	w := newWorld(t)
	recorder := record.NewFakeRecorder(100)
	w.startWith(Config{controllers.Settings{Events: recorder}})
	w.provision("a")
	w.stuck["/disks/a"] = "device or resource busy"
	w.deleteBoth()
	w.settle() // eight tries
	if n := count(w.diary, "create "); n < 5 {
		t.Errorf("%d tries", n)
	}
	if said := nextEvent(recorder); !strings.HasPrefix(said, "Warning VolumeFailedDelete") ||
		!strings.Contains(said, "device or resource busy") || len(recorder.Events) > 0 {
		t.Errorf("reported %q, and %d more", said, len(recorder.Events))
	}
	delete(w.stuck, "/disks/a")
	w.passUntil(t, "plugin")
	w.edit("a", setPolicy(v1.PersistentVolumeReclaimRetain))
	w.settle()
	for range 2 { // on the PV and on the claim
		if said := nextEvent(recorder); !strings.HasPrefix(said, "Warning TooLateToKeep") {
			t.Errorf("reported %q", said)
		}
	}
}

func TestTerminatingBoundEventAfterAMinute(t *testing.T) {
	w := newWorld(t)
	registry := prometheus.NewRegistry()
	recorder := record.NewFakeRecorder(100)
	w.startWith(Config{controllers.Settings{Metrics: registry, Events: recorder}})
	w.provision("a")
	w.settle()
	w.deletePVBy("a")
	w.settleOnce()
	if said := nextEvent(recorder); said != "" || figures(t, registry)["waiting_pvs TerminatingBound"] != 1 {
		t.Errorf("at once: reported %q, metrics %v", said, figures(t, registry))
	}
	w.clock.Step(time.Minute)
	for range 2 {
		w.c.reconcile(t.Context(), "a")
	}
	if said := nextEvent(recorder); !strings.HasPrefix(said, "Normal TerminatingBound") ||
		!strings.Contains(said, "explain pv/a") || len(recorder.Events) > 0 {
		t.Errorf("after a minute: reported %q, and %d more", said, len(recorder.Events))
	}
}

// nextEvent returns the next reported Event, empty for none.
func nextEvent(recorder *record.FakeRecorder) string {
	select {
	case said := <-recorder.Events:
		return said
	default:
		return ""
	}
}

// passUntil runs the world, with time passing, until its diary has an entry with the prefix.
func (w *world) passUntil(t *testing.T, entry string) {
	t.Helper()
	for range 1000 {
		if count(w.diary, entry) > 0 {
			return
		}
		if !w.delivered() && !w.worked() && !w.controllers() {
			w.pass(2 * time.Hour)
		}
	}
	t.Fatalf("it never comes to %q", entry)
}

func TestReasonOfFailedCalls(t *testing.T) {
	for what, c := range map[string]struct {
		call string
		err  error
		want intree.Reason
	}{
		"a claim that cannot be read":  {"read claim", errors.New("forbidden"), intree.ReasonAPIReadFailed},
		"a PV that cannot be patched":  {"patch a", errors.New("forbidden"), intree.ReasonAPIWriteFailed},
		"a twin that cannot be made":   {"create ", errors.New("forbidden"), intree.ReasonAPIWriteFailed},
		"a change comes in between":    {"create ", kube.ErrChanged, ""},
		"a twin that goes in between":  {"turn ", kube.ErrGone, ""},
		"a twin's name that is behind": {"turn ", kube.ErrChanged, ""},
	} {
		w := newWorld(t)
		recorder := record.NewFakeRecorder(1000)
		w.startWith(Config{controllers.Settings{Events: recorder}})
		w.before = func(call string) error {
			if strings.HasPrefix(call, c.call) {
				return c.err
			}
			return nil
		}
		w.provision("a")
		pvFirst(w, "a")
		var got []intree.Reason
		for said := nextEvent(recorder); said != ""; said = nextEvent(recorder) {
			got = append(got, intree.Reason(strings.Fields(said)[1]))
		}
		troubled := slices.Contains(got, intree.ReasonAPIReadFailed) || slices.Contains(got, intree.ReasonAPIWriteFailed)
		if c.want == "" && troubled || c.want != "" && !slices.Contains(got, c.want) {
			t.Errorf("%s: reported %q, want %q", what, got, c.want)
		}
	}
}

// Live reads that expire every time lead to a retry, never to a deletion.
func TestExpiredReadsAreRetried(t *testing.T) {
	w := newWorld(t)
	w.before = func(string) error { w.clock.Step(6 * time.Second); return nil }
	w.provision("a")
	pvFirst(w, "a")
	if count(w.diary, "create ") > 0 || w.c.recorder.Waiting()[intree.ReasonAPIReadFailed] != 1 {
		t.Errorf("reported %v:\n%s", w.c.recorder.Waiting(), strings.Join(w.diary, "\n"))
	}
	w.expectKept("a")
	facts, _ := w.c.observer.observe("a", w.clock.Now())
	session := intree.Begin(facts, w.c.cfg.rules(), w.clock.Now())
	if err := w.c.carryOut(t.Context(), &session); err == nil || !strings.Contains(err.Error(), `PV "a": reads take`) {
		t.Errorf("the error is %v", err)
	}
}

func TestCSIPVsAreNotRecorded(t *testing.T) {
	t.Parallel()
	csi := original()
	csi.Spec.HostPath, csi.Spec.CSI = nil, &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "v"}
	if _, keep, err := recordPV(csi, false); keep || err != nil {
		t.Errorf("a CSI PV is kept: %v, %v", keep, err)
	}
	if _, _, err := recordPV(&v1.Pod{}, false); err == nil {
		t.Error("a pod is taken for a PV")
	}
}
