package reclaim

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
)

// The engine defines these types; a Config or an Explanation refers to them.
type (
	// Mode selects the purpose of the finalizers.
	Mode = reclaim.Mode
	// Scope selects the PVs that are protected.
	Scope = reclaim.Scope
	// Reason identifies why a decision was made, and its Sentence explains it. The same word serves as an Event's reason,
	// a value in the log, a label of the metrics and a column of the kubectl plugin.
	Reason = reclaim.Reason
	// Explanation is the next step for a PV and its reason.
	Explanation = reclaim.Explanation
)

// The modes; see [Config].
const (
	ModeHonor    = reclaim.ModeHonor
	ModeRollback = reclaim.ModeRollback
	ModeRelease  = reclaim.ModeRelease
)

// The scopes; see [Config].
const (
	ScopeBoundDelete = reclaim.ScopeBoundDelete
	ScopeBoundAny    = reclaim.ScopeBoundAny
)

// BrakeAnnotation stops all deletions while the brake's Lease carries it. The brake adds it, as a person may do to
// stop deletions; only a person removes it.
const BrakeAnnotation = reclaim.BrakeAnnotation

// Reasons returns every reason.
func Reasons() []Reason { return reclaim.Reasons() }

// Explain returns the next step for the PV with this name, from the state that the watches have shown, without any
// call or change. found is false for a PV that does not exist or is not this driver's. Explain may be called at any
// time, from any goroutine.
func (r *Controller) Explain(name string) (_ Explanation, found bool) {
	at := r.moment(name)
	at.Leading = true // explain the leader's decision on every replica
	r.mu.Lock()
	facts, found := r.engine.Facts(reclaim.Item{Name: name}, at)
	r.mu.Unlock()
	if !found {
		return Explanation{}, false
	}
	return reclaim.Explain(facts, at.Now), true
}
