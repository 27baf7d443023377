package backend

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Place is a topology that volumes can have, with its own capacity.
type Place struct {
	// Segments are the place's topology segments, required and different for each place.
	Segments map[string]string
	// CapacityBytes is the total size of the volumes in this place, by default 0 for no limit but the backend's
	// capacity.
	CapacityBytes int64
}

func (p Place) String() string { return placeKey(p.Segments) }

// placeKey returns a readable key, equal for equal segments.
func placeKey(segments map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(segments)) {
		pairs = append(pairs, key+"="+segments[key])
	}
	return strings.Join(pairs, ",")
}

func validatePlaces(places []Place) error {
	for i, p := range places {
		switch {
		case len(p.Segments) == 0:
			return fmt.Errorf("place %d: has no segments", i+1)
		case p.CapacityBytes < 0:
			return fmt.Errorf("place %s: capacity %d: must not be negative", p, p.CapacityBytes)
		case slices.ContainsFunc(places[:i], func(other Place) bool { return maps.Equal(other.Segments, p.Segments) }):
			return fmt.Errorf("place %s: is there twice", p)
		}
	}
	return nil
}

// pick returns the topology of a new volume: the first requested place that has room, or nil for a backend without
// places.
func (b *Backend) pick(wanted []map[string]string, bytes int64) ([]map[string]string, error) {
	if len(b.config.Places) == 0 {
		return nil, nil
	}
	there := b.among(wanted)
	if len(there) == 0 {
		return nil, fmt.Errorf("none of the places asked for is one of %v: %w", b.config.Places, ErrExhausted)
	}
	for _, p := range there {
		if bytes <= b.leftAt(p) {
			return []map[string]string{p.Segments}, nil
		}
	}
	return nil, fmt.Errorf("%d bytes wanted, and none of %v has as many left: %w", bytes, there, ErrExhausted)
}

// among returns the backend's places that match a request, in the order of the request, and all of them for an empty
// request.
func (b *Backend) among(wanted []map[string]string) []Place {
	if len(wanted) == 0 {
		return b.config.Places
	}
	var found []Place
	for _, w := range wanted {
		for _, p := range b.config.Places {
			if within(w, p.Segments) {
				found = append(found, p)
			}
		}
	}
	return found
}

// leftAt returns the free capacity of a place, within the free capacity of the backend.
func (b *Backend) leftAt(p Place) int64 {
	if p.CapacityBytes == 0 {
		return b.left()
	}
	return max(0, min(b.left(), p.CapacityBytes-b.usedAt[p.String()]))
}

// account adds bytes to the capacity that a volume uses.
func (b *Backend) account(v Volume, bytes int64) {
	b.used += bytes
	for _, segments := range v.Topology {
		b.usedAt[placeKey(segments)] += bytes
	}
}

// AvailableAt returns the free capacity, in bytes, for volumes that are accessible from a place; empty segments stand
// for any place.
func (b *Backend) AvailableAt(segments map[string]string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.left()
	if len(b.config.Places) == 0 {
		return left
	}
	total := int64(0)
	for _, p := range b.among([]map[string]string{segments}) {
		total += min(b.leftAt(p), left-total) // never more than the backend's free capacity
	}
	return total
}

// anyWithin reports whether one of the wanted topologies matches one of the existing ones.
func anyWithin(wanted, have []map[string]string) bool {
	for _, w := range wanted {
		for _, h := range have {
			if within(w, h) {
				return true
			}
		}
	}
	return false
}

func within(wanted, have map[string]string) bool {
	for key, value := range wanted {
		if have[key] != value {
			return false
		}
	}
	return true
}
