package inflight

import (
	"cmp"
	"context"
	"errors"
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

// Errors of a Log, for errors.Is.
var (
	// ErrSuperseded means that another process wrote a higher epoch, so this Log never writes again. The entry of a Put
	// that failed with it may or may not be stored.
	ErrSuperseded = errors.New("another process took the in-flight log over")
	// ErrForbidden means that the API server denies reads or writes of the Leases, and wraps its error.
	ErrForbidden = errors.New("the in-flight log's Leases may not be read or written")
	// ErrUnconfirmed means that the entry may or may not be stored.
	ErrUnconfirmed = errors.New("it is not known whether the entry is stored in the in-flight log")
	// ErrFull means that the shard of that name, or the Lease of the topologies, has no room, and that no change was made.
	ErrFull = errors.New("the in-flight log is full")
	// ErrShare means that the entry's namespace or StorageClass has used up its share of the shard, and that no change was
	// made.
	ErrShare = errors.New("the share of the in-flight log is used up")
	// ErrTooLarge means that even an empty Lease has no room for the entry or for its topologies, and that no change was
	// made.
	ErrTooLarge = errors.New("the request is too large for the in-flight log")
	// ErrUnreadable means that the stored bytes for that name cannot be read, or that its shard is read-only. See
	// [Log.Problems].
	ErrUnreadable = errors.New("the entry of the in-flight log for that name cannot be read")
	// ErrSettled means that an operator settled the entry, which is removed from the log.
	ErrSettled = errors.New("an operator settled the entry of the in-flight log")
	// ErrAbsent means that the log has no such entry.
	ErrAbsent = errors.New("the in-flight log has no entry of that name")
	// ErrNoShard means that the Lease for that name does not exist and Config.CreateMissing is false.
	ErrNoShard = errors.New("the in-flight log's Lease for that name does not exist")
	// ErrLeaseEnded means that the leader election's lease has ended, without which the log sends no writes.
	ErrLeaseEnded = errors.New("the lease ended")
	// ErrNotReady means that TakeOver has not succeeded.
	ErrNotReady = errors.New("the in-flight log was not taken over")
	// ErrStopped means that Run has ended.
	ErrStopped = errors.New("the in-flight log was stopped")
	// ErrInvalid means that the entry is incomplete, or would not be decoded to an equal one.
	ErrInvalid = errors.New("invalid entry")
)

// Stats are the figures of the log's metrics.
type Stats struct {
	// Open, Adding and Removing count entries by state. Unreadable counts the annotations that cannot be read.
	Open, Adding, Removing, Unreadable int
	// Oldest is the time at which the oldest open entry was begun, zero if no entry is open.
	Oldest time.Time
	// ReadOnly counts the read-only Leases.
	ReadOnly int
	// Elsewhere counts the entries that the last FindStrays found, and is 0 before the first.
	Elsewhere int
	// Fill is the used part of the fullest shard's room, where 1 is full. From 7/8 on the shard takes no new entries.
	Fill float64
}

// Log is one process' view of the log. New creates it, and TakeOver and then Run start it.
type Log struct {
	cfg    Config
	leases coordinationv1client.LeaseInterface
	codec  codec

	mu     sync.Mutex // guards all fields below, and those of the shards
	follow []func(volume string)
	own    meta
	err    error // why the log cannot be used: ErrNotReady, ErrSuperseded or ErrStopped
	shards []*shard
	// topology holds the chunks, and all has the shards and, as its last element, topology.
	topology *shard
	all      []*shard
	owner    *metav1.OwnerReference // of an empty log of one shard, nil if unknown
	// elsewhere is Stats.Elsewhere.
	elsewhere int
	// takenOver is the time of TakeOver's last write, on the API server's clock.
	takenOver time.Time
}

// New returns a Log without any state, or an error if cfg is invalid.
func New(cfg Config) (*Log, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	l := &Log{
		cfg: cfg, leases: cfg.Leases.Leases(cfg.Namespace), err: ErrNotReady,
		codec:    newCodec(cfg.Namespace + "/" + cfg.topology()),
		topology: newShard(topologyNumber, cfg.topology()),
		own:      meta{Version: metaVersion, Driver: cfg.Driver, Identity: cfg.Identity},
	}
	l.resize(cfg.Shards)
	return l, nil
}

// resize sets the number of shards and resets their state.
func (l *Log) resize(shards int) {
	l.own.Shards, l.shards = shardsNoted(shards), nil
	for i := range shards {
		s := newShard(i, l.cfg.shard(i))
		if shards > 1 && l.cfg.CreateMissing {
			s.aging = ordinaryAging()
		}
		l.shards = append(l.shards, s)
	}
	l.all = append(slices.Clip(l.shards), l.topology)
}

// shardOf returns the shard of a volume, for callers that hold the lock.
func (l *Log) shardOf(volume string) *shard { return l.shards[shardOf(volume, len(l.shards))] }

// Put adds an entry, or replaces the entry of the same name, and returns nil once an answer or a read of the API server
// has confirmed it. For a new entry Put sets Epoch to this process' epoch, and Begun to the current time if it is zero.
// A replacement keeps both values of the replaced entry, and the caller may change e afterwards.
//
// An entry with long lists of topologies first waits until these are stored. If ctx ends during that wait, nothing was
// changed.
//
// If ctx or Run ends later, or another Put or Remove of that name follows, the error wraps ErrUnconfirmed: the entry
// may or may not be stored, its write continues, and Get reports it. Nothing was changed after ErrInvalid, ErrFull,
// ErrShare, ErrTooLarge, ErrUnreadable, ErrNoShard, ErrNotReady, ErrStopped, ErrLeaseEnded without ErrUnconfirmed, and
// a refusal by the API server (ErrForbidden and others). ErrSuperseded leaves open whether the entry is stored.
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

// unconfirmed wraps cause in ErrUnconfirmed and adds the last error of the API server.
func (l *Log) unconfirmed(volume string, cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last := l.shardOf(volume).lastErr; last != nil {
		return fmt.Errorf("%w: %w; last error: %w", ErrUnconfirmed, cause, last)
	}
	return fmt.Errorf("%w: %w", ErrUnconfirmed, cause)
}

// enqueue hands an entry to its shard's writer once the entry's chunks are stored. It returns nil if the entry itself
// is already stored.
func (l *Log) enqueue(ctx context.Context, e Entry) (*item, error) {
	key := annotationKey(e.Volume)
	for {
		before, err := l.admitNow(&e, key)
		switch {
		case err != nil:
			return nil, err
		case before != nil:
			e.Epoch, e.Begun = before.entry.Epoch, before.entry.Begun
		case e.Begun.IsZero():
			e.Begun = l.cfg.Clock.Now()
		}
		stored, err := l.codec.encode(&e) // slow, so it runs without the lock
		if err != nil {
			return nil, err
		}
		it, chunks, changed, err := l.putNow(e.Volume, key, stored, before)
		switch {
		case changed:
			continue
		case err != nil || len(chunks) == 0:
			return it, err
		}
		if err := l.await(ctx, chunks); err != nil {
			return nil, err
		}
	}
}

// admitNow admits an entry, gives it the epoch of the log, and returns the entry that it replaces, nil for none. Like
// putNow, it unlocks the log also after a panic, which the caller's queue contains.
func (l *Log) admitNow(e *Entry, key string) (before *item, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.Epoch = l.own.Epoch
	return l.admit(l.shardOf(e.Volume), key)
}

// putNow hands an encoded entry to its shard's writer, or the chunks that are to be stored before it. changed is true,
// and nothing is done, if the entry replaces another one than before.
func (l *Log) putNow(volume, key string, stored coded, before *item) (it *item, chunks []*item, changed bool,
	err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.shardOf(volume)
	again, err := l.admit(s, key)
	if err != nil || again != before {
		return nil, nil, err == nil, err
	}
	if chunks, err = l.chunksFor(s, key, stored, before); err != nil || len(chunks) > 0 {
		return nil, chunks, false, err
	}
	it, err = s.put(key, stored, l.own)
	return it, nil, false, err
}

// admit reports whether an entry may be put now, and returns the entry that it replaces, nil for none.
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

// usable returns the error that keeps entries or chunks from being put into a Lease.
func (l *Log) usable(s *shard) error {
	switch {
	case s.seen.err != nil:
		return fmt.Errorf("%w: Lease %s: %w", ErrUnreadable, s.name, s.seen.err)
	case s.seen.missing() && !l.cfg.CreateMissing && len(s.want) == 0:
		return fmt.Errorf("%w: %s", ErrNoShard, s.name)
	}
	return nil
}

// blocked returns the error that makes the entry of that key unusable, in any of the shards.
func (l *Log) blocked(key string) error {
	for _, s := range l.all {
		if err := s.kept[key]; err != nil {
			return err
		}
	}
	return nil
}

// Remove removes the entry of a volume later: the removal waits up to RemoveDelay for other writes of the shard.
// Followers are called once the removal is confirmed, unless a Put of that name follows. Remove does nothing if the
// entry does not exist or cannot be read.
func (l *Log) Remove(volume string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.shardOf(volume).remove(annotationKey(volume), l.cfg.Clock.Now().Add(l.cfg.RemoveDelay))
	}
}

// TakenOver returns the time at which this process took the log over, on the API server's clock and in whole seconds.
// It is later than any write of an earlier process, and zero if unknown.
func (l *Log) TakenOver() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return time.Time{}
	}
	return l.takenOver
}

// Follow registers changed, which must not block. It is called after each confirmed removal, both after Remove and of
// an entry that an operator settled, and when an entry of an earlier process can be read again. The latter call comes
// before any removal of that entry is confirmed.
func (l *Log) Follow(changed func(volume string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.follow = append(slices.Clip(l.follow), changed)
}

// InFlight returns whether the volume of a PersistentVolume has an entry, and the problem if that part of the log
// cannot be read. The state is unknown before TakeOver, after another process took over, and after Run.
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

// problemOf returns the first problem that concerns a volume, empty for none.
func (l *Log) problemOf(volume string) string {
	for _, p := range l.Problems() {
		if p.Of(volume) {
			return p.String()
		}
	}
	return ""
}

// LeaseOf returns a reference to the Lease of a volume's entry. It has no UID if the Lease was not read.
func (l *Log) LeaseOf(volume string) v1.ObjectReference {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.shardOf(volume)
	return v1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: l.cfg.Namespace,
		Name: s.name, UID: s.seen.uid()}
}

// State returns the state of a volume's entry from memory, without a read of the API server.
func (l *Log) State(volume string) State {
	_, state := l.find(volume)
	return state
}

// Get returns the entry of a volume and its state from memory, without a read of the API server. The entry is set for
// Open, Adding and Removing; for Adding it is the entry being added. The caller must not change its requests.
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

// Entries returns the open entries and the ones whose removal is not confirmed yet, sorted by name. The caller must not
// change their requests.
func (l *Log) Entries() []Entry {
	l.mu.Lock()
	var entries []Entry
	if l.err == nil {
		for _, s := range l.shards {
			for _, it := range s.want {
				if it.confirmed {
					entries = append(entries, *it.entry)
				}
			}
			for _, it := range s.removing {
				entries = append(entries, *it.entry)
			}
		}
	}
	l.mu.Unlock()
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Volume, b.Volume) })
	return entries
}

// Confirm reads the shard of an open entry, in one read for concurrent calls, and returns nil if the API server has the
// entry and this process leads. If the Lease or the entry is gone, Confirm waits until it is written anew.
//
// It returns ErrSettled if an operator settled the entry, which is then removed, ErrAbsent if the log has no such
// entry, ErrUnreadable, ErrSuperseded, or the cause of ctx, which leaves the state open.
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

// Problems returns the read-only shards and unreadable entries, by shard and key. Their Leases are read again each
// minute, so a problem goes away some time after its cause. The exceptions are a Lease that was repaired without being
// deleted, and an entry that another program added or changed: only the next process reads them.
func (l *Log) Problems() []Problem {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.problems()
}

// problems is Problems for callers that hold the lock.
func (l *Log) problems() (problems []Problem) {
	for _, s := range l.all {
		lease := func(o *coordinationv1.Lease) string {
			if o == nil {
				return l.cfg.Namespace + "/" + s.name
			}
			return leaseName(o)
		}
		if s.seen.err != nil {
			problems = append(problems, Problem{Lease: lease(s.seen.blames), Err: s.seen.err, shards: len(l.shards)})
		}
		for _, key := range slices.Sorted(maps.Keys(s.kept)) {
			problems = append(problems, Problem{Lease: lease(s.seen.leaseOf(key)), Annotation: key, Volume: volumeOf(key),
				Err: s.kept[key]})
		}
	}
	return problems
}

// Stats returns the current figures.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	stats := Stats{Elsewhere: l.elsewhere}
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
		stats.Fill = max(stats.Fill, float64(s.used(l.own))/float64(room))
	}
	return stats
}

// emptyShard returns a new shard, which has no UID yet because only the API server assigns it.
func (l *Log) emptyShard(name string) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = l.cfg.Namespace, name
	lease.Labels = withLabels(nil)
	m := meta{Version: metaVersion, Driver: l.own.Driver, Shards: l.own.Shards}
	lease.Annotations = map[string]string{annMeta: m.String()}
	return lease
}
