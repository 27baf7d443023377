package backend

import (
	"fmt"
	"time"
)

// SnapshotRequest describes a snapshot to create.
type SnapshotRequest struct {
	// Name is the idempotency key: one snapshot per name.
	Name       string
	VolumeID   string
	Parameters map[string]string
	// Places are requested topologies; the snapshot must be accessible from at least one. Empty: anywhere.
	Places []map[string]string
}

// CreateSnapshot returns the snapshot of that name, and whether this call created it. ErrIncompatible means that the
// name belongs to a snapshot of another volume, ErrVolumeNotFound that the source volume does not exist, and
// ErrExhausted that the volume is in none of the requested places.
func (b *Backend) CreateSnapshot(r SnapshotRequest, now time.Time) (Snapshot, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if existing, ok := b.snapshots.named(r.Name); ok {
		if existing.VolumeID != r.VolumeID {
			return Snapshot{}, false, fmt.Errorf("snapshot %q is one of volume %q: %w", r.Name, existing.VolumeID,
				ErrIncompatible)
		}
		return existing.clone(), false, nil
	}
	v, err := b.volumes.get(r.VolumeID)
	if err != nil {
		return Snapshot{}, false, fmt.Errorf("source %w", err)
	}
	if len(r.Places) > 0 && len(v.Topology) > 0 && !anyWithin(r.Places, v.Topology) {
		return Snapshot{}, false, fmt.Errorf("none of the places asked for is %v, where volume %q is: %w", v.Topology, v.ID,
			ErrExhausted)
	}
	s := Snapshot{
		ID: newID(r.Name), Name: r.Name, VolumeID: v.ID, Bytes: v.Bytes, Created: now.UTC(), Parameters: r.Parameters,
		Topology: v.Topology,
	}.clone()
	if err := b.snapshots.put(s); err != nil {
		return Snapshot{}, false, err
	}
	return s.clone(), true, nil
}

// DeleteSnapshot deletes a snapshot and reports whether it existed; an unknown id is no error.
func (b *Backend) DeleteSnapshot(id string) (Snapshot, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, ok := b.snapshots.byID[id]
	if !ok {
		return Snapshot{}, false, nil
	}
	if err := b.snapshots.remove(s); err != nil {
		return Snapshot{}, false, err
	}
	return s.clone(), true, nil
}

// Snapshot returns the snapshot with this id, or ErrSnapshotNotFound.
func (b *Backend) Snapshot(id string) (Snapshot, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.snapshots.get(id)
}

// SnapshotFilter selects snapshots; an empty field matches all.
type SnapshotFilter struct {
	ID, VolumeID string
}

// Snapshots returns up to limit snapshots (0: all) in the order of their ids, starting after the given id, and
// whether more follow.
func (b *Backend) Snapshots(after string, limit int, filter SnapshotFilter) ([]Snapshot, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.snapshots.after(after, limit, func(s Snapshot) bool {
		return (filter.ID == "" || s.ID == filter.ID) && (filter.VolumeID == "" || s.VolumeID == filter.VolumeID)
	})
}
