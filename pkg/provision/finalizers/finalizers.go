// Package finalizers names the finalizers of PersistentVolumeClaims that provisioning adds or removes.
package finalizers

// Cloning, the stock external-provisioner's finalizer, keeps a claim while its volume is cloned. For VolumeSnapshots
// request.SnapshotFinalizer has the same purpose.
const Cloning = "provisioner.storage.kubernetes.io/cloning-protection"
