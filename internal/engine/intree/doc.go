// Package intree decides how the volume of one in-tree PersistentVolume is deleted through a twin: a second PV of the
// same volume that is not terminating. The package is pure: it imports no client, context, logger or clock, and makes
// no calls.
//
// A [Facts] holds the known state of a PV and its twin, and [Decide] names the next step. A [Tracker] keeps the records
// of one process that its watch cache cannot provide: it handles watch events, returns the PVs to enqueue, and observes
// the facts. A [Session] is the work on one PV: it returns one [Ask] at a time and takes the replies until nothing is
// left to do.
//
// All state is plain and exported, so that it can be copied, encoded and compared. Nothing in the package locks, so
// callers that share a Tracker between goroutines hold a lock. Package pkg/intree makes the calls; the model checker
// drives the same functions.
package intree
