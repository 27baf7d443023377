package statefulset

import "github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"

const (
	// PolicyAnnotation on a StatefulSet is its retention policy where the API server drops the field
	// spec.persistentVolumeClaimRetentionPolicy.
	PolicyAnnotation = statefulset.PolicyAnnotation
	// GraceAnnotation on a StatefulSet replaces Config.Grace.
	GraceAnnotation = statefulset.GraceAnnotation
	// MarkAnnotation on a claim records that the claim had a pod of a set, and whenScaled of the set at that time.
	MarkAnnotation = statefulset.MarkAnnotation
	// WokenAnnotation on a set is the time of its last wake.
	WokenAnnotation = statefulset.WokenAnnotation
	// HoldAnnotation on a claim keeps it.
	HoldAnnotation = statefulset.HoldAnnotation

	// DefaultGrace is the default of Config.Grace.
	DefaultGrace = statefulset.DefaultGrace
)

// Reason is the reason of an action on a claim or a set, or of a wait. The same word appears as the reason of an Event,
// a value in the log, and a label of the metrics.
type Reason = statefulset.Reason

// Reasons returns every reason.
func Reasons() []Reason { return statefulset.Reasons() }
