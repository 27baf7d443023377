package reclaim

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
)

// What decisions are made of is in internal/engine/reclaim; here is what a Config and an Explanation name of it.
type (
	// Mode says what the finalizers are for.
	Mode = reclaim.Mode
	// Scope says which PVs are protected.
	Scope = reclaim.Scope
	// Reason says why a decision is what it is. The same word is an Event's reason, a value in the log, a label of the
	// metrics and a column of the kubectl plugin. What each means is its Sentence.
	Reason = reclaim.Reason
	// Explanation says what happens to a PV next, and why.
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

// BrakeAnnotation on the brake's Lease stops all deletions for as long as it is there. The
// brake adds it, or a person to stop deletions; a person removes it.
const BrakeAnnotation = reclaim.BrakeAnnotation

// Reasons returns every reason there is.
func Reasons() []Reason { return reclaim.Reasons() }

// Explain returns what would be done next about the PV of that name, from what the watches
// have shown: it makes no call and changes nothing. found is false for a PV that does not
// exist or is not this driver's. It may be called at any time, from any goroutine.
func (r *Controller) Explain(name string) (_ Explanation, found bool) {
	at := r.moment(name)
	at.Leading = true // what the leader does, also where another replica is asked
	r.mu.Lock()
	facts, found := r.engine.Facts(reclaim.Item{Name: name}, at)
	r.mu.Unlock()
	if !found {
		return Explanation{}, false
	}
	return reclaim.Explain(facts, at.Now), true
}
