package main

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

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

// validateCapacity returns an error for each invalid setting of capacity objects.
func (o *options) validateCapacity(role volume.Role) []error {
	c := o.capacity
	if !c.enabled {
		return nil
	}
	var wrong []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	add(role != volume.RoleOwner,
		"--enable-capacity: in role %s the external-provisioner publishes the capacity; set --role=owner or leave the "+
			"flag out", o.role)
	add(c.poll <= 0, "--capacity-poll-interval=%v: must be positive", c.poll)
	add(c.threads < 1, "--capacity-threads=%d: must be at least 1", c.threads)
	add(c.ownerLevel < -1, "--capacity-ownerref-level=%d: must be -1 (no owner) or more", c.ownerLevel)
	add(c.qps < 0, "--kube-api-capacity-qps=%v: must not be negative", c.qps)
	add(c.qps > 0 && c.burst < 1, "--kube-api-capacity-burst=%d: must be at least 1", c.burst)
	if o.publishes() {
		add(c.namespace == "", "--enable-capacity: the environment variable NAMESPACE must name the namespace of the "+
			"capacity objects")
		add(c.pod == "" && c.ownerLevel >= 0,
			"--enable-capacity: the environment variable POD_NAME must name this pod, from which the owner of the objects is "+
				"found; --capacity-ownerref-level=-1 sets no owner")
	}
	return wrong
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
