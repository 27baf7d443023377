package inflight

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// An operator settles an entry by an annotation beside it. Its value is a hash of the bytes that the operator was
// shown, so that an entry that changed since stays. The leader obeys the annotation at its next read of the Lease or at
// its take-over, and removes it with its next write even if it settles no entry.

// settleKey returns the key of the annotation that settles the entry of that key.
func settleKey(key string) string { return settlePrefix + strings.TrimPrefix(key, entryPrefix) }

// settleValue returns the value that settles an entry with exactly these stored bytes.
func settleValue(stored string) string {
	sum := sha256.Sum256([]byte(stored))
	return hex.EncodeToString(sum[:16])
}

// settles reports whether an existing Lease settles the entry of that key in its stored form.
func (v view) settles(key string) bool {
	stored, there := v.lease.Annotations[key]
	return there && v.lease.Annotations[settleKey(key)] == settleValue(stored)
}

// change lists the changes that others made to a shard.
type change struct {
	settled  []string // the keys of settled entries whose stored bytes equal the wanted ones
	ignored  []string // the keys of settling annotations without such an entry
	appeared []string // the keys of entries unknown to this process
}

// compare compares an existing Lease with the entries that are wanted, being removed (removing) or unreadable (kept),
// all by key. It is a pure function, in which an entry that the Lease lacks is no change, because it is written again.
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
