// Package intree carries out the reclaim policy of PVs whose volumes belong to an in-tree plugin of
// kube-controller-manager, in any order in which PV and claim are deleted (KEP-2644).
//
// From Kubernetes 1.31 on, kube-controller-manager does this by itself, with the finalizer kubernetes.io/pv-controller.
// An older one deletes no volume whose PV is terminating, and does not know the finalizer. There this package adds the
// finalizer, and has the volume deleted through a twin: a second PV of the same volume that is not terminating. If
// kube-controller-manager is observed to manage the finalizer, the package leaves the PVs to it.
//
// The package never calls a storage system: the plugins live only in kube-controller-manager. PVs of CSI drivers,
// including migrated ones, belong to pkg/reclaim.
//
// # How it works
//
// The decisions are in internal/engine/intree, which is pure: a Tracker observes Facts, Decide names the next step, and
// a Session asks for one call at a time. This package is the wiring: watch.go feeds the watch cache to the Tracker, and
// execute.go makes the calls of a Session and reports its end. [New] starts nothing; [Controller.Run] works until its
// context ends, on the one replica that leads, while the other replicas call [Controller.Watch].
//
// Stability: for the programs of this repository. It may change with each release.
package intree
