package backend

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
)

// Store keeps records of one kind, for a backend that makes one call at a time. Put replaces the whole record, and
// Remove of an unknown id succeeds. Both are atomic with respect to a kill of the process.
type Store[T any] interface {
	Load() ([]T, error)
	Put(T) error
	Remove(id string) error
}

// Config limits a backend, and its zero value is a backend of 1 PiB without nodes.
type Config struct {
	// CapacityBytes is the total size of all volumes, by default 1 PiB.
	CapacityBytes int64
	// MaxVolumes is the maximum number of volumes, by default 0 for no limit.
	MaxVolumes int
	// MaxVolumeBytes is the maximum size of a volume, by default 0 for no limit but the capacity.
	MaxVolumeBytes int64
	// Nodes are the nodes that volumes can be attached to.
	Nodes []string
	// MaxVolumesPerNode is the maximum number of volumes attached to one node, by default 0 for no limit.
	MaxVolumesPerNode int
	// DeleteUsed lets DeleteVolume remove a volume that is attached, staged or published. By default it fails with
	// ErrInUse.
	DeleteUsed bool
	// KeepSnapshotted lets DeleteVolume of a volume with snapshots fail with ErrInUse. By default snapshots outlive
	// their volumes.
	KeepSnapshotted bool
	// Places are the possible topologies of volumes; each volume has one. Without places, volumes are accessible from
	// everywhere.
	Places []Place
	// Context is added to the volume context of each new volume.
	Context map[string]string
}

const (
	defaultCapacity    int64 = 1 << 50
	defaultVolumeBytes int64 = 1 << 30
)

// Validate returns an error about the first invalid setting, or nil.
func (c Config) Validate() error {
	switch {
	case c.CapacityBytes < 0:
		return fmt.Errorf("capacity %d: must not be negative", c.CapacityBytes)
	case c.MaxVolumes < 0:
		return fmt.Errorf("max volumes %d: must not be negative", c.MaxVolumes)
	case c.MaxVolumeBytes < 0:
		return fmt.Errorf("max volume size %d: must not be negative", c.MaxVolumeBytes)
	case c.MaxVolumesPerNode < 0:
		return fmt.Errorf("max volumes per node %d: must not be negative", c.MaxVolumesPerNode)
	}
	return validatePlaces(c.Places)
}

// Backend holds volumes and snapshots. Each of its methods is atomic and safe for concurrent use.
type Backend struct {
	config Config

	mu        sync.Mutex
	volumes   *collection[Volume]
	snapshots *collection[Snapshot]
	used      int64
	usedAt    map[string]int64 // by placeKey
}

// New returns a backend with the records of both stores, or an error if they are invalid or cannot be read.
func New(volumes Store[Volume], snapshots Store[Snapshot], config Config) (*Backend, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.CapacityBytes = cmp.Or(config.CapacityBytes, defaultCapacity)
	b := &Backend{config: config, usedAt: map[string]int64{}}
	var err error
	if b.volumes, err = load(volumes); err != nil {
		return nil, fmt.Errorf("load volumes: %w", err)
	}
	if b.snapshots, err = load(snapshots); err != nil {
		return nil, fmt.Errorf("load snapshots: %w", err)
	}
	for _, v := range b.volumes.byID {
		if v.Bytes < 0 || b.used > math.MaxInt64-v.Bytes {
			return nil, fmt.Errorf("load volumes: volume %q holds %d bytes: %w", v.ID, v.Bytes, ErrInvalid)
		}
		b.account(v, v.Bytes)
	}
	return b, nil
}

// Available returns the free capacity of the whole backend in bytes.
func (b *Backend) Available() int64 { return b.AvailableAt(nil) }

// left is never negative, even after a restart with a smaller capacity.
func (b *Backend) left() int64 { return max(0, b.config.CapacityBytes-b.used) }

// size returns the size of a volume with at least required and at most limit bytes (0: not given), or an error if no
// size is possible. A request without required bytes gets unspecified, as far as the limits allow.
func (b *Backend) size(required, limit, unspecified int64) (int64, error) {
	switch {
	case required < 0 || limit < 0:
		return 0, fmt.Errorf("capacity range %d to %d: %w", required, limit, ErrInvalid)
	case limit > 0 && required > limit:
		return 0, fmt.Errorf("required %d bytes, limit %d: %w", required, limit, ErrOutOfRange)
	}
	bytes := required
	if bytes == 0 {
		bytes = unspecified
		if limit > 0 {
			bytes = min(bytes, limit)
		}
		if largest := b.config.MaxVolumeBytes; largest > 0 {
			bytes = min(bytes, largest)
		}
	}
	if largest := b.config.MaxVolumeBytes; largest > 0 && bytes > largest {
		return 0, fmt.Errorf("required %d bytes, the largest volume has %d: %w", bytes, largest, ErrOutOfRange)
	}
	return bytes, nil
}

// reserve returns ErrExhausted unless the volume's place has room for the additional bytes.
func (b *Backend) reserve(v Volume, bytes int64) error {
	if left := b.left(); bytes > left {
		return fmt.Errorf("%d bytes wanted, %d left: %w", bytes, left, ErrExhausted)
	}
	for _, p := range b.config.Places {
		here := slices.ContainsFunc(v.Topology, func(at map[string]string) bool { return maps.Equal(at, p.Segments) })
		if left := b.leftAt(p); here && bytes > left {
			return fmt.Errorf("%d bytes wanted, %d left in %s: %w", bytes, left, p, ErrExhausted)
		}
	}
	return nil
}
