// Package snapshot reads VolumeSnapshots before volumes are created from them, protects them by a finalizer until then,
// and lists the snapshots in the storage system.
//
// The API of snapshots is not part of Kubernetes: its kinds come with external-snapshotter and may be missing. Only
// this package uses their Go types, so that provisioners without snapshots do not need them. Package request decides
// whether a snapshot may be restored.
//
// Stability: for embedders. Until version 1.0 it changes only with a minor release, and CHANGELOG.md lists each change.
package snapshot
