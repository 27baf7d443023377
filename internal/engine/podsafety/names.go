package podsafety

import "github.com/csi-reclaimer/csi-reclaimer/internal/objects"

const (
	// NamespaceLabel on a namespace is the mode of pod safety there: EnforceValue or WarnValue.
	NamespaceLabel = "csi-reclaimer.io/pod-safety"
	EnforceValue   = "enforce"
	WarnValue      = "warn"
	// OwnTaintValue is the value of the taint node.kubernetes.io/out-of-service that this project adds to a node that it
	// has fenced. The evidence is then the fence, not the taint.
	OwnTaintValue = "csi-reclaimer"
)

// Pod is the record of a pod that decisions are made from.
type Pod = objects.Pod
