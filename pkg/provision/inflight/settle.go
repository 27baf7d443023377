package inflight

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// An operator settles an entry by an annotation beside it. Its value names the bytes that the operator was shown, so
// that an entry that changed since stays. The process that leads obeys it at its next read of the Lease or when it
// takes over, and removes it with its next write, whether it settles an entry or not.

// settleKey returns the key of the annotation that settles the entry of that key.
func settleKey(key string) string { return settlePrefix + strings.TrimPrefix(key, entryPrefix) }

// settleValue returns the value that settles an entry with these stored bytes, and no other.
func settleValue(stored string) string {
	sum := sha256.Sum256([]byte(stored))
	return hex.EncodeToString(sum[:16])
}

// settles reports whether a Lease that exists settles the entry of that key as it is stored there.
func (v view) settles(key string) bool {
	stored, there := v.lease.Annotations[key]
	return there && v.lease.Annotations[settleKey(key)] == settleValue(stored)
}

// change is what others did to a shard.
type change struct {
	settled  []string // the keys of entries that are stored as they are wanted, and settled
	ignored  []string // the keys of annotations that settle no such entry
	appeared []string // the keys of entries that this process does not know
}

// compare compares a Lease that exists with the entries that are wanted, still to be removed (removing) or cannot be
// read (kept), all by key. It is a pure function. An entry that the Lease lacks is no change: it is written again.
func compare(v view, want map[string]string, removing, kept func(key string) bool) change {
	var c change
	for _, settle := range slices.Sorted(maps.Keys(v.with(settlePrefix))) {
		key := entryPrefix + strings.TrimPrefix(settle, settlePrefix)
		switch value, wanted := want[key]; {
		case wanted && v.settles(key) && value == v.lease.Annotations[key]:
			c.settled = append(c.settled, key)
		case !removing(key):
			c.ignored = append(c.ignored, settle)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(v.entries())) {
		if _, wanted := want[key]; !wanted && !removing(key) && !kept(key) {
			c.appeared = append(c.appeared, key)
		}
	}
	return c
}
