package inflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
)

// The chunks that entries refer to are in a Lease of their own, so that a write of a shard carries entries alone. The
// Lease is created with the first chunk. It is a shard in all but its number, whose want holds chunks by key.
//
//   - An entry becomes wanted in its shard once the API server has confirmed its chunks here.
//   - A chunk is dropped once no entry has referred to it for chunksStay, or for a minute if another chunk needs its
//     room. The references of all entries count that are stored, may still be stored by a write, or cannot be used.
//   - A missing chunk is noticed within a minute and written again from memory, which has all referenced chunks.

const (
	// topologySuffix ends the name of the Lease with the chunks of a log.
	topologySuffix = "-topology"
	// topologyNumber is the number of that Lease, which no volume has.
	topologyNumber = -1
	// chunksStay is the time that an unreferenced chunk stays, because consecutive volumes refer to the same chunks.
	chunksStay = 10 * time.Minute
)

// MaxName is the maximum length of Config.Name, because the names of Leases are DNS subdomains (RFC 1123).
const MaxName = 253 - len(topologySuffix)

func (c Config) topology() string { return c.Name + topologySuffix }

// topologyOf returns the name of the Lease with the chunks, from the name of a shard.
func topologyOf(shard string) string {
	shard = strings.TrimSuffix(shard, oldSuffix)
	return shard[:max(0, strings.LastIndexByte(shard, '-'))] + topologySuffix
}

func (s *shard) hasChunks() bool { return s.number == topologyNumber }

// need makes chunks wanted, by hash, and returns the ones that a Put has to wait for. It fails if a Lease with limit
// bytes has no room for them.
func (s *shard) need(chunks map[string]string, limit int, own meta, now time.Time) ([]*item, error) {
	var waiting []*item
	lacking := map[string]string{}
	total := s.total(own)
	for hash, value := range chunks {
		key := chunkPrefix + hash
		it := s.want[key]
		if it != nil {
			it.used = now
		}
		switch {
		case it == nil || it.value != value:
			total += len(key) + len(value)
			lacking[key] = value
		case !it.confirmed:
			waiting = append(waiting, it)
		case !s.holds(key, it) || s.mayChange(key, value):
			lacking[key] = value
		}
	}
	switch {
	case len(lacking) == 0 || total <= limit:
	case size(chunks)+len(chunks)*len(chunkPrefix)+len(annMeta)+len(own.String()) > limit:
		return nil, fmt.Errorf("%w: its topologies take %d bytes of the %d that a Lease has for them", ErrTooLarge,
			size(chunks), limit)
	default:
		return nil, fmt.Errorf("%w: Lease %s has no room for its topologies", ErrFull, s.name)
	}
	for key, value := range lacking {
		waiting = append(waiting, s.add(key, coded{value: value}))
	}
	return waiting, nil
}

// hasStored reports whether all these chunks, by hash, are wanted and confirmed.
func (s *shard) hasStored(chunks map[string]string) bool {
	for hash, value := range chunks {
		if it := s.want[chunkPrefix+hash]; it == nil || !it.confirmed || it.value != value {
			return false
		}
	}
	return true
}

// adopt adds the unknown chunks of a Lease to the wanted ones.
func (s *shard) adopt(v view) {
	for key, value := range v.with(chunkPrefix) {
		if s.want[key] == nil && s.removing[key] == nil {
			s.want[key] = storedItem(coded{value: value})
		}
	}
}

// refer adds the keys of all chunks that entries of a shard refer to: entries that are wanted, are being removed, may
// still be stored by a write, or cannot be used. It returns false if the references of an entry are unknown.
func (s *shard) refer(keys map[string]bool) bool {
	add := func(refers map[string]string) {
		for hash := range refers {
			keys[chunkPrefix+hash] = true
		}
	}
	for it := range s.mayHave {
		add(it.refers)
	}
	add(s.mayRefer)
	for key, value := range s.seen.entries() {
		if s.seen.err == nil && !s.isKept(key) {
			continue
		}
		hashes, err := hashesOf(value)
		if err != nil {
			return false
		}
		for _, hash := range hashes {
			keys[chunkPrefix+hash] = true
		}
	}
	return true
}

// sweep makes chunks unwanted that were not referred to for the duration stay, and restores the ones that a newly
// appeared entry refers to, for callers that hold the lock.
func (l *Log) sweep(stay time.Duration) {
	t, keys, known, now := l.topology, map[string]bool{}, true, l.cfg.Clock.Now()
	for _, s := range l.all {
		known = s.refer(keys) && known
	}
	for key, it := range t.want {
		switch {
		case !known || keys[key] || it.used.IsZero():
			it.used = now
		case it.confirmed && now.Sub(it.used) >= stay:
			t.remove(key, now)
		}
	}
	for key, it := range t.removing {
		if !known || keys[key] {
			t.add(key, it.coded)
		}
	}
}

// chunksFor makes the chunks wanted that an entry has and its predecessor, nil for none, lacks. It returns the chunks
// that the Put has to wait for. The predecessor's chunks are not waited for. The caller has to hold the lock of the
// Log.
func (l *Log) chunksFor(s *shard, key string, e coded, before *item) ([]*item, error) {
	lacking, limit, t := maps.Clone(e.refers), room-reserve, l.topology
	if before != nil {
		limit = room
		maps.DeleteFunc(lacking, func(hash, _ string) bool { return before.refers[hash] != "" })
	}
	if len(lacking) == 0 {
		return nil, nil
	}
	if err := cmp.Or(s.fits(key, newItem(e), l.own), l.usable(t)); err != nil {
		return nil, err
	}
	now := l.cfg.Clock.Now()
	waiting, err := t.need(lacking, limit, l.own, now)
	if errors.Is(err, ErrFull) {
		l.sweep(recheckEvery)
		waiting, err = t.need(lacking, limit, l.own, now)
	}
	return waiting, err
}

// await waits until all chunks are confirmed or one of them is refused.
func (l *Log) await(ctx context.Context, chunks []*item) error {
	for _, it := range chunks {
		select {
		case <-it.done:
			if it.err != nil {
				return fmt.Errorf("its topologies, in Lease %s: %w", l.topology.name, it.err)
			}
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			err := fmt.Errorf("its topologies, in Lease %s: %w", l.topology.name, context.Cause(ctx))
			if last := l.topology.lastErr; last != nil {
				err = fmt.Errorf("%w; last error: %w", err, last)
			}
			return err
		}
	}
	return nil
}
