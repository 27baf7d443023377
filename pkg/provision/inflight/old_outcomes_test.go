package inflight

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// outcomes are the ways in which a write can end: it is answered, it is lost, its answer is lost, it lands after its
// caller gave up, and it is refused.
var outcomes = []fault{{}, lost, {err: lost.err, carry: true}, {late: 20 * time.Second}, denied}

// TestEveryOutcomeOfTheWritesOfAShard tries all outcomes of four writes in a row of a shard with an old Lease, while an
// entry is replaced, another one is removed, and both Leases are written. Another process takes over early, amid, or
// late. At each stored write, no confirmed entry is missing or as it was before, and no removed one is back.
func TestEveryOutcomeOfTheWritesOfAShard(t *testing.T) {
	t.Parallel()
	const writes = 4
	total := 1
	for range writes {
		total *= len(outcomes)
	}
	for _, after := range []time.Duration{700 * time.Millisecond, 18 * time.Second, 5 * time.Minute} {
		for script := range total {
			synctest.Test(t, func(t *testing.T) { playOutcomes(t, script, writes, after) })
			if t.Failed() {
				t.Fatalf("take-over after %v, script %d", after, script)
			}
		}
	}
}

func playOutcomes(t *testing.T, script, writes int, after time.Duration) {
	t.Helper()
	s := newStore()
	p, v := doubt(t, s, 2)
	var mu sync.Mutex
	confirmed, removed := map[string]string{}, map[string]bool{}
	s.mu.Lock()
	s.committed = func(by string, lease *coordinationv1.Lease) {
		mu.Lock()
		defer mu.Unlock()
		if strings.TrimSuffix(lease.Name, oldSuffix) != shardName(3) {
			return
		}
		entries := s.whole(v[0], Shards).entries()
		for volume, value := range confirmed {
			if entries[annotationKey(volume)] != value {
				t.Errorf("%s wrote Lease %s, and volume %s is not as confirmed", by, lease.Name, volume)
			}
		}
		for volume := range removed {
			if entries[annotationKey(volume)] != "" {
				t.Errorf("%s wrote Lease %s, and volume %s is back", by, lease.Name, volume)
			}
		}
	}
	s.mu.Unlock()
	follow := func(volume string) {
		mu.Lock()
		defer mu.Unlock()
		removed[volume] = true
	}
	p.Follow(follow)
	n := 0
	s.fail(func(c call) fault {
		if c.verb == "get" || c.by != "one" {
			return fault{}
		}
		at := script
		for range n {
			at /= len(outcomes)
		}
		if n++; n > writes {
			return fault{}
		}
		return outcomes[at%len(outcomes)]
	})
	put := func(e Entry) {
		if p.put(e) != nil {
			return
		}
		got, state := p.Get(e.Volume)
		if state != Open { // another process has taken over meanwhile
			return
		}
		stored, err := p.codec.encode(&got)
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		confirmed[e.Volume] = stored.value
	}
	go put(doubled(v[0]))
	time.Sleep(100 * time.Millisecond)
	p.Remove(v[1])
	go put(entry(volumes(3, 3)[2]))
	time.Sleep(after)
	next := prepare(t, settings(s, "two"))
	next.age(aging{bytes: 1, after: time.Minute, along: time.Second})
	next.Follow(follow)
	next.take()
	next.run()
	time.Sleep(5 * time.Minute)
	mu.Lock()
	for volume := range confirmed {
		if state := next.state(volume); state != Open {
			t.Errorf("volume %s is %v", volume, state)
		}
	}
	clear(confirmed)
	mu.Unlock()
	if state := next.state(v[0]); state != Open {
		t.Errorf("volume %s is %v", v[0], state)
	}
	for _, volume := range volumes(3, 3) {
		next.Remove(volume)
	}
	time.Sleep(time.Minute)
	s.wantPlaces(t, nil, nil)
	if t.Failed() {
		t.Log(fmt.Sprint("removed: ", removed))
	}
}

// TestNextProcessReadsOldEntries checks the end of a process at each of its writes, whether or not the write lands.
func TestNextProcessReadsOldEntries(t *testing.T) {
	for at := range 8 {
		for _, landed := range []bool{false, true} {
			t.Run(fmt.Sprint(at, landed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStore()
					p, v := doubt(t, s, 4)
					writes := 0
					s.fail(func(c call) fault {
						if c.verb == "get" || c.by != "one" {
							return fault{}
						}
						if writes++; writes <= at {
							return fault{}
						}
						return fault{err: lost.err, carry: landed && writes == at+1}
					})
					go p.put(doubled(v[0])) //nolint:errcheck // it may not be confirmed
					time.Sleep(time.Second)
					p.Remove(v[1])
					go p.put(entry(volumes(3, 5)[4])) //nolint:errcheck // as before
					time.Sleep(3 * time.Minute)
					next := prepare(t, settings(s, "two"))
					next.take()
					next.run()
					removed := slices.Contains(p.removed, v[1])
					for _, volume := range v {
						if state := next.state(volume); state != Open && volume != v[1] || removed && volume == v[1] && state != Absent {
							t.Errorf("volume %s is %v, removed: %v", volume, state, p.removed)
						}
					}
					if e, _ := next.Get(v[0]); p.state(v[0]) == Open && len(e.Requests) != 2 {
						t.Errorf("volume %s has %d requests", v[0], len(e.Requests))
					}
					s.fail(nil)
					time.Sleep(5 * time.Minute)
					for _, volume := range volumes(3, 5) {
						next.Remove(volume)
					}
					time.Sleep(5 * time.Minute)
					s.wantPlaces(t, nil, nil)
				})
			})
		}
	}
}

// TestFormerProcessWritesNoOldLease: a process that was superseded moves or removes nothing.
func TestFormerProcessWritesNoOldLease(t *testing.T) {
	for name, delay := range map[string]fault{"late": {late: 90 * time.Second}, "slow": {wait: 90 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				p, v := doubt(t, s, 4)
				s.fail(func(c call) fault {
					if c.by == "one" && c.verb == "update" && c.name == oldName {
						return delay
					}
					return fault{}
				})
				p.Remove(v[0])
				time.Sleep(time.Second)
				next := start(t, settings(s, "two"))
				next.wantState(v[0], Open)
				time.Sleep(5 * time.Minute)
				s.wantStored(t, v...)
				next.mustConfirm(v[0])
			})
		})
	}
}

// TestLateRemovalFromOldLease: an entry that is added again is not confirmed while the removal may land.
func TestLateRemovalFromOldLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		p, v := doubt(t, s, 2)
		e, _ := p.Get(v[0])
		s.fail(fault{late: 20 * time.Second}.to("update").of(oldName).once())
		p.Remove(v[0])
		time.Sleep(15*time.Second + 520*time.Millisecond) // the call has ended, and the next one has not begun
		s.forget()
		p.mustPutEntry(e)
		if n := s.count("update"); n > 4 {
			t.Errorf("%d writes", n)
		}
		time.Sleep(time.Minute)
		s.wantStored(t, v...)
		p.wantRemoved()
	})
}

// TestTakeOverOfOldLease: a read, or a write of the epoch, is repeated if it fails or is not answered. A Lease that is
// missing has no entries.
func TestTakeOverOfOldLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		p, v := doubt(t, s, 2)
		if _, err := p.openOld(t.Context(), p.shards[3], p.shards[4].seen); !errors.Is(err, errShardChanged) {
			t.Errorf("of another version of the shard: %v", err)
		}
		carried := fault{err: lost.err, carry: true}
		for _, f := range []faults{lost.to("update"), carried.to("update"), down.to("get")} {
			s.fail(f.of(oldName).once())
			next := start(t, settings(s, "two"))
			next.wantState(v[0], Open)
			next.mustConfirm(v[1])
			if got := look(s.read(oldName), driver).meta; got.Epoch != next.own.Epoch || got.Process != next.own.Process {
				t.Errorf("its epoch is %d", got.Epoch)
			}
		}
		s.edit(shardName(3), func(l *coordinationv1.Lease) { l.UID = "copied" })
		version := s.read(oldName).ResourceVersion
		start(t, settings(s, "three")).wantState(v[0], Unreadable)
		if s.read(oldName).ResourceVersion != version {
			t.Error("the old Lease of a copy is written")
		}
		s.edit(shardName(3), func(l *coordinationv1.Lease) { l.UID = look(l, driver).meta.UID })
		s.remove(oldName)
		start(t, settings(s, "four")).wantState(v[0], Absent)
	})
}

// TestStopEmptiesOldLease: a former release would take its entries for volumes in flight in another log.
func TestStopEmptiesOldLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		p, v := doubt(t, s, 3)
		p.stop()
		s.wantPlaces(t, v, nil)
		if got := (view{lease: s.read(oldName)}).entries(); len(got) > 0 {
			t.Errorf("the old Lease has %v", got)
		}
		start(t, settings(s, "two")).wantState(v[0], Open)
	})
}
