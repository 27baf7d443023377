// Package pvc keeps claims that pods use from being deleted: a claim that is there gets the finalizer
// kubernetes.io/pvc-protection, one that is being deleted loses it once no pod uses it (the proposal
// "Postpone Deletion of a Persistent Volume Claim in case It Is Used by a Pod").
//
// It is for clusters in which Kubernetes' own controller for that, pvc-protection of
// kube-controller-manager, is off; where that one is seen at work, this one writes nothing. What
// both kinds of protection share is in the package protect.
package pvc
