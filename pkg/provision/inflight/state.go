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

// shard is what is known of one Lease, of entries or of chunks, and wanted of it. The Log's mutex guards it.
type shard struct {
	number int
	name   string
	wake   chan struct{} // to its writer

	seen  view // as last read or answered; the Lease is not changed
	known bool // nothing is known to have changed since
	taken bool // this process' epoch was written to it, or it was seen missing
	write int64
	tries []map[string]string // contents of writes whose outcome is not known, all on what was seen: they may still land
	// mayRefer are the chunks of the entries of writes on what was seen that may have landed or may still land.
	mayRefer map[string]string

	want     map[string]*item // by key
	removing map[string]*item // no longer wanted, and perhaps stored
	kept     map[string]error // why it cannot be read
	removeAt time.Time        // when removals are written at the latest; zero for at once
	checks   []*check
	removed  []string // volumes whose removal is confirmed and was not reported yet

	fenced    bool // the other shards were looked at since the Lease was created
	failures  int
	retryAt   time.Time
	recheckAt time.Time
	lastErr   error
}

// item is an entry, or a chunk, that is wanted.
type item struct {
	coded
	confirmed bool          // it was seen to be stored
	done      chan struct{} // closed by end
	err       error         // what it ended with
	used      time.Time     // when something referred to a chunk last, zero if that was not looked at

	// What it replaced, to restore if it is refused.
	was      *item // confirmed
	removing bool  // was is being removed
}

func newItem(c coded) *item { return &item{coded: c, done: make(chan struct{})} }

// storedItem returns an item that is stored.
func storedItem(c coded) *item {
	it := newItem(c)
	it.confirmed = true
	return it
}

// end answers the Puts that wait, if they were not answered before.
func (it *item) end(err error) {
	select {
	case <-it.done:
	default:
		it.err = err
		close(it.done)
	}
}

// check is a Confirm that waits.
type check struct {
	key   string
	asked bool // a read was begun since
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

// values returns the wanted bytes by key.
func (s *shard) values() map[string]string {
	values := make(map[string]string, len(s.want))
	for key, it := range s.want {
		values[key] = it.value
	}
	return values
}

// put makes an entry wanted. It returns nil if it is stored already.
func (s *shard) put(key string, e coded, own meta) (*item, error) {
	if before := s.want[key]; before != nil && before.confirmed && before.value == e.value && s.holds(key, before) {
		return nil, nil
	}
	if err := s.fits(key, newItem(e), own); err != nil {
		return nil, err
	}
	return s.add(key, e), nil
}

// fits returns why a shard has no room for an entry, nil if it has.
func (s *shard) fits(key string, it *item, own meta) error {
	before := s.want[key]
	s.want[key] = it
	err := s.admit(it, before, own)
	if delete(s.want, key); before != nil {
		s.want[key] = before
	}
	return err
}

// add makes an entry, or a chunk, wanted.
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
		before.end(fmt.Errorf("%w: another one replaced it", ErrUnconfirmed))
	}
	s.want[key] = it
	delete(s.removing, key)
	s.poke()
	return it
}

// total is the size of the annotations of the next write, about: the number of the write may add some digits.
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

// keeps reports whether a write leaves an annotation that is not wanted. What settles an entry goes with the entry, so
// that it does not meet a later one of the same name.
func (s *shard) keeps(key string) bool {
	if strings.HasPrefix(key, entryPrefix) {
		return s.isKept(key)
	}
	return !strings.HasPrefix(key, settlePrefix) && !strings.HasPrefix(key, chunkPrefix)
}

// remove makes an entry unwanted.
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

// compose returns the next write. No two writes are equal.
func (s *shard) compose(own meta) *coordinationv1.Lease {
	s.write++
	own.Write = s.write
	for _, it := range s.want {
		maps.Copy(s.mayRefer, it.refers)
	}
	return compose(s.seen, own, s.values(), s.keeps)
}

// sent notes the content of a write whose outcome is not known. One that is sent again unchanged is the same.
func (s *shard) sent(entries map[string]string) {
	if n := len(s.tries); n == 0 || !maps.Equal(s.tries[n-1], entries) {
		s.tries = append(s.tries, entries)
	}
}

// refuse ends the Puts of a write that was not sent or was refused, nil for all that wait. Where no other write is
// open they are not stored, and what they replaced is wanted again. A chunk may land unasked: it is adopted then.
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

// stored says whether the Lease as last seen has an entry of that key.
func (s *shard) stored(key string) bool {
	if s.seen.lease == nil {
		return false
	}
	_, there := s.seen.lease.Annotations[key]
	return there
}

// holds says whether the Lease as last seen has these bytes for that key.
func (s *shard) holds(key string, it *item) bool {
	return s.stored(key) && s.seen.lease.Annotations[key] == it.value
}

// mayLand says whether a write that is open stores an entry of that key.
func (s *shard) mayLand(key string) bool {
	return slices.ContainsFunc(s.tries, func(entries map[string]string) bool {
		_, stores := entries[key]
		return stores
	})
}

// mayChange reports whether a write that is open removes or replaces these bytes of that key.
func (s *shard) mayChange(key, value string) bool {
	return slices.ContainsFunc(s.tries, func(entries map[string]string) bool { return entries[key] != value })
}

// fit ends with ErrFull the Puts for which others' annotations left no room.
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

// observe takes in the Lease as it was read or answered. It returns ErrSuperseded if another process leads.
// others is what others did.
func (s *shard) observe(v view, own meta) (others change, err error) {
	same := s.seen.err == nil && !s.seen.fresh() && s.seen.uid() == v.uid() // the Lease that we wrote to
	switch {
	case superseded(v, own, same):
		if !s.taken && v.meta.Epoch < own.Epoch {
			v.err = fmt.Errorf("%w: somebody repaired it", ErrAppeared)
			break
		}
		return change{}, fmt.Errorf("%w: epoch %d of %q in Lease %s, ours is %d",
			ErrSuperseded, v.meta.Epoch, v.meta.Identity, s.name, own.Epoch)
	case v.missing():
		s.taken, s.fenced = true, false
		clear(s.kept)
	case v.err == nil:
		others = s.takeIn(v)
	}
	if s.seen.version() != v.version() {
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

// takeIn drops what an operator settled, and keeps what somebody else added.
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

// conclude confirms what the Lease as last seen shows and no open write changes.
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
			if it.entry != nil { // it is no chunk
				s.removed = append(s.removed, it.entry.Volume)
			}
		}
	}
}

// ask makes the Confirms that wait depend on the read that begins now, or, if it failed, on a later one.
func (s *shard) ask(begins bool) {
	for _, c := range s.checks {
		c.asked = begins
	}
}

// answer ends the Confirms whose read has begun, by what was seen since.
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
			return false // it is written anew
		}
		return true
	})
}

// finish answers all that waits when the Log ends.
func (s *shard) finish(err error) {
	for _, it := range s.want {
		it.end(errors.Join(err, ErrUnconfirmed))
	}
	for _, c := range s.checks {
		c.done <- err
	}
	s.checks = nil
}

// situation says what the next step depends on.
func (s *shard) situation(own meta, now time.Time) situation {
	f := situation{
		known: s.known, missing: s.seen.missing(), readOnly: s.seen.err != nil, fresh: s.seen.fresh(), fenced: s.fenced,
		ours:    s.seen.meta.ledBy(own),
		entries: len(s.want) > 0, removals: len(s.removing)+len(s.seen.with(settlePrefix)) > 0,
		uncertain: len(s.tries) > 0,
		asked:     slices.ContainsFunc(s.checks, func(c *check) bool { return !c.asked }),
		retryIn:   s.retryAt.Sub(now), removeIn: s.removeAt.Sub(now), recheckIn: -1,
	}
	for key, it := range s.want {
		f.puts = f.puts || !s.holds(key, it)
	}
	if f.readOnly || len(s.kept) > 0 || s.hasChunks() && f.entries {
		f.recheckIn = max(0, s.recheckAt.Sub(now))
	}
	return f
}
