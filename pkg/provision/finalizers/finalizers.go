// Package finalizers names the finalizers of PersistentVolumeClaims that provisioning adds or removes.
package finalizers

// Cloning keeps a claim while its volume is cloned. It is the stock external-provisioner's finalizer. For
// VolumeSnapshots request.SnapshotFinalizer has the same purpose.
const Cloning = "provisioner.storage.kubernetes.io/cloning-protection"
