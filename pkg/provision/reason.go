package provision

import "github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/provisioning"

// Reason says why a decision is what it is. The same word is an Event's reason, a value in the log and a label of
// the metrics. Its Sentence says what it means, its EventType which Events have it.
type Reason = provisioning.Reason

// Reasons returns every reason there is.
func Reasons() []Reason { return provisioning.Reasons() }
