package capacity

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// objectMetrics counts objects at each scrape, under external-provisioner's metric names.
type objectMetrics struct {
	*Controller
	goal, current, obsolete *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (f objectMetrics) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{f.goal, f.current, f.obsolete} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (f objectMetrics) Collect(metrics chan<- prometheus.Metric) {
	f.tracker.mu.Lock()
	segments := f.tracker.segments
	f.tracker.mu.Unlock()
	goal := f.goalOf(segments)
	current, obsolete := map[WorkItem]bool{}, 0
	f.objects.Each(func(o Object) {
		if goal[o.Item] {
			current[o.Item] = true
		} else {
			obsolete++
		}
	})
	for desc, n := range map[*prometheus.Desc]int{f.goal: len(goal), f.current: len(current), f.obsolete: obsolete} {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n))
	}
}

func (c *Controller) register(to prometheus.Registerer) error {
	if to == nil {
		return nil
	}
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	err := to.Register(objectMetrics{c,
		desc("csistoragecapacities_desired_goal", "Desired CSIStorageCapacity objects."),
		desc("csistoragecapacities_desired_current", "Desired CSIStorageCapacity objects that exist."),
		desc("csistoragecapacities_obsolete", "Obsolete CSIStorageCapacity objects."),
	})
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}
