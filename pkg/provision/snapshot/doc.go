// Package snapshot reads what is to be known of a VolumeSnapshot before a volume is made from it, keeps it by a
// finalizer meanwhile, and reads which snapshots there are in the storage system.
//
// The API of snapshots is no part of Kubernetes: its kinds come with external-snapshotter and may
// be missing. This package alone knows their Go types, so that who provisions without snapshots
// does without them. Whether a snapshot may be restored is left to package request.
package snapshot
