// Package singlenode keeps volumes without an attach step on one node at a time, in the namespaces that ask for it.
//
// In these namespaces, pods with claims are created with a scheduling gate. The controller writes a lock for a pod to
// each of its claims by compare-and-swap, lists the pods of the namespace, and removes the gate. It frees the lock once
// a live read shows that the pod can no longer write. The decisions are in internal/engine/singlenode; this package
// watches, makes the calls, and reports.
//
// Stability: for the programs of this repository. It may change with each release.
package singlenode
