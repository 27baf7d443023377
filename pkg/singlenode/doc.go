// Package singlenode keeps volumes that nothing attaches on one node at a time, in the namespaces that ask for it.
//
// Pods with claims are created with a scheduling gate there. The controller writes a lock for a pod to each of its
// claims by compare-and-swap, lists the pods of the namespace, and removes the gate. It frees the lock once a live read
// shows that the pod cannot write any more. The decisions are in internal/engine/singlenode; this package watches,
// makes the calls that they ask for, and reports.
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
	// Finalizer keeps a claim that has a lock.
	Finalizer = singlenode.Finalizer
)

// Reason says why something is done about a pod or a lock, or nothing. The same word is an Event's reason, a value in
// the log and a label of the metrics.
type Reason = singlenode.Reason

// Reasons returns every reason there is.
func Reasons() []Reason { return singlenode.Reasons() }
