// Package reclaim enforces the reclaim policy of PersistentVolumes: a volume is deleted when, and only when, its PV's
// policy says so. Neither the order in which PV and claim are deleted nor a crash of any component changes that.
//
// The package works on the PVs of one CSI driver. A finalizer holds a PV until its volume is gone (KEP-2644), and live
// reads before each deletion prove that the claim is gone and that the PV's policy is still Delete.
//
// The package is a library: a driver's own controller can embed it with a [Deleter] that calls its storage system. It
// parses no flags, uses no global registry and never ends the process.
//
// # How it is used
//
// [New] returns a [Controller] without starting it, and [Controller.Run] works until its context ends. Where several
// replicas run, each calls [Controller.Watch] to follow the PVs and their history, and the leader also calls Run.
// [Config] holds all settings, among them the role, which names the other programs that work on the driver's PVs, the
// brake, and the rollback. [Controller.PVs] shares the watch cache with another controller of the same driver, so that
// one program watches the cluster's PVs once. [Controller.MissingPermissions] returns the permissions that are
// missing, and [Controller.Explain] returns the next step for a PV and its reason.
//
// # How it works
//
// internal/engine/reclaim decides. It is pure and holds facts, decisions, the memory of a process, and sessions that
// ask and learn. This package is the wiring, in the order of a PV's way through it: watch.go gives the events to the
// engine and enqueues the PVs to decide on; work.go begins a session and drives it to its end; call.go carries out the
// calls that the session asks for; cluster.go sends them to the API server. The tests, the model checker and the
// explanations therefore exercise the very code that acts.
//
// Stability: for embedders. Until version 1.0 it changes only with a minor release, and CHANGELOG.md lists each change.
package reclaim

import "github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"

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
	facts, found := r.facts(reclaim.Item{Name: name}, at)
	if !found {
		return Explanation{}, false
	}
	e := reclaim.Explain(facts, at.Now)
	return Explanation{Action: e.Decision.Action.String(), Reason: e.Decision.Reason, Text: e.Text,
		Protected: e.Protected, Waits: e.Waits}, true
}
