// Package pv keeps PVs that are bound to a claim from being deleted: a PV that is there gets the
// finalizer kubernetes.io/pv-protection, one that is being deleted loses it once it is not Bound.
//
// It is for clusters in which Kubernetes' own controller for that, pv-protection of
// kube-controller-manager, is off; where that one is seen at work, this one writes nothing. What
// both kinds of protection share is in the package protect.
package pv
