package podsafety

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
)

// Config holds the settings of a Controller. The zero value holds pods, without any of the optional actions.
type Config struct {
	// UnmountGrace is the time to wait for the unmount of the volumes of an ended pod if no fact proves it, which is an
	// estimate. 0 means the default of 30 seconds.
	UnmountGrace time.Duration
	// LeaseDuration is the time without a renewal of its Lease after which a kubelet counts as cut off. A kubelet that is
	// not cut off ends a pod without grace in the same time. It equals nodeLeaseDurationSeconds of the kubelet, and
	// node-monitor-grace-period of kube-controller-manager before Kubernetes 1.32. Default 40 seconds, which is also the
	// minimum, because a shorter time releases running pods. A test with its own Clock may set any value.
	LeaseDuration time.Duration
	// DeleteOrphans deletes held pods whose Node no longer exists, in place of the pod garbage collector of
	// kube-controller-manager. Default off.
	DeleteOrphans bool
	// VolumeLocks prevents the attachment of volumes to other nodes while a held pod is terminating on a node that is not
	// Ready. It needs the kind VolumeLock and the policy that reads it (deploy/manifests/pod-safety-*.yaml). Default off,
	// which removes all VolumeLocks, as nothing else would end them.
	VolumeLocks bool
	// Fences accepts NodeFences in force as evidence for the release of pods, and lifts the locks of volumes that a fence
	// keeps from a node. It needs the kind NodeFence (deploy/manifests/node-fencing-crd.yaml). Default off, so that no
	// NodeFence is read.
	Fences bool
	// NodeCondition sets the condition NodeUnreachable on pods, and removes it when the node is back. Default off,
	// which removes the condition from all pods.
	NodeCondition bool
	// DryRun decides and reports everything, and writes nothing.
	DryRun bool
	// Workers is the number of pods that are worked on concurrently, which also bounds the load on the API server. Default
	// 10.
	Workers int
	// RetryStart and RetryMax bound the delay after a failed call, which doubles each time. Default 1 second and 5
	// minutes.
	RetryStart, RetryMax time.Duration
	// Events records on a pod the reason why it is held. It should have its own client and rate limit. Default none.
	Events record.EventRecorder
	// Metrics is where the metrics of the package are registered. Default none.
	Metrics prometheus.Registerer
	// Watches are shared with the other controllers of a program of this module. Default none: the watches are its own.
	Watches *kube.Watches
	// Clock is the real clock unless a test replaces it.
	Clock clock.WithTicker
}

func (c Config) withDefaults() Config {
	c.LeaseDuration = cmp.Or(c.LeaseDuration, podsafety.LeaseDuration)
	c.Workers = cmp.Or(c.Workers, 10)
	c.RetryStart, c.RetryMax = settings.Retries(c.RetryStart, c.RetryMax)
	c.Events = settings.Events(c.Events, c.DryRun)
	c.Clock = settings.Clock(c.Clock)
	if c.DryRun {
		c.VolumeLocks, c.NodeCondition = false, false // both only write
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

// Validate returns an error that names every invalid setting.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.UnmountGrace < 0, "unmount grace: %v is negative", c.UnmountGrace)
	wrong.If(c.LeaseDuration < 0 || c.Clock == nil && c.LeaseDuration != 0 && c.LeaseDuration < podsafety.LeaseDuration,
		"time until a kubelet counts as cut off: %v is less than %v", c.LeaseDuration, podsafety.LeaseDuration)
	wrong.Workers(c.Workers)
	wrong.Retries(c.RetryStart, c.RetryMax)
	return wrong.Err()
}
