// Package intree carries out the reclaim policy of PVs whose volumes belong to an in-tree plugin of
// kube-controller-manager, in any order in which PV and claim are deleted (KEP-2644).
//
// From Kubernetes 1.31 on the controller manager does this by itself, with the finalizer
// kubernetes.io/pv-controller. Before, it deletes no volume whose PV is terminating, and knows nothing of the
// finalizer. There this package adds the finalizer, and has the volume deleted through a twin: a second PV of the
// same volume, which is not terminating. If the controller manager is observed to manage the finalizer, the package
// leaves the PVs to it.
//
// It never calls a storage system: plugins live in kube-controller-manager alone. PVs of CSI drivers, also those that
// were migrated, belong to pkg/reclaim.
//
// # How it works
//
// The decisions are in internal/engine/intree, which is pure: a Tracker observes Facts, Decide names the next step,
// and a Session asks for one call after the other. This package is the wiring: watch.go feeds the watch cache to the
// Tracker, execute.go makes the calls of a Session and reports its end. [New] starts nothing; [Controller.Run] works
// until its context ends, on the one replica that leads; the others call [Controller.Watch].
package intree
