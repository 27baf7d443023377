// Package locks explains the locks of claims whose volumes are never attached: the pod that may use a claim, the pods
// that wait for it, and the conditions that free the lock.
//
// [ReadList] reads; [ListOf], [ExplainPod], [AddLock] and [Confirmable] are pure functions of the facts that it
// returns. Like its neighbours, the package has no rules of its own: it calls volume-guard's engine with the facts of
// live reads. The memory of a running volume-guard, such as the time since which it has seen a pod ended, cannot be
// read from outside, so each decision is the decision of a volume-guard that has just started. The package writes
// nothing to the cluster.
package locks
