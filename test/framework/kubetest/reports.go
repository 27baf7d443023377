package kubetest

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/client-go/tools/record"
)

// Events returns the Events that were recorded since the last call.
func Events(from *record.FakeRecorder) (all []string) {
	for {
		select {
		case e := <-from.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// EventReasons returns the types and reasons of Events.
func EventReasons(from *record.FakeRecorder) (all []string) {
	for _, e := range Events(from) {
		all = append(all, strings.Join(strings.SplitN(e, " ", 3)[:2], " "))
	}
	return all
}

// Count returns the value of a counter.
func Count(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}
