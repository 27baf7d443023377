package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/capacity"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/nodes"
)

// newCapacity returns what keeps the capacity objects, nil where that is not to be done, or the driver
// cannot tell what it has left. That is no reason not to go on with volumes.
func newCapacity(ctx context.Context, o *options, config *rest.Config, driver *csidriver.Driver, where *nodes.Places, metrics prometheus.Registerer) (*capacity.Controller, error) {
	switch {
	case !o.publishes():
		return nil, nil //nolint:nilnil // nothing that publishes is an answer of its own here
	case !driver.TellsCapacity():
		klog.FromContext(ctx).Info("Preflight: the driver does not advertise GET_CAPACITY: no capacity is published, whatever --enable-capacity says. "+
			"Where its CSIDriver says storageCapacity: true, the scheduler finds no room anywhere", "driver", driver.Name())
		return nil, nil //nolint:nilnil // as above
	}
	own := rest.CopyConfig(config)
	own.QPS, own.Burst = o.capacity.qps, o.capacity.burst
	settings := o.capacityConfig()
	settings.Metrics, settings.ManagedBy = metrics, o.node.managedBy()
	if !driver.HasTopology() || !o.gates.Enabled(topologyGate) {
		return capacity.New(own, driver.Name(), driver, nil, settings)
	}
	return capacity.New(own, driver.Name(), driver, where, settings)
}
