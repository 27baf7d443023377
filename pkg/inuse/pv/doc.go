// Package pv keeps PVs that are bound to a claim from being deleted. A PV that is not terminating gets the finalizer
// kubernetes.io/pv-protection, and a terminating PV loses it once it is not Bound.
//
// The package serves clusters in which the built-in controller, pv-protection of kube-controller-manager, is off. If
// that controller is seen at work, this one writes nothing. Package inuse has the part that both kinds of protection
// share.
//
// Stability: for the programs of this repository. It may change with each release.
package pv
