package statefulset

import "github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"

const (
	// PolicyAnnotation on a StatefulSet is its retention policy where the API server drops the field
	// spec.persistentVolumeClaimRetentionPolicy.
	PolicyAnnotation = statefulset.PolicyAnnotation
	// GraceAnnotation on a StatefulSet is its Config.Grace.
	GraceAnnotation = statefulset.GraceAnnotation
	// MarkAnnotation on a claim says that it had a pod of a set, and what the policy of the set was then.
	MarkAnnotation = statefulset.MarkAnnotation
	// WokenAnnotation on a set is the time at which the set was woken last.
	WokenAnnotation = statefulset.WokenAnnotation
	// HoldAnnotation on a claim keeps it.
	HoldAnnotation = statefulset.HoldAnnotation

	// DefaultGrace is the default of Config.Grace.
	DefaultGrace = statefulset.DefaultGrace
)

// Reason says why something is done about a claim or a set, or nothing. The same word is an Event's reason, a value in
// the log and a label of the metrics.
type Reason = statefulset.Reason

// Reasons returns every reason there is.
func Reasons() []Reason { return statefulset.Reasons() }
