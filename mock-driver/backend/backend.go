package backend

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
)

// Store keeps records of one kind. Put replaces a record as a whole, Remove of an unknown id succeeds, and either
// has happened entirely or not at all once the process is killed. A backend never calls a store twice at the same
// time.
type Store[T any] interface {
	Load() ([]T, error)
	Put(T) error
	Remove(id string) error
}

// Config limits a backend. The zero value is a backend of 1 PiB that knows no node.
type Config struct {
	// CapacityBytes is what all volumes together may hold. Default 1 PiB.
	CapacityBytes int64
	// MaxVolumes is how many volumes there may be. Default 0: no limit.
	MaxVolumes int
	// MaxVolumeBytes is the largest volume. Default 0: whatever fits.
	MaxVolumeBytes int64
	// Nodes are the nodes that volumes can be attached to.
	Nodes []string
	// MaxVolumesPerNode is how many volumes may be attached to one node. Default 0: no limit.
	MaxVolumesPerNode int
	// DeleteUsed lets DeleteVolume remove a volume that is attached, staged or published. Default false: refuse with
	// ErrInUse.
	DeleteUsed bool
	// KeepSnapshotted makes DeleteVolume refuse, with ErrInUse, a volume that has snapshots. Default false: snapshots
	// outlive volumes.
	KeepSnapshotted bool
	// Places are where volumes can be, each in one of them. Default none: volumes are everywhere.
	Places []Place
	// Context is added to the context of each new volume.
	Context map[string]string
}

const (
	defaultCapacity    int64 = 1 << 50
	defaultVolumeBytes int64 = 1 << 30
)

// Validate reports the first setting that makes no sense.
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

// Backend holds volumes and snapshots. All methods are safe for concurrent use, and each is atomic.
type Backend struct {
	config Config

	mu        sync.Mutex
	volumes   *collection[Volume]
	snapshots *collection[Snapshot]
	used      int64
	usedAt    map[string]int64 // by placeKey
}

// New loads what the stores hold.
func New(volumes Store[Volume], snapshots Store[Snapshot], config Config) (*Backend, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.CapacityBytes == 0 {
		config.CapacityBytes = defaultCapacity
	}
	b := &Backend{config: config, usedAt: map[string]int64{}}
	var err error
	if b.volumes, err = load(volumes, func(v Volume) (id, name string) { return v.ID, v.Name }); err != nil {
		return nil, fmt.Errorf("load volumes: %w", err)
	}
	if b.snapshots, err = load(snapshots, func(s Snapshot) (id, name string) { return s.ID, s.Name }); err != nil {
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

// Available is the capacity that is left, in bytes.
func (b *Backend) Available() int64 { return b.AvailableAt(nil) }

// left may find less than nothing after a restart with a smaller capacity.
func (b *Backend) left() int64 { return max(0, b.config.CapacityBytes-b.used) }

// size picks the size of a volume that must hold at least required and at most limit bytes (0: not given), or says
// why there is none.
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

// reserve reports whether so many bytes more would fit where the volume is.
func (b *Backend) reserve(v Volume, bytes int64) error {
	if left := b.left(); bytes > left {
		return fmt.Errorf("%d bytes wanted, %d left: %w", bytes, left, ErrExhausted)
	}
	for _, p := range b.config.Places {
		here := slices.ContainsFunc(v.Topology, func(segments map[string]string) bool {
			return maps.Equal(segments,
				p.Segments)
		})
		if left := b.leftAt(p); here && bytes > left {
			return fmt.Errorf("%d bytes wanted, %d left in %s: %w", bytes, left, p, ErrExhausted)
		}
	}
	return nil
}
