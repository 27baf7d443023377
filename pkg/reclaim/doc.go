// Package reclaim keeps the promise on a PersistentVolume's label: its volume is deleted
// when, and only when, the reclaim policy says so, whichever of PV and claim is deleted
// first and whatever crashes in between.
//
// It does so for the PVs of one CSI driver: a finalizer holds a PV until its volume is
// gone (KEP-2644), and each deletion is preceded by live reads that prove that the claim is
// gone and the PV still says Delete.
//
// The package is a library: a driver's own controller can embed it, with a [Deleter] that
// calls its storage system. It parses no flags, uses no global registry and never ends the
// process.
//
// # How it works
//
// observe.go gathers facts about one PV into a [Snapshot]; decide.go is a pure function from
// Snapshot to [Decision], one step at a time; execute.go carries the step out, adds what it
// learned to the facts and asks again. The order of the steps is in [Decide] alone, so what
// is tested, model-checked and explained to people is what acts.
package reclaim
