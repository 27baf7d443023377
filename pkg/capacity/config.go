package capacity

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
)

// Config holds the settings of a Controller. Namespace is required, the rest has defaults: those of
// the stock external-provisioner.
type Config struct {
	// Namespace is where the objects are. Required.
	Namespace string
	// Owner is the owner of the objects, with which they are garbage-collected. Default: none.
	Owner *OwnedBy
	// ManagedBy is the value of the label [LabelManagedBy]: of all objects of the driver, those with
	// it are ours. Default "external-provisioner", so that its objects are taken over.
	ManagedBy string
	// ForImmediate has objects made for classes with immediate binding too, which no scheduler asks
	// for. Default: only where binding waits for a pod.
	ForImmediate bool
	// PollInterval is how often the driver is asked what is left where no event reports a change;
	// up to a fifth less. Default 1 minute.
	PollInterval time.Duration
	// Workers is how many items are worked on at once. Default 1.
	Workers int
	// RetryStart and RetryMax bound the delay, doubled each time, after a failed try. A refusal of
	// the driver starts at ten times RetryStart. Default 1 second and 5 minutes.
	RetryStart, RetryMax time.Duration
	// Metrics is where the package's metrics are registered. Default nowhere.
	Metrics prometheus.Registerer
	// Clock is replaced in tests. Default the real one.
	Clock clock.WithTicker
}

// OwnedBy says who owns the objects: a pod, or what controls it.
type OwnedBy struct {
	// Pod is the name of a pod in the objects' namespace. Required.
	Pod string
	// Level is how many steps from the pod up, from controller to controller: 0 the pod itself, 1
	// its StatefulSet or DaemonSet, 2 its Deployment.
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

// Validate returns every setting that is wrong.
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
