// Package reclaim decides the next step for the PersistentVolumes of one CSI driver, such that a volume is deleted
// when, and only when, its PV's reclaim policy says so. It is pure: it imports no client, context, logger or clock,
// holds no lock and makes no calls.
//
// [Facts] holds all knowledge about one PV, and [Decide] returns the next step. An [Engine] holds the observations and
// records of one process: the handlers of watch events change it and return the PVs to decide on. A [Session] is the
// work on one PV: it returns one [Ask] after the other and takes each [Reply], until it ends. All state is plain and
// exported, so that it can be copied, compared and encoded; time is an argument. pkg/reclaim watches, makes the calls
// of sessions and holds the lock, and the model checker drives the same functions.
package reclaim
