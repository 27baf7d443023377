// Package intree decides how the volume of one in-tree PersistentVolume is deleted through a twin: a second PV of
// the same volume, which is not terminating. It is pure: it imports no client, context, logger or clock, and makes
// no calls.
//
// A [Facts] holds what is known about a PV and its twin, and [Decide] names the next step. A [Tracker] keeps what one
// process records besides its watch cache: it takes the events of the watch, returns which PVs to enqueue, and
// observes the facts. A [Session] is the work on one PV: it returns one [Ask] after the other and takes the replies,
// until there is nothing to do now.
//
// All state is plain and exported, so that it can be copied, encoded and compared. Nothing in it locks: a caller that
// shares a Tracker between goroutines holds a lock. Package pkg/intree makes the calls; the model checker drives
// the same functions.
package intree
