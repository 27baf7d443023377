package capacity

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
)

// Config holds the settings of a Controller. Only Namespace is required; the other fields default to the values of
// the stock external-provisioner.
type Config struct {
	// Namespace is the namespace of the CSIStorageCapacity objects, usually the driver's own. Required.
	Namespace string
	// Owner selects the owner of the objects, so that they are garbage-collected with it. By default they have no owner.
	Owner *OwnedBy
	// ManagedBy is the value of the label [LabelManagedBy]; the Controller manages only the driver's objects with this
	// value, and deletes those of other segments. With a Controller on each node, each needs a value of its own. Default
	// "external-provisioner", so that the Controller takes over that program's objects.
	ManagedBy string
	// ForImmediate publishes capacity for classes with immediate binding as well, although no scheduler reads it. By
	// default only classes with WaitForFirstConsumer have objects.
	ForImmediate bool
	// PollInterval is the time between two GetCapacity calls for an item that no event marks as changed; jitter shortens
	// it by up to a fifth. The default is 1 minute.
	PollInterval time.Duration
	// Workers is the number of items that are reconciled in parallel, by default 1.
	Workers int
	// RetryStart and RetryMax bound the exponential backoff after a failure, which starts at ten times RetryStart if the
	// driver refuses the call. The defaults are 1 second and 5 minutes.
	RetryStart, RetryMax time.Duration
	// Metrics registers the package's metrics. By default they are not registered.
	Metrics prometheus.Registerer
	// Clock is replaced in tests, and defaults to the real clock.
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

// Validate returns an error that names all invalid settings, or nil.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.Namespace == "", "namespace: must not be empty")
	wrong.If(c.Owner != nil && (c.Owner.Pod == "" || c.Owner.Level < 0),
		"owner: want a pod and the steps up from it, not %+v", c.Owner)
	wrong.If(c.PollInterval < 0, "poll interval: %v is negative", c.PollInterval)
	wrong.Workers(c.Workers)
	wrong.Retries(c.RetryStart, c.RetryMax)
	return wrong.Err()
}
