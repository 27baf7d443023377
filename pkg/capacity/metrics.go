package capacity

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
)

// register registers the counts of objects, under external-provisioner's metric names. A replica that has made no
// survey, such as one that does not lead, counts nothing: it does not know which objects are wanted.
func (c *Controller) register(to prometheus.Registerer) error {
	goals := prometheus.NewDesc("csistoragecapacities_desired_goal", "Desired CSIStorageCapacity objects.", nil, nil)
	current := prometheus.NewDesc("csistoragecapacities_desired_current",
		"Desired CSIStorageCapacity objects that exist.", nil, nil)
	obsolete := prometheus.NewDesc("csistoragecapacities_obsolete", "Obsolete CSIStorageCapacity objects.", nil, nil)
	return events.Register(to, events.Gauges(func(set events.SetGauge) {
		c.tracker.mu.Lock()
		segments := c.tracker.segments
		c.tracker.mu.Unlock()
		if segments == nil {
			return
		}
		goal := c.goalOf(segments)
		exist, others := map[WorkItem]bool{}, 0
		c.objects.Each(func(o Object) {
			if goal[o.Item] {
				exist[o.Item] = true
			} else {
				others++
			}
		})
		set(goals, float64(len(goal)))
		set(current, float64(len(exist)))
		set(obsolete, float64(others))
	}, goals, current, obsolete))
}
