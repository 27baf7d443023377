// Package v1alpha1 has the kinds by which nodes are fenced: a NodeFence asks for the fencing of one node and shows how
// far it is, and a FencePolicy makes NodeFences for nodes that are unreachable.
//
// volume-guard's controller node-fencing works on them. Other programs may create NodeFences, too: they then do the
// detection, and leave order, proof and release to the controller.
//
// Stability: for the programs of this repository. It may change with each release.
//
// +kubebuilder:object:generate=true
// +groupName=csi-reclaimer.io
package v1alpha1
