package fencing

import "github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"

const (
	// Finalizer is the finalizer on NodeFences whose fence has begun and not ended.
	Finalizer = fencing.Finalizer
	// DefaultKeepReturned is the default of Config.KeepReturned.
	DefaultKeepReturned = fencing.DefaultKeepReturned
)

// Reason says why something is done about a node, or nothing. The same word is an Event's reason, the reason of a
// condition, a value in the log and a label of the metrics.
type Reason = fencing.Reason

// Reasons returns every reason there is.
func Reasons() []Reason { return fencing.Reasons() }
