package capacity

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
)

// Config holds the settings of a Controller. Namespace is required, and every other field has the default of the
// stock external-provisioner.
type Config struct {
	// Namespace is the namespace of the CSIStorageCapacity objects. Required.
	Namespace string
	// Owner selects the owner of the objects, with which they are garbage-collected. Default: none.
	Owner *OwnedBy
	// ManagedBy is the value of the label [LabelManagedBy]; the Controller manages only the driver's objects with this
	// value. Default "external-provisioner", so that the Controller takes over that program's objects.
	ManagedBy string
	// ForImmediate publishes capacity for classes with immediate binding as well, although no scheduler reads it.
	// Default: only for classes with WaitForFirstConsumer.
	ForImmediate bool
	// PollInterval is the time between two GetCapacity calls for an item that no event marks as changed. Jitter shortens
	// it by up to a fifth. Default 1 minute.
	PollInterval time.Duration
	// Workers is the number of items that are reconciled in parallel. Default 1.
	Workers int
	// RetryStart and RetryMax bound the exponential backoff after a failure. After a refusal of the driver it starts at
	// ten times RetryStart. Default 1 second and 5 minutes.
	RetryStart, RetryMax time.Duration
	// Metrics registers the package's metrics. Default: they are not registered.
	Metrics prometheus.Registerer
	// Clock is replaced in tests. Default: the real clock.
	Clock clock.WithTicker
}

// OwnedBy selects the owner of the objects: a pod, or a controller above it.
type OwnedBy struct {
	// Pod is the name of a pod in the namespace of the objects. Required.
	Pod string
	// Level is the number of controller references to follow from the pod: 0 for the pod itself, 1 for its StatefulSet
	// or DaemonSet, 2 for its Deployment.
	Level int
}

func (c Config) withDefaults() Config {
	c.ManagedBy = cmp.Or(c.ManagedBy, "external-provisioner")
	c.PollInterval = cmp.Or(c.PollInterval, time.Minute)
	c.Workers = cmp.Or(c.Workers, 1)
	c.RetryStart, c.RetryMax = settings.Retries(c.RetryStart, c.RetryMax)
	c.Clock = settings.Clock(c.Clock)
	return c
}

// Validate returns an error that names all invalid settings, and nil if there are none.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.Namespace == "", "namespace: none is given for the objects")
	wrong.If(c.Owner != nil && (c.Owner.Pod == "" || c.Owner.Level < 0),
		"owner: want a pod and the steps up from it, not %+v", c.Owner)
	wrong.If(c.PollInterval < 0, "poll interval: %v is negative", c.PollInterval)
	wrong.Workers(c.Workers)
	wrong.Retries(c.RetryStart, c.RetryMax)
	return wrong.Err()
}
