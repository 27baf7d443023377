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

// newCapacity returns the controller of capacity objects, or nil if it is off or the driver does not report its
// capacity, which does not affect the volumes.
func newCapacity(ctx context.Context, o *options, config *rest.Config, driver *csidriver.Driver, where *nodes.Lister,
	metrics prometheus.Registerer) (*capacity.Controller, error) {
	switch {
	case !o.publishes():
		return nil, nil
	case !driver.ReportsCapacity():
		klog.FromContext(ctx).Info("Preflight: the driver does not advertise GET_CAPACITY: no capacity is published, "+
			"despite --enable-capacity. "+
			"If its CSIDriver has storageCapacity: true, the scheduler finds no node with capacity", "driver", driver.Name())
		return nil, nil
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
