package podsafety

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
)

// Config holds the settings of a Controller. The zero value is usable: it holds pods, and does nothing else.
type Config struct {
	// UnmountGrace is how long to wait for the unmount of the volumes of a pod that has ended, where nothing shows the
	// unmount: a guess. Default 30 seconds; 0 is the default.
	UnmountGrace time.Duration
	// LeaseDuration is after which time without a renewal of its Lease a kubelet counts as cut off, and in which time a
	// kubelet that is not cut off ends a pod that has no grace: nodeLeaseDurationSeconds of the kubelet, and
	// node-monitor-grace-period of kube-controller-manager before Kubernetes 1.32. Default 40 seconds, and no less: a
	// shorter one releases pods that run. A test, which has a Clock of its own, may set any.
	LeaseDuration time.Duration
	// DeleteOrphans deletes held pods whose Node does not exist any more, in place of the pod garbage collector of
	// kube-controller-manager. Default off.
	DeleteOrphans bool
	// VolumeLocks has the attachment of volumes refused to other nodes, while a held pod is terminating on a node that is
	// not Ready. It needs the kind VolumeLock and the policy that reads it (deploy/manifests/pod-safety-*.yaml).
	// Default off.
	VolumeLocks bool
	// Fences has pods released by the evidence of NodeFences that are in force, and volumes that a fence keeps a node from
	// attached to others. It needs the kind NodeFence (deploy/manifests/node-fencing-crd.yaml). Default off: no NodeFence
	// is read.
	Fences bool
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
	c.LeaseDuration = cmp.Or(c.LeaseDuration, podsafety.LeaseDuration)
	c.Workers = cmp.Or(c.Workers, 10)
	c.RetryStart, c.RetryMax = settings.Retries(c.RetryStart, c.RetryMax)
	c.Events = settings.Events(c.Events, c.DryRun)
	c.Clock = settings.Clock(c.Clock)
	if c.DryRun {
		c.VolumeLocks, c.NodeCondition = false, false // they only write
	}
	return c
}

// rules returns the settings that decisions depend on.
func (c Config) rules() podsafety.Rules {
	return podsafety.Rules{UnmountGrace: c.UnmountGrace, LeaseDuration: c.LeaseDuration, CollectOrphans: c.DeleteOrphans,
		DryRun: c.DryRun}
}

func (c Config) retries() controller.Backoff {
	return controller.Backoff{First: c.RetryStart, Max: c.RetryMax}
}

// Validate returns every setting that is wrong.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.UnmountGrace < 0, "unmount grace: %v is negative", c.UnmountGrace)
	wrong.If(c.LeaseDuration < 0 || c.Clock == nil && c.LeaseDuration != 0 && c.LeaseDuration < podsafety.LeaseDuration,
		"time until a kubelet counts as cut off: %v is less than %v", c.LeaseDuration, podsafety.LeaseDuration)
	wrong.Workers(c.Workers)
	wrong.Retries(c.RetryStart, c.RetryMax)
	return wrong.Err()
}
