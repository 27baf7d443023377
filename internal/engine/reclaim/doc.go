// Package reclaim decides what to do about the PersistentVolumes of one CSI driver such that a volume is deleted
// when, and only when, its PV's reclaim policy says so. It is pure: it imports no client, context, logger or clock,
// holds no lock and calls nobody.
//
// [Facts] is what is known about one PV, and [Decide] names the next step. An [Engine] is all that one process has
// seen and records: the handlers of watch events change it and return which PVs to decide on. A [Session] is the work
// on one PV: it returns one [Ask] after the other, and takes the [Reply], until it ends. All state is plain and
// exported, so that it can be copied, compared and encoded; the time is an argument. Package reclaim watches, makes
// the calls of sessions and holds the lock. The model checker drives the same functions.
package reclaim
