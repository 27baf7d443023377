package podsafety

import (
	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

const (
	// Finalizer holds a pod until there is evidence that its processes have ended.
	Finalizer = objects.RunningFinalizer
	// NamespaceLabel on a namespace is the mode of pod safety there: "enforce" or "warn".
	NamespaceLabel = podsafety.NamespaceLabel
	// ConfirmAnnotation on a pod, with the pod's UID, confirms that its processes cannot run any more.
	ConfirmAnnotation = objects.ConfirmAnnotation
	// NodeUnreachable is the condition of a pod on a node that the node controller has not heard of for long.
	NodeUnreachable v1.PodConditionType = "csi-reclaimer.io/NodeUnreachable"

	// DefaultUnmountGrace is the default of Config.UnmountGrace.
	DefaultUnmountGrace = podsafety.DefaultUnmountGrace
)

// Reason says why something is done about a pod, or nothing. The same word is an Event's reason, a value in the log and
// a label of the metrics.
type Reason = podsafety.Reason

// Reasons returns every reason there is.
func Reasons() []Reason { return podsafety.Reasons() }
