// Package inuse is what the protection of claims and of PVs against a deletion while they are in
// use have in common: an object that is there gets a finalizer, one that is to go loses it once
// nobody uses it. What use is, the packages pvc and pv say.
//
// Kubernetes has controllers for both built in, which most clusters run. Where they do, this
// package writes nothing: it waits for a need that nobody answers (see [Duty]).
package inuse
