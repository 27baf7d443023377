package podsafety

import (
	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

const (
	// Finalizer holds a pod until evidence shows that its processes have ended.
	Finalizer = objects.RunningFinalizer
	// NamespaceLabel on a namespace is the mode of pod safety there: "enforce" or "warn".
	NamespaceLabel = podsafety.NamespaceLabel
	// ConfirmAnnotation on a pod, with the pod's UID, confirms that its processes cannot run any more.
	ConfirmAnnotation = objects.ConfirmAnnotation
	// NodeUnreachable is the condition of a pod whose kubelet the node controller has not heard from for a long time.
	NodeUnreachable v1.PodConditionType = "csi-reclaimer.io/NodeUnreachable"

	// DefaultUnmountGrace applies if Config.UnmountGrace is zero.
	DefaultUnmountGrace = podsafety.DefaultUnmountGrace
)

// Reason is the reason of a decision about a pod. The same word is the reason of Events, a value in the log and a label
// of the metrics.
type Reason = podsafety.Reason

// Reasons returns every reason, in the order of their declaration.
func Reasons() []Reason { return podsafety.Reasons() }
