// Package inuse is what the protection of claims and of PVs against a deletion while they are in
// use have in common: an object gets a finalizer, and a terminating one loses it once it is not in
// use. The packages pvc and pv define use.
//
// Kubernetes has controllers for both built in, which most clusters run. Where they do, this
// package writes nothing: it waits for a need that no other program answers (see [Duty]).
package inuse
