// Package podsafety decides how long a finalizer keeps a pod whose processes may run, so that a pod is gone only when
// its processes are. It is pure: it imports no client, context, logger or clock, and makes no calls.
//
// A [Facts] holds what is known about a pod, its node and the node's Lease, and [Decide] names the next step. Unknown
// is never evidence: what permits to remove the finalizer was read live, after the deletion of the pod was seen. A
// [Tracker] keeps since when one process has seen what, on its own clock. A [Session] is the work on one pod: it
// returns one [Ask] after the other and takes the replies, until there is nothing to do now. [Explain] is what a person
// is shown of it. [DecideLock] decides for which volume the attachment to another node is refused meanwhile.
//
// All state is plain and exported, so that it can be copied, encoded and compared. Nothing in it locks: a caller that
// shares a Tracker between goroutines holds a lock. The model checker drives the same functions
// (test/model/podsafety).
package podsafety
