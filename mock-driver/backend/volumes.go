package backend

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// VolumeRequest describes a volume to create.
type VolumeRequest struct {
	// Name is the idempotency key: one volume per name.
	Name string
	// Required and Limit bound the size in bytes; 0 means that the bound is not given.
	Required, Limit     int64
	Parameters, Mutable map[string]string
	Access              []Access
	Source              Source
	// Places are the requested topologies in order of preference; the volume must be in at least one. Empty: anywhere.
	Places []map[string]string
}

// CreateVolume returns the volume of that name, and whether this call created it. ErrIncompatible means that the name
// belongs to a volume with other properties, ErrOutOfRange that the size is impossible, ErrExhausted that a limit is
// reached, and ErrSnapshotNotFound or ErrVolumeNotFound that the source does not exist.
func (b *Backend) CreateVolume(r VolumeRequest, now time.Time) (Volume, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if existing, ok := b.volumes.named(r.Name); ok {
		if why := mismatch(existing, r); why != "" {
			return Volume{}, false, fmt.Errorf("volume %q has another %s: %w", r.Name, why, ErrIncompatible)
		}
		return existing.clone(), false, nil
	}
	bytes, err := b.sizeFrom(r)
	if err != nil {
		return Volume{}, false, err
	}
	topology, err := b.pick(r.Places, bytes)
	if err != nil {
		return Volume{}, false, err
	}
	v := Volume{
		ID: newID(r.Name), Name: r.Name, Bytes: bytes, Created: now.UTC(),
		Parameters: r.Parameters, Mutable: r.Mutable, CreatedMutable: r.Mutable,
		Access: r.Access, Context: b.config.Context, Source: r.Source, Topology: topology,
	}.clone()
	if err := b.add(v); err != nil {
		return Volume{}, false, err
	}
	return v.clone(), true, nil
}

// ImportVolume adds a volume under the caller's id, as if it had existed before the driver, and does nothing if the
// id exists.
func (b *Backend) ImportVolume(id string, bytes int64, now time.Time) error {
	if !ValidID(id) {
		return fmt.Errorf("volume id %q: want letters, digits, '-', '_' and '.', at most 128: %w", id, ErrInvalid)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.volumes.byID[id]; known {
		return nil
	}
	if other, taken := b.volumes.named(id); taken {
		return fmt.Errorf("volume %q has the name %q: %w", other.ID, id, ErrIncompatible)
	}
	bytes, err := b.size(bytes, 0, defaultVolumeBytes)
	if err != nil {
		return err
	}
	topology, err := b.pick(nil, bytes)
	if err != nil {
		return err
	}
	return b.add(Volume{ID: id, Name: id, Bytes: bytes, Created: now.UTC(), Context: b.config.Context,
		Topology: topology}.clone())
}

func (b *Backend) add(v Volume) error {
	if limit := b.config.MaxVolumes; limit > 0 && len(b.volumes.byID) >= limit {
		return fmt.Errorf("%d volumes are the limit: %w", limit, ErrExhausted)
	}
	if err := b.reserve(v, v.Bytes); err != nil {
		return err
	}
	if err := b.volumes.put(v); err != nil {
		return err
	}
	b.account(v, v.Bytes)
	return nil
}

// sizeFrom returns the size of a new volume, which is never smaller than its source.
func (b *Backend) sizeFrom(r VolumeRequest) (int64, error) {
	source := int64(0)
	switch {
	case r.Source.SnapshotID != "":
		s, err := b.snapshots.get(r.Source.SnapshotID)
		if err != nil {
			return 0, fmt.Errorf("source %w", err)
		}
		source = s.Bytes
	case r.Source.VolumeID != "":
		v, err := b.volumes.get(r.Source.VolumeID)
		if err != nil {
			return 0, fmt.Errorf("source %w", err)
		}
		source = v.Bytes
	}
	bytes, err := b.size(r.Required, r.Limit, max(source, defaultVolumeBytes))
	if err != nil {
		return 0, err
	}
	if bytes < source {
		return 0, fmt.Errorf("%d bytes, the source has %d: %w", bytes, source, ErrOutOfRange)
	}
	return bytes, nil
}

// mismatch names the first property of an existing volume that differs from a repeated request, or returns "".
func mismatch(v Volume, r VolumeRequest) string {
	switch {
	case v.Bytes < r.Required || r.Limit > 0 && v.Bytes > r.Limit:
		return "capacity"
	case !maps.Equal(v.Parameters, r.Parameters):
		return "set of parameters"
	case !maps.Equal(v.CreatedMutable, r.Mutable):
		return "set of mutable parameters"
	case v.Source != r.Source:
		return "content source"
	case slices.ContainsFunc(r.Access, func(a Access) bool { return !v.Serves(a) }):
		return "access type"
	case len(r.Places) > 0 && len(v.Topology) > 0 && !anyWithin(r.Places, v.Topology):
		return "topology"
	}
	return ""
}

// DeleteVolume deletes a volume, returns its last state, and reports whether it existed; an unknown id is no error.
// ErrInUse means that the volume is used or has snapshots, and the configuration protects it.
func (b *Backend) DeleteVolume(id string) (Volume, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v, ok := b.volumes.byID[id]
	if !ok {
		return Volume{}, false, nil
	}
	if !b.config.DeleteUsed && v.Used() {
		return Volume{}, false, fmt.Errorf("volume %q is attached to nodes %q, staged at %d and published at %d paths: %w",
			id, v.Nodes(), len(v.Staged), len(v.Published), ErrInUse)
	}
	if b.config.KeepSnapshotted {
		if held, _ := b.snapshots.after("", 1, func(s Snapshot) bool { return s.VolumeID == id }); len(held) > 0 {
			return Volume{}, false, fmt.Errorf("volume %q has snapshot %q: %w", id, held[0].ID, ErrInUse)
		}
	}
	if err := b.volumes.remove(v); err != nil {
		return Volume{}, false, err
	}
	b.account(v, -v.Bytes)
	return v.clone(), true, nil
}

// Volume returns the volume with this id, or ErrVolumeNotFound.
func (b *Backend) Volume(id string) (Volume, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.volumes.get(id)
}

// Volumes returns up to limit volumes (0: all) in the order of their ids, starting after the given id, and whether
// more follow.
func (b *Backend) Volumes(after string, limit int) ([]Volume, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.volumes.after(after, limit, func(Volume) bool { return true })
}

// Expand grows a volume to at least required bytes, never shrinks it, and reports whether its size changed. If
// offline is set, it fails with ErrInUse for a used volume that is too small.
func (b *Backend) Expand(id string, required, limit int64, offline bool) (Volume, bool, error) {
	return b.update(id, func(v *Volume) (bool, error) {
		want, err := b.size(required, limit, v.Bytes)
		switch {
		case err != nil:
			return false, err
		case limit > 0 && v.Bytes > limit:
			return false, fmt.Errorf("volume %q has %d bytes, limit %d: %w", id, v.Bytes, limit, ErrOutOfRange)
		case want <= v.Bytes:
			return false, nil
		case offline && v.Used():
			return false, fmt.Errorf("volume %q can only grow while nothing uses it: %w", id, ErrInUse)
		}
		if err := b.reserve(*v, want-v.Bytes); err != nil {
			return false, err
		}
		v.Bytes = want
		return true, nil
	})
}

// Modify sets the given mutable parameters, keeps all others, and reports whether any value changed.
func (b *Backend) Modify(id string, mutable map[string]string) (Volume, bool, error) {
	return b.update(id, func(v *Volume) (bool, error) {
		before := maps.Clone(v.Mutable)
		if v.Mutable == nil {
			v.Mutable = make(map[string]string, len(mutable))
		}
		maps.Copy(v.Mutable, mutable)
		return !maps.Equal(before, v.Mutable), nil
	})
}

// update applies a change to a copy of a volume, and stores the copy if the change reports one.
func (b *Backend) update(id string, change func(*Volume) (changed bool, err error)) (Volume, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, err := b.volumes.get(id)
	if err != nil {
		return Volume{}, false, err
	}
	v := before.clone()
	changed, err := change(&v)
	if err != nil || !changed {
		return before, false, err
	}
	if err := b.volumes.put(v); err != nil {
		return Volume{}, false, err
	}
	b.account(v, v.Bytes-before.Bytes)
	return v.clone(), true, nil
}

// VolumeName returns the name of a volume, or "" for an unknown id.
func (b *Backend) VolumeName(id string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.volumes.byID[id].Name
}
