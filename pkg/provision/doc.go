// Package provision provisions the volumes of claims, and leaves no volume behind without a PersistentVolume: neither
// after a crash between CreateVolume and the creation of the PV, nor after the deletion of the claim in between, nor
// after a lost answer.
//
// Its Events, metrics and annotations are those of sig-storage-lib-external-provisioner. A [RequestBuilder] decides the
// content of requests; package builder has the implementation for a real cluster and driver. Package reclaim deletes
// the volumes of PVs.
//
// # How it is used
//
// [New] returns a [Controller] and starts no work; [Controller.Run] works until its context ends. [Config] holds the
// settings, among them the in-flight log, an [inflight.Log]. Give the same log to reclaim.Config.InFlight, so that no
// PV is reclaimed while its volume is in flight.
// [NewForClient] takes a client of the caller, such as a fake clientset in a test. [Driver] is a driver with or without
// CSI.
//
// # How it works
//
// Before the first CreateVolume for a claim an entry is written to the in-flight log. It holds the request and all data
// that the PersistentVolume needs. A begun request is finished, never undone: while an entry is open, the same request
// is repeated until the driver names the volume and the volume gets its PersistentVolume, even if the claim is gone.
// The PV's reclaim policy then decides.
//
// observe.go gathers the facts about one volume name, the engine (internal/engine/provision) decides the next step, and
// execute.go executes the step and adds its result to the facts. Events offer the claims that may want a volume
// (offer.go), and the workers of one queue make every try (try.go).
//
// Stability: for embedders. Until version 1.0 it changes only with a minor release, and CHANGELOG.md lists each change.
package provision
