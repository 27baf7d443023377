// Package intree honours the reclaim policy of PVs whose volumes belong to an in-tree plugin of
// kube-controller-manager, in any order in which PV and claim are deleted (KEP-2644).
//
// From Kubernetes 1.31 on the controller manager does this by itself, with the finalizer
// kubernetes.io/pv-controller. Before, it deletes no volume whose PV is being deleted, and knows
// nothing of the finalizer. There this package puts the finalizer on, and has the volume
// deleted by way of a twin: a second PV of the same volume, which nobody deleted. Where the
// controller manager is seen to manage the finalizer the package stands down.
//
// It never calls a storage system: plugins live in kube-controller-manager alone. PVs of CSI
// drivers, also those that were migrated, are the business of pkg/reclaim.
//
// # How it works
//
// observe.go gathers facts about a PV and its twin into a [Snapshot]; decide.go and twin.go are a pure function
// from Snapshot to [Decision], one step at a time; execute.go carries the step out, adds what
// was learned to the facts and decides again. [New] starts nothing; [Controller.Run] works until its
// context ends, on the one replica that leads; the others call [Controller.Watch].
package intree
