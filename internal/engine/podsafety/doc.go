// Package podsafety decides how long a finalizer keeps a pod whose processes may run, so that a pod is gone only when
// its processes are. The package is pure: it imports no client, context, logger or clock, and makes no calls.
//
// A [Facts] holds all knowledge of a pod, its node and the node's Lease, and [Decide] names the next step. An unknown
// fact is never evidence: every fact that permits the removal of the finalizer was read live, after the deletion of the
// pod was seen. A [Tracker] holds one process's observation times on its own clock. A [Session] is the work on one pod:
// it yields one [Ask] at a time and takes the replies, until it has to wait. [Explain] describes its result to people.
// [DecideLock] decides which volumes other nodes must not attach until then, and [DecideClaim] which claims stay.
//
// All state is plain and exported, so that it can be copied, encoded and compared. The package takes no locks: a caller
// that shares a Tracker between goroutines holds a lock. The model checker in test/model/podsafety drives the same
// functions.
package podsafety
