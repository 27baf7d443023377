package fencing

import "github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"

const (
	// Finalizer is the finalizer of every NodeFence whose fence has begun and not ended.
	Finalizer = fencing.Finalizer
	// DefaultKeepReturned applies if Config.KeepReturned is zero.
	DefaultKeepReturned = fencing.DefaultKeepReturned
)

// Reason is the reason of a decision about a node. The same word is the reason of Events and conditions, a value in the
// log and a label of the metrics.
type Reason = fencing.Reason

// Reasons returns every reason, in the order of their declaration.
func Reasons() []Reason { return fencing.Reasons() }
