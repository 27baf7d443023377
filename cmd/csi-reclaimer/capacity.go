package main

import (
	"cmp"
	"context"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/capacity"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// capacityOptions are the flags for CSIStorageCapacity objects, and the environment variables that determine their
// namespace and owner.
type capacityOptions struct {
	enabled    bool
	immediate  bool
	poll       time.Duration
	threads    int
	ownerLevel int
	qps        float32
	burst      int
	// pod and namespace identify this program's pod: POD_NAME, and NAMESPACE or POD_NAMESPACE.
	pod, namespace string
}

// flags adds the flags of the stock external-provisioner, with its names and defaults.
func (c *capacityOptions) flags(fs *pflag.FlagSet) {
	c.pod, c.namespace = os.Getenv("POD_NAME"), cmp.Or(os.Getenv("NAMESPACE"), os.Getenv("POD_NAMESPACE"))
	fs.BoolVar(&c.enabled, "enable-capacity", false,
		"Publish CSIStorageCapacity objects with the driver's free capacity (GetCapacity). The scheduler uses them if the "+
			"CSIDriver has storageCapacity: true. Their namespace comes from the environment variable NAMESPACE (or "+
			"POD_NAMESPACE). Only in role owner.")
	fs.IntVar(&c.ownerLevel, "capacity-ownerref-level", 1,
		"Owner of the objects, which are garbage-collected with it, as the number of owner references from the pod that "+
			"POD_NAME names: 0 the pod, 1 its StatefulSet or DaemonSet, 2 its Deployment. -1: no owner.")
	fs.DurationVar(&c.poll, "capacity-poll-interval", time.Minute,
		"How often the driver is asked for its capacity. After a volume is created or deleted it is asked at once.")
	fs.BoolVar(&c.immediate, "capacity-for-immediate-binding", false,
		"Publish objects for StorageClasses with immediate binding, too. The scheduler ignores them.")
	fs.IntVar(&c.threads, "capacity-threads", 1,
		"How many GetCapacity calls run concurrently.")
	fs.Float32Var(&c.qps, "kube-api-capacity-qps", 1,
		"Requests per second to the API server for capacity objects. 0: no client-side limit.")
	fs.IntVar(&c.burst, "kube-api-capacity-burst", 5,
		"Burst of requests to the API server for capacity objects above --kube-api-capacity-qps.")
}

// publishes reports whether this process publishes capacity objects, which a dry run does not.
func (o *options) publishes() bool {
	return o.capacity.enabled && !o.dryRun && !o.releaseFinalizers
}

// validateCapacity returns an error that names all invalid settings of capacity objects, or nil.
func (o *options) validateCapacity(role volume.Role) error {
	c := o.capacity
	if !c.enabled {
		return nil
	}
	var wrong settings.Wrong
	wrong.If(role != volume.RoleOwner,
		"--enable-capacity: in role %s the external-provisioner publishes the capacity; set --role=owner or leave the "+
			"flag out", o.role)
	wrong.If(c.poll <= 0, "--capacity-poll-interval=%v: must be positive", c.poll)
	wrong.If(c.threads < 1, "--capacity-threads=%d: must be at least 1", c.threads)
	wrong.If(c.ownerLevel < -1, "--capacity-ownerref-level=%d: must be -1 (no owner) or more", c.ownerLevel)
	wrong.If(c.qps < 0, "--kube-api-capacity-qps=%v: must not be negative", c.qps)
	wrong.If(c.qps > 0 && c.burst < 1, "--kube-api-capacity-burst=%d: must be at least 1", c.burst)
	if o.publishes() {
		wrong.If(c.namespace == "", "--enable-capacity: the environment variable NAMESPACE must name the namespace of the "+
			"capacity objects")
		wrong.If(c.pod == "" && c.ownerLevel >= 0,
			"--enable-capacity: the environment variable POD_NAME must name this pod, from which the owner of the objects is "+
				"found; --capacity-ownerref-level=-1 sets no owner")
	}
	return wrong.Err()
}

func (o *options) capacityConfig() capacity.Config {
	c := capacity.Config{
		Namespace: o.capacity.namespace, ForImmediate: o.capacity.immediate, PollInterval: o.capacity.poll,
		Workers:    o.capacity.threads,
		RetryStart: o.retryStart, RetryMax: o.retryMax,
	}
	if o.capacity.ownerLevel >= 0 {
		c.Owner = &capacity.OwnedBy{Pod: o.capacity.pod, Level: o.capacity.ownerLevel}
	}
	return c
}

// newCapacity returns the controller of capacity objects, or nil if it is off or the driver does not report its
// capacity, which does not affect the volumes.
func (s *sidecar) newCapacity(ctx context.Context) (*capacity.Controller, error) {
	driver := s.driver
	switch {
	case !s.publishes():
		return nil, nil
	case !driver.ReportsCapacity():
		klog.FromContext(ctx).Info("Preflight: the driver does not advertise GET_CAPACITY: no capacity is published, "+
			"despite --enable-capacity. "+
			"If its CSIDriver has storageCapacity: true, the scheduler finds no node with capacity", "driver", driver.Name())
		return nil, nil
	}
	own := rest.CopyConfig(s.acting)
	own.QPS, own.Burst = s.capacity.qps, s.capacity.burst
	cfg := s.capacityConfig()
	cfg.Metrics, cfg.ManagedBy = s.metrics, s.options.node.managedBy()
	if !driver.HasTopology() || !s.gates.Enabled(topologyGate) {
		return capacity.New(own, driver.Name(), driver, nil, cfg)
	}
	return capacity.New(own, driver.Name(), driver, s.nodes, cfg)
}
