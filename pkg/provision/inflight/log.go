package inflight

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// State is what is known of a volume's entry. The zero value knows nothing.
type State uint8

const (
	// Unknown: TakeOver has not succeeded, another process has taken over, or Run has ended.
	Unknown State = iota
	// Absent: the log has no entry of that name.
	Absent
	// Open: the entry is stored.
	Open
	// Adding: a Put of the entry was not confirmed yet; it may be stored.
	Adding
	// Removing: a removal was not confirmed yet; it may be stored.
	Removing
	// Unreadable: the entry's bytes cannot be read, or its shard is read-only.
	Unreadable
)

// String returns the name of the state.
func (s State) String() string {
	switch s {
	case Absent:
		return "Absent"
	case Open:
		return "Open"
	case Adding:
		return "Adding"
	case Removing:
		return "Removing"
	case Unreadable:
		return "Unreadable"
	default:
		return "Unknown"
	}
}

// Stats are figures for metrics.
type Stats struct {
	// Open, Adding and Removing count entries by state; Unreadable the annotations that cannot be read.
	Open, Adding, Removing, Unreadable int
	// Oldest is when the oldest open entry was begun, zero for none.
	Oldest time.Time
	// ReadOnly counts the Leases that cannot be used.
	ReadOnly int
	// Elsewhere counts the entries that the last FindStrays found, 0 before it.
	Elsewhere int
	// Fill is how much of its room the fullest Lease has used, 1 for all. At 7/8 it takes no new entries.
	Fill float64
	// Writes counts the PUTs and POSTs that were sent, with those that failed; Conflicts those that lost against
	// somebody else's.
	Writes, Conflicts int64
}

// Log is one process' view of the log. Make it with New; then TakeOver, and Run.
type Log struct {
	cfg    Config
	leases coordinationv1client.LeaseInterface
	chunks *chunks

	mu     sync.Mutex // guards all below, and what shards say
	follow []func(volume string)
	own    meta
	err    error // why it cannot be used: ErrNotReady, ErrSuperseded or ErrStopped
	shards []*shard
	// topology has the chunks; all are the shards and, as the last one, topology.
	topology *shard
	all      []*shard
	owner    *metav1.OwnerReference // of an empty log of one shard, nil if it is not known
	stats    Stats                  // Writes, Conflicts and Elsewhere
	// takenOver is when TakeOver last wrote, by the API server's clock.
	takenOver time.Time
}

// New returns a Log that knows nothing yet.
func New(cfg Config) (*Log, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	l := &Log{
		cfg: cfg, leases: cfg.Leases.Leases(cfg.Namespace), err: ErrNotReady,
		chunks:   newChunks(cfg.Namespace + "/" + cfg.topology()),
		topology: newShard(topologyNumber, cfg.topology()),
		own:      meta{Version: metaVersion, Driver: cfg.Driver, Identity: cfg.Identity},
	}
	l.resize(cfg.Shards)
	return l, nil
}

// resize sets the number of shards, of which nothing is known yet.
func (l *Log) resize(shards int) {
	l.own.Shards, l.shards = shardsNoted(shards), nil
	for i := range shards {
		l.shards = append(l.shards, newShard(i, l.cfg.shard(i)))
	}
	l.all = append(slices.Clip(l.shards), l.topology)
}

// shardOf returns the shard of a volume. The caller holds the lock.
func (l *Log) shardOf(volume string) *shard { return l.shards[shardOf(volume, len(l.shards))] }

// Put adds an entry, or replaces the one of that name, and returns nil once the API server has confirmed it by
// an answer or a read. It sets the Epoch of a new entry to this process', and its Begun to now if it is zero; an entry
// that replaces another keeps the other's. e may be changed afterwards.
//
// An entry with long lists of topologies waits until these are stored. If ctx ends meanwhile, nothing was changed.
//
// If ctx or Run ends later, or a Put or Remove of that name follows, the error wraps ErrUnconfirmed: the entry may or
// may not be stored, is still being stored, and Get reports it. Errors after which nothing was changed: ErrInvalid,
// ErrFull, ErrShare, ErrTooLarge, ErrUnreadable, ErrNoShard, ErrNotReady, ErrStopped, ErrLeaseEnded without
// ErrUnconfirmed, and the API server's refusal (ErrForbidden and others). ErrSuperseded says nothing about what is
// stored.
func (l *Log) Put(ctx context.Context, e Entry) error {
	it, err := l.enqueue(ctx, e)
	if err != nil {
		return fmt.Errorf("add volume %q to the in-flight log: %w", e.Volume, err)
	}
	if it == nil {
		return nil
	}
	select {
	case <-it.done:
		err = it.err
	case <-ctx.Done():
		select {
		case <-it.done:
			err = it.err
		default:
			err = l.unconfirmed(e.Volume, context.Cause(ctx))
		}
	}
	if err != nil {
		return fmt.Errorf("add volume %q to the in-flight log: %w", e.Volume, err)
	}
	return nil
}

// unconfirmed adds what the API server said last.
func (l *Log) unconfirmed(volume string, cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last := l.shardOf(volume).lastErr; last != nil {
		return fmt.Errorf("%w: %w; last error: %w", ErrUnconfirmed, cause, last)
	}
	return fmt.Errorf("%w: %w", ErrUnconfirmed, cause)
}

// enqueue hands an entry to its shard's writer, once its chunks are stored. It returns nil if it is stored already.
func (l *Log) enqueue(ctx context.Context, e Entry) (*item, error) {
	key := annotationKey(e.Volume)
	for {
		l.mu.Lock()
		s := l.shardOf(e.Volume)
		before, err := l.admit(s, key)
		e.Epoch = l.own.Epoch
		l.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case before != nil:
			e.Epoch, e.Begun = before.entry.Epoch, before.entry.Begun
		case e.Begun.IsZero():
			e.Begun = l.cfg.Clock.Now()
		}
		stored, err := l.chunks.encode(&e) // without the lock: it takes a while
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		again, err := l.admit(s, key)
		if err == nil && again != before {
			l.mu.Unlock()
			continue
		}
		var it *item
		var chunks []*item
		if err == nil {
			chunks, err = l.chunksFor(s, key, stored, before)
		}
		if err == nil && len(chunks) == 0 {
			it, err = s.put(key, stored, l.own)
		}
		l.mu.Unlock()
		if err != nil || len(chunks) == 0 {
			return it, err
		}
		if err := l.await(ctx, chunks); err != nil {
			return nil, err
		}
	}
}

// admit says whether an entry may be put now, and returns the one that it replaces, nil for none.
func (l *Log) admit(s *shard, key string) (*item, error) {
	switch {
	case l.err != nil:
		return nil, l.err
	case l.blocked(key) != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, l.blocked(key))
	case l.usable(s) != nil:
		return nil, l.usable(s)
	case l.cfg.Lease != nil && l.cfg.Lease.Left() <= 0:
		return nil, ErrLeaseEnded
	}
	return s.want[key], nil
}

// usable says why nothing can be put into a Lease.
func (l *Log) usable(s *shard) error {
	switch {
	case s.seen.err != nil:
		return fmt.Errorf("%w: Lease %s: %w", ErrUnreadable, s.name, s.seen.err)
	case s.seen.missing() && !l.cfg.CreateMissing && len(s.want) == 0:
		return fmt.Errorf("%w: %s", ErrNoShard, s.name)
	}
	return nil
}

// blocked says why the entry of that key, in whichever shard it is, cannot be used.
func (l *Log) blocked(key string) error {
	for _, s := range l.all {
		if err := s.kept[key]; err != nil {
			return err
		}
	}
	return nil
}

// Remove removes the entry of a volume, some time later: it waits for other writes of the shard for RemoveDelay at
// most. Followers are called once it is confirmed, unless a Put of that name follows. Without such an
// entry, or where it cannot be read, nothing happens.
func (l *Log) Remove(volume string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.shardOf(volume).remove(annotationKey(volume), l.cfg.Clock.Now().Add(l.cfg.RemoveDelay))
	}
}

// TakenOver returns when this process took the log over, by the API server's clock to the second: later than any
// write that an earlier process made. Zero: that is not known.
func (l *Log) TakenOver() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return time.Time{}
	}
	return l.takenOver
}

// Follow has removed called after a removal is confirmed, of Remove or of an entry that an operator settled. It must
// not block.
func (l *Log) Follow(removed func(volume string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.follow = append(slices.Clip(l.follow), removed)
}

// InFlight returns whether the volume of a PersistentVolume has an entry, and what of the log cannot be read for it.
// That is not known before TakeOver, after another process took over, and after Run.
func (l *Log) InFlight(pv string) (state volume.InFlight, problem string) {
	name := volumeOfPV(pv)
	switch l.State(name) {
	case Unknown:
		return volume.InFlightUnknown, ""
	case Absent:
		return volume.InFlightSettled, ""
	case Unreadable:
		return volume.InFlightUnreadable, l.problemOf(name)
	case Open, Adding, Removing:
	}
	return volume.InFlightOpen, ""
}

// problemOf returns what cannot be read of what is for a volume, empty for nothing.
func (l *Log) problemOf(volume string) string {
	for _, p := range l.Problems() {
		if p.Of(volume) {
			return p.String()
		}
	}
	return ""
}

// LeaseOf returns the Lease that is for a volume's entry, as far as it is known: without a UID where it was not read.
func (l *Log) LeaseOf(volume string) v1.ObjectReference {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.shardOf(volume)
	return v1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: l.cfg.Namespace,
		Name: s.name, UID: s.seen.uid()}
}

// State returns what is known of a volume's entry, without a read of the API server.
func (l *Log) State(volume string) State {
	_, state := l.find(volume)
	return state
}

// Get returns the entry of a volume and what is known of it, without a read of the API server. The entry is set
// with Open, Adding and Removing; with Adding it is the one being added. Its requests are not to be changed.
func (l *Log) Get(volume string) (Entry, State) {
	e, state := l.find(volume)
	if e == nil {
		return Entry{}, state
	}
	return *e, state
}

func (l *Log) find(volume string) (*Entry, State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, s := annotationKey(volume), l.shardOf(volume)
	if l.err != nil {
		return nil, Unknown
	}
	if l.blocked(key) != nil {
		return nil, Unreadable
	}
	if it := s.want[key]; it != nil {
		if it.confirmed {
			return it.entry, Open
		}
		return it.entry, Adding
	}
	if it := s.removing[key]; it != nil {
		return it.entry, Removing
	}
	if s.seen.err != nil {
		return nil, Unreadable
	}
	return nil, Absent
}

// Entries returns the open entries, by name. Their requests are not to be changed.
func (l *Log) Entries() []Entry {
	l.mu.Lock()
	var open []*Entry
	if l.err == nil {
		for _, s := range l.shards {
			for _, it := range s.want {
				if it.confirmed {
					open = append(open, it.entry)
				}
			}
		}
	}
	l.mu.Unlock()
	slices.SortFunc(open, func(a, b *Entry) int { return cmp.Compare(a.Volume, b.Volume) })
	entries := make([]Entry, len(open))
	for i, e := range open {
		entries[i] = *e
	}
	return entries
}

// Confirm reads the shard of an open entry and returns nil if the API server has the entry and this process leads.
// Reads that are asked for at the same moment are one. If the Lease or the entry is gone, Confirm waits until it is
// written anew.
//
// It returns ErrSettled if an operator settled the entry, which is removed then, ErrAbsent if it is not in the log,
// ErrUnreadable, ErrSuperseded, or that of ctx, when nothing is known.
func (l *Log) Confirm(ctx context.Context, volume string) error {
	c, err := l.ask(volume)
	if err == nil {
		select {
		case err = <-c.done:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("confirm volume %q in the in-flight log: %w", volume, err)
	}
	return nil
}

func (l *Log) ask(volume string) (*check, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, s := annotationKey(volume), l.shardOf(volume)
	switch {
	case l.err != nil:
		return nil, l.err
	case l.blocked(key) != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, l.blocked(key))
	case s.want[key] == nil:
		return nil, ErrAbsent
	}
	c := &check{key: key, done: make(chan error, 1)}
	s.checks = append(s.checks, c)
	s.poke()
	return c, nil
}

// Problems returns what cannot be read, by shard and key. A shard that is read-only is read again each minute,
// so a problem goes away some time after its cause, but for a Lease that somebody repaired without deleting it:
// that one is read after the next start.
func (l *Log) Problems() []Problem {
	l.mu.Lock()
	defer l.mu.Unlock()
	var problems []Problem
	for _, s := range l.all {
		lease := l.cfg.Namespace + "/" + s.name
		if s.seen.err != nil {
			problems = append(problems, Problem{Lease: lease, Err: s.seen.err, shards: len(l.shards)})
		}
		for _, key := range slices.Sorted(maps.Keys(s.kept)) {
			problems = append(problems, Problem{Lease: lease, Annotation: key, Volume: volumeOf(key), Err: s.kept[key]})
		}
	}
	return problems
}

// Stats returns figures.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	stats := l.stats
	for _, s := range l.shards {
		for _, it := range s.want {
			if it.confirmed {
				stats.Open++
				if begun := it.entry.Begun; stats.Oldest.IsZero() || begun.Before(stats.Oldest) {
					stats.Oldest = begun
				}
			} else {
				stats.Adding++
			}
		}
		stats.Removing += len(s.removing)
	}
	for _, s := range l.all {
		stats.Unreadable += len(s.kept)
		if s.seen.err != nil {
			stats.ReadOnly++
		}
		stats.Fill = max(stats.Fill, float64(s.total(l.own))/float64(room))
	}
	return stats
}

// emptyShard is a shard as it is created. It has no UID, which only the API server knows.
func (l *Log) emptyShard(name string) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = l.cfg.Namespace, name
	lease.Labels = withLabels(nil)
	m := meta{Version: metaVersion, Driver: l.own.Driver, Shards: l.own.Shards}
	lease.Annotations = map[string]string{annMeta: m.String()}
	return lease
}
