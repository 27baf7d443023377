// Package sources removes the finalizers that protect the sources of volumes, VolumeSnapshots and cloned claims, if no
// other program does: finalizers that a process left behind and, when csi-reclaimer is uninstalled, all of a driver.
//
// Stability: for embedders. Until version 1.0 it changes only with a minor release, and CHANGELOG.md lists each change.
package sources
