// Package sources removes the finalizers that keep the sources of volumes, VolumeSnapshots and cloned claims, where
// nothing else does: those that a process left behind and, when csi-reclaimer is removed, all of a driver.
package sources
