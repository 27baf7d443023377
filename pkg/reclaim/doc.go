// Package reclaim keeps the promise on a PersistentVolume's label: its volume is deleted
// when, and only when, the reclaim policy says so, whichever of PV and claim is deleted
// first and whatever crashes in between.
//
// It does so for the PVs of one CSI driver: a finalizer holds a PV until its volume is
// gone (KEP-2644), and live reads before each deletion prove that the claim is
// gone and the PV still says Delete.
//
// The package is a library: a driver's own controller can embed it, with a [Deleter] that
// calls its storage system. It parses no flags, uses no global registry and never ends the
// process.
//
// # How it is used
//
// [New] returns a [Controller] and starts nothing; [Controller.Run] works until its context ends.
// Where several replicas run, each calls [Controller.Watch], so that it knows the PVs and what
// happened to them, and the leader calls Run. [Config] holds what can be chosen: the
// role, which says what else works on the driver's PVs, stops, and the way back.
// [Controller.PVs] shows another controller of the driver what this one watches, so that the
// cluster's PVs are watched once. [Controller.MissingPermissions] returns the permissions that are
// missing; [Controller.Explain] says what happens to a PV next, and why.
//
// # How it works
//
// internal/engine/reclaim decides. It is pure: facts, decisions, what a process remembers, and
// sessions that ask and learn. Here is the wiring, in the order of a PV's way through it: watch.go
// gives the events to the engine and enqueues what follows; work.go begins a session and drives it
// to its end; call.go carries out what the session asks; cluster.go sends it to the API server.
// What is tested, model-checked and explained to people is what acts.
package reclaim
