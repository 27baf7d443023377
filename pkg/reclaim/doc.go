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
// # How it is used
//
// [New] makes a [Reclaimer] and starts nothing; [Reclaimer.Run] works until its context ends.
// Where several replicas run, each calls [Reclaimer.Watch], so that it knows the PVs and what
// happened to them, and the one that leads calls Run. [Config] holds what can be chosen: the
// [Role], which says what else works on the driver's PVs, stops, and the way back.
// [Reclaimer.PVs] shows another controller of the driver what is watched, so that the cluster's PVs
// are not watched twice. [Reclaimer.Missing] tells which rights are lacking; [Reclaimer.Explain] tells what happens to
// a PV next, and why.
//
// # How it works
//
// observe.go gathers facts about one PV into a [Snapshot], with what notes.go remembers of its
// past; decide.go is a pure function from Snapshot to [Decision], one step at a time;
// execute.go has the step carried out, adds what was learned to the facts and decides again;
// call.go is what steps ask and what answers mean. The order of the steps is in [Decide]
// alone, so what is tested, model-checked and explained to people is what acts.
package reclaim
