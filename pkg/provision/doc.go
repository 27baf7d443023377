// Package provision provisions the volumes of claims, such that none is left behind without a
// PersistentVolume: not by a crash between CreateVolume and the PV's creation, not by a claim that
// is deleted meanwhile, not by an answer that was lost.
//
// It runs the ProvisionController of sig-storage-lib-external-provisioner, and is its Provisioner. A
// [RequestBuilder] says what a volume is asked to be like; package builder has the one for a real
// cluster and driver. Package reclaim deletes the volumes of PVs.
//
// # How it is used
//
// [New] returns a [Controller] and starts nothing; [Controller.Run] works until its context ends.
// [Config] holds the settings, among them the in-flight log, an [inflight.Log]. Give the same log to
// reclaim.Config.InFlight, so that no PV is reclaimed while its volume is in flight.
//
// # How it works
//
// Before the first CreateVolume for a claim an entry is written to the in-flight log. It holds the request and
// all that the PersistentVolume needs. What was begun is finished, never undone: while an entry is open, the same
// request is repeated until the driver names the volume, and the volume gets its PersistentVolume, also when the
// claim is gone. Its reclaim policy then decides.
//
// observe.go gathers what is known about one volume name, the engine (internal/engine/provision) names the next
// step, and execute.go carries it out and adds what was learned. The library (library.go, internal/library) says which
// claims want a volume; the workers of one queue (try.go) make every try.
package provision
