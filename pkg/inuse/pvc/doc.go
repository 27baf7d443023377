// Package pvc keeps claims that pods use from being deleted. A claim that is not terminating gets the finalizer
// kubernetes.io/pvc-protection, and a terminating claim loses it once no pod uses it (the proposal "Postpone Deletion
// of a Persistent Volume Claim in case It Is Used by a Pod").
//
// The package serves clusters in which the built-in controller, pvc-protection of kube-controller-manager, is off. If
// that controller is seen at work, this one writes nothing. Package inuse has the part that both kinds of protection
// share.
//
// Stability: for the programs of this repository. It may change with each release.
package pvc
