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

// capacityOptions is what the command line says about CSIStorageCapacity objects, and the environment
// about whose they are.
type capacityOptions struct {
	enabled    bool
	immediate  bool
	poll       time.Duration
	threads    int
	ownerLevel int
	qps        float32
	burst      int
	// pod and namespace are those of this program: POD_NAME, and NAMESPACE or POD_NAMESPACE.
	pod, namespace string
}

// flags are those of the stock external-provisioner, with its names and defaults.
func (c *capacityOptions) flags(fs *pflag.FlagSet) {
	c.pod, c.namespace = os.Getenv("POD_NAME"), cmp.Or(os.Getenv("NAMESPACE"), os.Getenv("POD_NAMESPACE"))
	fs.BoolVar(&c.enabled, "enable-capacity", false,
		"Keep CSIStorageCapacity objects with what the driver has left (GetCapacity), by which the scheduler chooses nodes where the CSIDriver says storageCapacity: true. They are in the namespace that the environment variable NAMESPACE names (or POD_NAMESPACE). In role owner only.")
	fs.IntVar(&c.ownerLevel, "capacity-ownerref-level", 1,
		"Who owns the objects, so that they go with it, counted in steps from the pod that POD_NAME names: 0 the pod, 1 its StatefulSet or DaemonSet, 2 its Deployment. -1: nobody.")
	fs.DurationVar(&c.poll, "capacity-poll-interval", time.Minute,
		"How often the driver is asked what it has left. Where a volume is made or deleted it is asked at once.")
	fs.BoolVar(&c.immediate, "capacity-for-immediate-binding", false,
		"Keep objects for StorageClasses with immediate binding too. The scheduler does not look at them.")
	fs.IntVar(&c.threads, "capacity-threads", 1,
		"How many classes and places the driver is asked about at once.")
	fs.Float32Var(&c.qps, "kube-api-capacity-qps", 1,
		"Calls a second to the API server for capacity objects. 0: no limit of our own.")
	fs.IntVar(&c.burst, "kube-api-capacity-burst", 5,
		"Calls to the API server for capacity objects that may exceed --kube-api-capacity-qps at once.")
}

// publishes tells whether capacity objects are kept.
func (o *options) publishes() bool {
	return o.capacity.enabled && !o.dryRun && !o.releaseFinalizers
}

// validateCapacity returns every setting of capacity objects that is wrong.
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
	add(role != volume.RoleOwner, "--enable-capacity: in role %s the provisioner beside publishes the capacity; only role owner does", o.role)
	add(c.poll <= 0, "--capacity-poll-interval=%v: must be positive", c.poll)
	add(c.threads < 1, "--capacity-threads=%d: must be at least 1", c.threads)
	add(c.ownerLevel < -1, "--capacity-ownerref-level=%d: must be -1 (no owner) or more", c.ownerLevel)
	add(c.qps < 0, "--kube-api-capacity-qps=%v: must not be negative", c.qps)
	add(c.qps > 0 && c.burst < 1, "--kube-api-capacity-burst=%d: must be at least 1", c.burst)
	if o.publishes() {
		add(c.namespace == "", "--enable-capacity: the environment variable NAMESPACE has to name the namespace of the capacity objects")
		add(c.pod == "" && c.ownerLevel >= 0, "--enable-capacity: the environment variable POD_NAME has to name this pod, by which the objects' owner is found; --capacity-ownerref-level=-1 has nobody own them")
	}
	return wrong
}

// capacityConfig is what the command line says to the library.
func (o *options) capacityConfig() capacity.Config {
	c := capacity.Config{
		Namespace: o.capacity.namespace, ForImmediate: o.capacity.immediate, PollInterval: o.capacity.poll, Workers: o.capacity.threads,
		RetryStart: o.retryStart, RetryMax: o.retryMax,
	}
	if o.capacity.ownerLevel >= 0 {
		c.Owner = &capacity.OwnedBy{Pod: o.capacity.pod, Level: o.capacity.ownerLevel}
	}
	return c
}
