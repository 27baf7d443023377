package podsafety

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestInventory(t *testing.T) {
	registry := prometheus.NewRegistry()
	w := newWorld(t, Config{Settings: controllers.Settings{Metrics: registry}})
	w.show(held())
	w.show(held(terminating, func(o *v1.Pod) {
		o.Name, o.UID = "old", "2"
		then := metav1.NewTime(w.clock.Now().Add(-time.Hour))
		o.DeletionTimestamp = &then
	}))
	families := must.Get(registry.Gather())(t)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if g := m.GetGauge(); g != nil {
				got[f.GetName()] += g.GetValue()
			}
		}
	}
	if got["csi_reclaimer_pod_safety_held_pods"] != 2 ||
		got["csi_reclaimer_pod_safety_oldest_waiting_pod_seconds"] != 3600 {
		t.Errorf("gauges %v", got)
	}
}

func TestConfig(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Error(err)
	}
	faked := controllers.Settings{Clock: testclock.NewFakeClock(time.Now())}
	for _, right := range []Config{{LeaseDuration: time.Minute},
		{LeaseDuration: time.Second, Settings: faked}} {
		if err := right.Validate(); err != nil {
			t.Error(err)
		}
	}
	for _, wrong := range []Config{{UnmountGrace: -1}, {Settings: controllers.Settings{Workers: -1}},
		{LeaseDuration: 39 * time.Second}, {LeaseDuration: -1, Settings: faked}} {
		if wrong.Validate() == nil {
			t.Errorf("%+v is taken", wrong)
		}
	}
	if _, err := New(nil, Config{}); err == nil {
		t.Error("no cluster is taken")
	}
}
