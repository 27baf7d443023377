// Package locks explains the locks of claims: which pod may use a claim whose volume nothing attaches, which pods wait
// for it, and what it takes until the lock is freed.
//
// A [Reader] reads; [ListOf], [ExplainPod], [AddLock] and [Confirmable] are pure functions of what it found. As its
// neighbours, the package has no rules of its own: it calls the engine of volume-guard with the facts of live reads.
// What a running volume-guard remembers, such as since when it has seen that a pod has ended, cannot be read from
// outside: a decision here is the one of a volume-guard that has just started. Nothing here writes.
package locks
