// Package podsafety keeps a pod until its processes have ended, so that no replacement writes to its volumes beside
// them.
//
// In namespaces with the label csi-reclaimer.io/pod-safety=enforce it adds a finalizer to the pods with a claim and to
// the pods of StatefulSets, unless admission has already added it. It removes the finalizer from a terminating pod once
// evidence shows that no process of the pod runs. The engine in internal/engine/podsafety decides which facts are
// evidence, and this package watches, reads and writes for it. The claims of generic ephemeral volumes get the same
// finalizer, which stays as long as the one of their pod. The package also keeps other nodes from attaching the volumes
// of such pods until then, and sets a condition on pods of unreachable nodes.
//
// Stability: for the programs of this repository. It may change with each release.
package podsafety
