// Package finalizers names the finalizers of PersistentVolumeClaims that provisioning adds or removes.
//
// Stability: for embedders. Until version 1.0 it changes only with a minor release, and CHANGELOG.md lists each change.
package finalizers

// Cloning, the stock external-provisioner's finalizer, keeps a claim while its volume is cloned. For VolumeSnapshots
// request.SnapshotFinalizer has the same purpose.
const Cloning = "provisioner.storage.kubernetes.io/cloning-protection"
