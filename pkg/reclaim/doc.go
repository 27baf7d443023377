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
