// Package singlenode keeps volumes without an attach step on one node at a time, in the namespaces that ask for it.
//
// In these namespaces, pods with claims are created with a scheduling gate. The controller writes a lock for a pod to
// each of its claims by compare-and-swap, lists the pods of the namespace, and removes the gate. It frees the lock once
// a live read shows that the pod can no longer write. The decisions are in internal/engine/singlenode; this package
// watches, makes the calls, and reports.
//
// Stability: for the programs of this repository. It may change with each release.
package singlenode

import "github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"

const (
	// Label asks for locks: on a namespace with the value SelectedValue or AllValue, and on a StorageClass, a
	// PersistentVolume or a claim with SelectValue.
	Label         = singlenode.Label
	SelectedValue = singlenode.SelectedValue
	AllValue      = singlenode.AllValue
	SelectValue   = singlenode.SelectValue
	// Gate is the scheduling gate of pods that wait for the locks of their claims.
	Gate = singlenode.Gate
	// LockAnnotation on a claim names the pod that has the lock.
	LockAnnotation = singlenode.LockAnnotation
	// Finalizer protects a locked claim from deletion.
	Finalizer = singlenode.Finalizer
)

// Reason is the reason of an action on a pod or a lock, or of a wait. The same word appears as the reason of an Event,
// a value in the log, and a label of the metrics.
type Reason = singlenode.Reason

// Reasons returns every reason.
func Reasons() []Reason { return singlenode.Reasons() }
