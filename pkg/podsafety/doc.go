// Package podsafety keeps a pod until its processes have ended, so that no replacement writes to its volumes beside
// them.
//
// In namespaces with the label csi-reclaimer.io/pod-safety=enforce it adds a finalizer to pods with a claim, and to
// those of StatefulSets, where admission has not done so. It removes the finalizer from a pod that is terminating once
// there is evidence that no process of the pod runs. What counts as evidence is decided by internal/engine/podsafety.
// This package watches, reads and writes for it, keeps the volumes of such pods from being attached to other nodes
// meanwhile, and marks pods on nodes that are unreachable.
package podsafety
