package inflight

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// shard is the observed and the wanted state of one Lease with entries or chunks, guarded by the Log's mutex.
type shard struct {
	number int
	name   string
	wake   chan struct{} // wakes its writer

	seen  view // the Lease as last read or answered, never changed
	known bool // no change since is known
	taken bool // this process' epoch was written to it, or it was seen missing
	write int64
	tries []map[string]string // contents of writes on top of seen with unknown outcome, which may still land
	// oldMayLand is the version of the old Lease on which such a write of it is based, empty for none.
	oldMayLand string
	aging      aging
	moveFrom   time.Time // no entry moves to the old Lease before
	// mayRefer has the chunks of entries in writes on top of seen that may have landed or may still land.
	mayRefer map[string]string

	want     map[string]*item // by key
	removing map[string]*item // no longer wanted, but perhaps still stored
	kept     map[string]error // why each cannot be read
	removeAt time.Time        // when removals are written at the latest, zero for immediately
	checks   []*check
	changed  []string // volumes whose entry was removed, or can be read again, which was not reported yet

	fenced    bool // the other shards were read since the Lease was created
	failures  int
	retryAt   time.Time
	recheckAt time.Time
	lastErr   error
}

// item is a wanted entry or chunk.
type item struct {
	coded
	confirmed bool          // it was seen in the Lease
	done      chan struct{} // closed by end
	err       error         // the result
	used      time.Time     // when a chunk was last referred to, zero if that was never checked

	// The replaced item, restored if this one is refused.
	was      *item // confirmed
	removing bool  // was is itself being removed
}

func newItem(c coded) *item { return &item{coded: c, done: make(chan struct{})} }

// storedItem returns an item that is already stored.
func storedItem(c coded) *item {
	it := newItem(c)
	it.confirmed = true
	return it
}

// end answers the waiting Puts, unless they were answered before.
func (it *item) end(err error) {
	select {
	case <-it.done:
	default:
		it.err = err
		close(it.done)
	}
}

// check is a waiting Confirm.
type check struct {
	key   string
	asked bool // a read was started since
	done  chan error
}

func newShard(number int, name string) *shard {
	return &shard{
		number: number, name: name, wake: make(chan struct{}, 1),
		want: map[string]*item{}, removing: map[string]*item{}, kept: map[string]error{}, mayRefer: map[string]string{},
	}
}

func (s *shard) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *shard) isKept(key string) bool { return s.kept[key] != nil }

func (s *shard) values() map[string]string {
	values := make(map[string]string, len(s.want))
	for key, it := range s.want {
		values[key] = it.value
	}
	return values
}

// put makes an entry wanted, and returns nil if the entry is already stored.
func (s *shard) put(key string, e coded, own meta) (*item, error) {
	if before := s.want[key]; before != nil && before.confirmed && before.value == e.value && s.holds(key, before) {
		return nil, nil
	}
	if err := s.fits(key, newItem(e), own); err != nil {
		return nil, err
	}
	return s.add(key, e), nil
}

// fits returns an error if a shard has no room for an entry.
func (s *shard) fits(key string, it *item, own meta) error {
	before := s.want[key]
	s.want[key] = it
	err := s.admit(it, before, own)
	if delete(s.want, key); before != nil {
		s.want[key] = before
	}
	return err
}

func (s *shard) add(key string, c coded) *item {
	it := newItem(c)
	before := s.want[key]
	switch leaving := s.removing[key]; {
	case before != nil && before.confirmed:
		it.was = before
	case before != nil:
		it.was, it.removing = before.was, before.removing
	case leaving != nil:
		it.was, it.removing = leaving, true
	}
	if before != nil {
		before.end(fmt.Errorf("%w: another writer replaced it", ErrUnconfirmed))
	}
	s.want[key] = it
	delete(s.removing, key)
	s.poke()
	return it
}

// total estimates the size of the next write's annotations; the number of the write may add some digits.
func (s *shard) total(own meta) int {
	own.UID, own.Write = s.seen.uid(), s.write
	total := len(annMeta) + len(own.String())
	if s.seen.lease != nil {
		for key, value := range s.seen.lease.Annotations {
			if key != annMeta && s.want[key] == nil && s.keeps(key) {
				total += len(key) + len(value)
			}
		}
	}
	for key, it := range s.want {
		total += len(key) + len(it.value)
	}
	return total
}

// used returns the room that the next write's annotations take by weight.
func (s *shard) used(own meta) int {
	used := s.total(own)
	for _, it := range s.want {
		used += it.weight() - len(it.value)
	}
	return used
}

// keeps reports whether a write leaves an annotation that is not wanted. A settling annotation is removed with its
// entry, so that it does not meet a later entry of the same name.
func (s *shard) keeps(key string) bool {
	if strings.HasPrefix(key, entryPrefix) {
		return s.isKept(key)
	}
	return !strings.HasPrefix(key, settlePrefix) && !strings.HasPrefix(key, chunkPrefix)
}

func (s *shard) remove(key string, at time.Time) {
	it := s.want[key]
	if it == nil {
		return
	}
	it.end(fmt.Errorf("%w: it is being removed", ErrUnconfirmed))
	delete(s.want, key)
	if len(s.removing) == 0 {
		s.removeAt = at
	}
	s.removing[key] = it
	s.poke()
}

// compose returns the next write, which differs from all earlier ones.
func (s *shard) compose(own meta) *coordinationv1.Lease {
	s.write++
	own.Write = s.write
	for _, it := range s.want {
		maps.Copy(s.mayRefer, it.refers)
	}
	return compose(s.seen, own, s.values(), s.keeps)
}

// sent records the content of a write with unknown outcome. A repeated write with the same content counts once.
func (s *shard) sent(entries map[string]string) {
	if n := len(s.tries); n == 0 || !maps.Equal(s.tries[n-1], entries) {
		s.tries = append(s.tries, entries)
	}
}

// refuse fails the Puts of a write that was not sent or was refused, or all waiting Puts if entries is nil. Unless
// another pending write contains them, they are not stored, and the replaced items are wanted again. A chunk may still
// land unasked, and is then adopted.
func (s *shard) refuse(entries map[string]string, err error) {
	for key, it := range s.want {
		if it.confirmed || entries != nil && entries[key] != it.value {
			continue
		}
		if s.mayLand(key) && !s.hasChunks() {
			it.end(fmt.Errorf("%w: %w", ErrUnconfirmed, err))
			continue
		}
		s.rollBack(key, it)
		it.end(err)
	}
	if len(s.tries) == 0 {
		clear(s.mayRefer)
	}
}

func (s *shard) rollBack(key string, it *item) {
	delete(s.want, key)
	switch {
	case it.was == nil:
	case it.removing:
		s.removing[key] = it.was
	default:
		s.want[key] = it.was
	}
}

// mayHave yields the items that the Lease may have: the wanted ones, the ones being removed, and the ones that either
// replace.
func (s *shard) mayHave(yield func(*item) bool) {
	for _, items := range []map[string]*item{s.want, s.removing} {
		for _, it := range items {
			for ; it != nil; it = it.was {
				if !yield(it) {
					return
				}
			}
		}
	}
}

// stored reports whether the observed Lease has an entry of that key.
func (s *shard) stored(key string) bool {
	if s.seen.lease == nil {
		return false
	}
	_, there := s.seen.lease.Annotations[key]
	return there
}

// holds reports whether the observed Lease has these bytes for that key.
func (s *shard) holds(key string, it *item) bool {
	return s.stored(key) && s.seen.lease.Annotations[key] == it.value
}

// mayLand reports whether a pending write stores an entry of that key.
func (s *shard) mayLand(key string) bool {
	return slices.ContainsFunc(s.tries, func(entries map[string]string) bool {
		_, stores := entries[key]
		return stores
	})
}

// mayChange reports whether a pending write removes or replaces these bytes of that key.
func (s *shard) mayChange(key, value string) bool {
	return slices.ContainsFunc(s.tries, func(entries map[string]string) bool { return entries[key] != value })
}

// fit fails Puts with ErrFull while annotations of others leave no room.
func (s *shard) fit(own meta) {
	for _, key := range slices.Sorted(maps.Keys(s.want)) {
		if s.total(own) <= room {
			return
		}
		if it := s.want[key]; !it.confirmed && !s.mayLand(key) {
			s.rollBack(key, it)
			it.end(fmt.Errorf("%w: %s", ErrFull, s.name))
		}
	}
}

// observe records the Lease as it was read or answered, and returns the changes by others. The error is ErrSuperseded
// if another process leads.
func (s *shard) observe(v view, own meta) (others change, err error) {
	same := s.seen.err == nil && !s.seen.fresh() && s.seen.uid() == v.uid() // the Lease of our last write
	switch {
	case superseded(v, own, same), superseded(look(v.old, ""), own, true):
		if !s.taken && v.meta.Epoch < own.Epoch {
			v.err = fmt.Errorf("%w: another program repaired it", ErrAppeared)
			break
		}
		return change{}, supersededBy(v, s.name, own)
	case v.missing():
		s.taken, s.fenced = true, false
		clear(s.kept)
	case v.err == nil:
		others = s.takeIn(v)
	}
	if v.old == nil || v.old.ResourceVersion != s.oldMayLand {
		s.oldMayLand = ""
	}
	if s.seen.version() != v.version() && s.oldMayLand == "" {
		s.tries = nil
		clear(s.mayRefer)
	}
	s.seen, s.known = v, true
	if v.err == nil {
		s.conclude()
	} else {
		s.refuse(nil, fmt.Errorf("%w: Lease %s: %w", ErrUnreadable, s.name, v.err))
	}
	s.answer(others)
	return others, nil
}

// takeIn removes the entries that an operator settled, and keeps the entries that others added.
func (s *shard) takeIn(v view) change {
	if s.hasChunks() {
		s.adopt(v)
	}
	others := compare(v, s.values(), func(key string) bool { return s.removing[key] != nil }, s.isKept)
	for _, key := range others.settled {
		s.want[key].end(ErrSettled)
		s.remove(key, time.Time{})
	}
	for _, key := range others.appeared {
		s.kept[key] = ErrAppeared
	}
	maps.DeleteFunc(s.kept, func(key string, _ error) bool {
		_, there := v.lease.Annotations[key]
		return !there
	})
	return others
}

// conclude confirms every entry that the last observed Lease holds and no pending write changes, and every removal of
// an entry that neither the Lease nor a pending write has.
func (s *shard) conclude() {
	for key, it := range s.want {
		if s.holds(key, it) && !s.mayChange(key, it.value) {
			it.confirmed, it.was = true, nil
			it.end(nil)
		}
	}
	for key, it := range s.removing {
		if !s.stored(key) && !s.mayLand(key) {
			delete(s.removing, key)
			if it.entry != nil { // not a chunk
				s.changed = append(s.changed, it.entry.Volume)
			}
		}
	}
}

// ask makes the waiting Confirms depend on the read that begins now, or on a later one if it failed.
func (s *shard) ask(begins bool) {
	for _, c := range s.checks {
		c.asked = begins
	}
}

// answer ends the Confirms whose read was started, according to the Lease observed since.
func (s *shard) answer(others change) {
	s.checks = slices.DeleteFunc(s.checks, func(c *check) bool {
		it := s.want[c.key]
		switch {
		case !c.asked:
			return false
		case slices.Contains(others.settled, c.key):
			c.done <- ErrSettled
		case it == nil:
			c.done <- ErrAbsent
		case s.seen.err != nil:
			c.done <- fmt.Errorf("%w: Lease %s: %w", ErrUnreadable, s.name, s.seen.err)
		case s.holds(c.key, it):
			c.done <- nil
		default:
			return false // it will be written anew
		}
		return true
	})
}

// finish fails all pending calls when the Log ends.
func (s *shard) finish(err error) {
	for _, it := range s.want {
		it.end(errors.Join(err, ErrUnconfirmed))
	}
	for _, c := range s.checks {
		c.done <- err
	}
	s.checks = nil
}

// situation collects the facts that the next step depends on.
func (s *shard) situation(own meta, now time.Time) situation {
	f := situation{
		known: s.known, missing: s.seen.missing(), readOnly: s.seen.err != nil, fresh: s.seen.fresh(), fenced: s.fenced,
		ours:    s.seen.meta.ledBy(own),
		entries: len(s.want) > 0, removals: len(s.removing)+len(s.seen.with(settlePrefix)) > 0,
		uncertain: len(s.tries) > 0,
		asked:     slices.ContainsFunc(s.checks, func(c *check) bool { return !c.asked }),
		retryIn:   s.retryAt.Sub(now), removeIn: s.removeAt.Sub(now), recheckIn: -1,
		moveIn: s.moveIn(now),
	}
	for key, it := range s.want {
		f.puts = f.puts || !s.holds(key, it)
	}
	if f.readOnly || len(s.kept) > 0 || s.seen.old != nil || s.hasChunks() && f.entries {
		f.recheckIn = max(0, s.recheckAt.Sub(now))
	}
	return f
}
