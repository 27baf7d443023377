package podsafety

import "github.com/csi-reclaimer/csi-reclaimer/internal/objects"

const (
	// NamespaceLabel on a namespace is the mode of pod safety there: EnforceValue or WarnValue.
	NamespaceLabel = "csi-reclaimer.io/pod-safety"
	EnforceValue   = "enforce"
	WarnValue      = "warn"
)

// Pod is the record of a pod that decisions are made from.
type Pod = objects.Pod
