// Package locks explains the locks of claims whose volumes are never attached: the pod that may use a claim, the pods
// that wait for it, and the conditions that free the lock.
//
// [ReadList] reads; [ListOf], [ExplainPod], [AddLock] and [Confirmable] are pure functions of the facts that it
// returns. The memory of a running volume-guard, such as the time since which it has seen a pod ended, cannot be read
// from outside, so each decision is the decision of a volume-guard that has just started.
package locks
