package reclaim

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
)

// Mode is the purpose of the finalizers; see [Config].
type Mode = reclaim.Mode

const (
	// ModeHonor keeps a PV until its volume is deleted, in any order of deletion. It is the default.
	ModeHonor Mode = reclaim.ModeHonor
	// ModeRollback behaves like provisioners before KEP-2644: it removes the finalizers, and deletes the remaining volumes
	// of released PVs.
	ModeRollback Mode = reclaim.ModeRollback
	// ModeRelease removes the finalizers and deletes nothing.
	ModeRelease Mode = reclaim.ModeRelease
)

// Scope selects the PVs that are protected; see [Config].
type Scope = reclaim.Scope

const (
	// ScopeBoundDelete protects claimed PVs with reclaim policy Delete. It is the default.
	ScopeBoundDelete Scope = reclaim.ScopeBoundDelete
	// ScopeBoundAny protects claimed PVs of every policy.
	ScopeBoundAny Scope = reclaim.ScopeBoundAny
)

// BrakeAnnotation stops all deletions while the brake's Lease carries it. The brake adds it, as a person may do to
// stop deletions; only a person removes it.
const BrakeAnnotation = reclaim.BrakeAnnotation

// Reason identifies why a decision was made. The same word serves as an Event's reason, a value in the log, a label of
// the metrics and a column of the kubectl plugin. It is a string with methods: Sentence() string explains it,
// EventType() string is the type of its Events, empty for none, and Waits() bool reports whether a PV with it waits.
type Reason = reclaim.Reason

// Reasons returns every reason.
func Reasons() []Reason { return reclaim.Reasons() }

// Explanation is the next step for a PV and its reason.
type Explanation struct {
	// Action is the name of the step, such as "DeleteVolume", or "Wait".
	Action string
	// Reason is the reason of the step.
	Reason Reason
	// Text is for people: the reason's sentence and the facts about this PV.
	Text string
	// Protected is true if a finalizer that counts in the Controller's role holds the PV.
	Protected bool
	// Waits is true if the PV is due for deletion but held back.
	Waits bool
}

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
	e := reclaim.Explain(facts, at.Now)
	return Explanation{Action: e.Decision.Action.String(), Reason: e.Decision.Reason, Text: e.Text,
		Protected: e.Protected, Waits: e.Waits}, true
}
