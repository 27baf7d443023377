// Package inuse has the common part of the protection of claims and PVs against a deletion while they are in use: an
// object gets a finalizer, and a terminating object loses it once it is not in use, as the packages pvc and pv define
// it.
//
// Kubernetes has built-in controllers for both, and most clusters run them. Beside a built-in controller this package
// writes nothing: it waits for a need that no other program answers (see [Duty]).
//
// Stability: for the programs of this repository. It may change with each release.
package inuse
