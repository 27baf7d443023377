package podsafety

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/podhold"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/events"
)

// Config holds the settings of a Controller. The zero value is usable: it holds pods, and does nothing else.
type Config struct {
	// UnmountGrace is how long to wait for the unmount of the volumes of a pod that has ended, where nothing shows the
	// unmount: a guess. Default 30 seconds; 0 is the default.
	UnmountGrace time.Duration
	// DeleteOrphans deletes held pods whose Node does not exist any more, in place of the pod garbage collector of
	// kube-controller-manager. Default off.
	DeleteOrphans bool
	// VolumeLocks has the attachment of volumes refused to other nodes, while a held pod is terminating on a node that is
	// not Ready. It needs the kind VolumeLock and the policy that reads it (deploy/manifests/pod-safety-*.yaml).
	// Default off.
	VolumeLocks bool
	// NodeCondition sets the condition NodeUnreachable of pods, and removes it when the node is back. Default off.
	NodeCondition bool
	// DryRun decides and reports everything, and writes nothing.
	DryRun bool
	// Workers is how many pods are worked on at once, which also bounds the load on the API server. Default 10.
	Workers int
	// RetryStart and RetryMax bound the delay, doubled each time, after a call that failed. Default 1 second and 5
	// minutes.
	RetryStart, RetryMax time.Duration
	// Events records what keeps a pod, on the pod. It should have a client and a rate limit of its own. Default none.
	Events record.EventRecorder
	// Metrics is where the package's metrics are registered. Default nowhere.
	Metrics prometheus.Registerer
	// Clock is replaced in tests. Default the real one.
	Clock clock.WithTicker
}

func (c Config) withDefaults() Config {
	if c.Workers == 0 {
		c.Workers = 10
	}
	if c.RetryStart == 0 {
		c.RetryStart = time.Second
	}
	if c.RetryMax == 0 {
		c.RetryMax = 5 * time.Minute
	}
	if c.Events == nil || c.DryRun {
		c.Events = events.Discard{} // an Event is a write
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.DryRun {
		c.VolumeLocks, c.NodeCondition = false, false // they only write
	}
	return c
}

// rules returns the settings that decisions depend on.
func (c Config) rules() podhold.Rules {
	return podhold.Rules{UnmountGrace: c.UnmountGrace, CollectOrphans: c.DeleteOrphans, DryRun: c.DryRun}
}

func (c Config) retries() controller.Backoff {
	return controller.Backoff{First: c.RetryStart, Max: c.RetryMax}
}

// Validate returns every setting that is wrong.
func (c Config) Validate() error {
	var wrong []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	full := c.withDefaults()
	add(c.UnmountGrace < 0, "unmount grace: %v is negative", c.UnmountGrace)
	add(c.Workers < 0, "workers: %d is negative", c.Workers)
	add(full.RetryStart < 0 || full.RetryMax < full.RetryStart, "retries: from %v to %v is not a growing delay",
		full.RetryStart, full.RetryMax)
	return errors.Join(wrong...)
}
