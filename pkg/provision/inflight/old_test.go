package inflight

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

const oldName = "inflight-csi-reclaimer-io-3-old"

// doubt starts a process with n entries of one shard that have been in the log for longer than entries stay in the
// young Lease.
func doubt(t *testing.T, s *store, n int) (p *process, v []string) {
	t.Helper()
	p = prepare(t, settings(s, "one"))
	p.age(aging{})
	p.shards[3].aging = aging{bytes: 1, after: time.Minute, along: time.Second}
	p.take()
	p.run()
	v = volumes(3, n)
	p.mustPut(v...)
	time.Sleep(150 * time.Second) // the entries move after a minute, and the shard is read each minute after that
	s.wantPlaces(t, nil, v)
	return p, v
}

// wantPlaces checks the entries in both Leases of shard 3, and that a former release reads no Lease of which it would
// miss entries, or which it takes for foreign.
func (s *store) wantPlaces(t *testing.T, young, old []string) {
	t.Helper()
	if o := (view{lease: s.read(oldName)}); len(o.entries()) > 0 != (look(o.lease, driver).meta.Version == splitVersion) {
		t.Errorf("the old Lease has version %d and %v", look(o.lease, driver).meta.Version, o.entries())
	}
	s.want(t, young, old)
}

// wantYoung checks that the young Lease has all entries, whatever is in an old one that does not count.
func (s *store) wantYoung(t *testing.T, young []string) { s.want(t, young, nil) }

func (s *store) want(t *testing.T, young, old []string) {
	t.Helper()
	keys := func(lease *coordinationv1.Lease) []string {
		return slices.Sorted(maps.Keys(view{lease: lease}.entries()))
	}
	of := func(volumes []string) (keys []string) {
		for _, volume := range volumes {
			keys = append(keys, annotationKey(volume))
		}
		return slices.Sorted(slices.Values(keys))
	}
	lease := s.read(shardName(3))
	version := look(lease, driver).meta.Version
	var there []string
	if version == splitVersion {
		there = keys(s.read(oldName))
	}
	if got := keys(lease); !slices.Equal(got, of(young)) || !slices.Equal(there, of(old)) ||
		(version == metaVersion) != (len(old) == 0) || (lease.Annotations[splitMark] == "") != (len(old) == 0) {
		t.Errorf("version %d, young %v, old %v", version, got, there)
	}
}

// TestHealthyClaimsCostNoEntriesInDoubt measures the bytes of the PUTs for 50 claims beside entries in doubt.
func TestHealthyClaimsCostNoEntriesInDoubt(t *testing.T) {
	t.Parallel()
	const healthy = 50
	cost := map[int]int{}
	for _, n := range []int{0, 10, 100, 800} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			s.latency = 10 * time.Millisecond
			p := start(t, settings(s, "one"))
			var all sync.WaitGroup
			for i := range n {
				e := onNodes(fmt.Sprintf("pvc-%08x-6f0e-4a55-9c5e-2f2d6f7b8a01", i*7919), nodes(3), 0)
				e.Claim.Namespace, e.Begun = fmt.Sprint("doubt-", i%10), time.Time{}
				all.Go(func() { p.mustPutEntry(e) })
			}
			all.Wait()
			time.Sleep(70 * time.Second)
			written, largest := 0, 0
			s.mu.Lock()
			s.committed = func(_ string, lease *coordinationv1.Lease) {
				written += size(lease.Annotations)
				largest = max(largest, size(lease.Annotations))
			}
			s.mu.Unlock()
			for i := range healthy {
				e := onNodes(fmt.Sprintf("pvc-%08x-6f0e-4a55-9c5e-2f2d6f7b8a02", i*7919), nodes(3), 0)
				e.Begun = time.Time{}
				all.Go(func() {
					p.mustPutEntry(e)
					time.Sleep(100 * time.Millisecond)
					p.Remove(e.Volume)
				})
			}
			all.Wait()
			time.Sleep(10 * time.Second)
			s.mu.Lock()
			s.committed = nil
			s.mu.Unlock()
			cost[n] = written / healthy
			t.Logf("beside %d entries in doubt: %d bytes a volume, the largest PUT %d", n, cost[n], largest)
			if got := len(p.Entries()); got != n {
				t.Errorf("%d entries, want %d", got, n)
			}
		})
	}
	if cost[800] > cost[0]+ordinaryAging().bytes || cost[800] > cost[10]+1024 {
		t.Errorf("bytes a volume by entries in doubt: %v", cost)
	}
}

func TestMoveAt(t *testing.T) {
	t.Parallel()
	a, at := aging{bytes: 10, after: time.Minute, along: time.Second}, time.Unix(1000, 0)
	for name, test := range map[string]struct {
		all  []aged
		want time.Duration
		ever bool
	}{
		"none":      {nil, 0, false},
		"too small": {[]aged{{"a", at, 9}}, 0, false},
		"enough":    {[]aged{{"a", at, 10}}, time.Minute, true},
		"enough together, in any order": {[]aged{{"a", at.Add(9), 4}, {"b", at, 4}, {"c", at.Add(7), 4}},
			time.Minute + 9, true},
		"the youngest does not count": {[]aged{{"a", at.Add(9), 1}, {"b", at, 4}, {"c", at.Add(7), 6}},
			time.Minute + 7, true},
	} {
		got, ever := moveAt(test.all, a)
		if ever != test.ever || ever && got.Sub(at) != test.want {
			t.Errorf("%s: %v, %v", name, got.Sub(at), ever)
		}
	}
}

func TestMoving(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	for name, test := range map[string]struct {
		ages []time.Duration // of entries of 1,000 bytes each
		edit func(*shard)
		want int
		in   time.Duration
	}{
		"none":              {nil, nil, 0, -1},
		"not enough":        {[]time.Duration{time.Hour}, nil, 0, -1},
		"not old enough":    {[]time.Duration{50 * time.Second, 40 * time.Second}, nil, 0, 20 * time.Second},
		"old enough":        {[]time.Duration{time.Hour, time.Minute}, nil, 2, 0},
		"with younger ones": {[]time.Duration{time.Hour, time.Minute, 30 * time.Second, 29 * time.Second}, nil, 3, 0},
		"never":             {[]time.Duration{time.Hour, time.Hour}, func(s *shard) { s.aging = aging{} }, 0, -1},
		"after a failure":   {[]time.Duration{time.Hour, time.Hour}, func(s *shard) { s.moveFrom = now.Add(9) }, 0, 9},
		"the Lease is gone": {[]time.Duration{time.Hour, time.Hour}, func(s *shard) { s.seen = view{} }, 0, -1},
		"a write may land": {[]time.Duration{time.Hour, time.Hour}, func(s *shard) {
			s.sent(map[string]string{entryPrefix + "0": "x"})
		}, 0, -1},
		"one is not stored": {[]time.Duration{time.Hour, time.Hour}, func(s *shard) {
			s.want[entryPrefix+"0"].value = "x"
		}, 0, -1},
		"one is old": {[]time.Duration{time.Hour, time.Hour}, func(s *shard) {
			s.seen.own, s.seen.old = leaseOf(us, "u"), s.seen.lease
		}, 0, -1},
	} {
		entries := values{}
		for i := range test.ages {
			entries[fmt.Sprint(i)] = strings.Repeat("x", 1000)
		}
		s := holding(entries)
		s.aging = aging{bytes: 1500, after: time.Minute, along: 30 * time.Second}
		for i, age := range test.ages {
			s.want[entryPrefix+fmt.Sprint(i)].entry.Begun = now.Add(-age)
		}
		if test.edit != nil {
			test.edit(s)
		}
		if got, in := s.moving(now), s.moveIn(now); len(got) != test.want || in != test.in ||
			s.situation(us, now).moveIn != in {
			t.Errorf("%s: %v move in %v", name, got, in)
		}
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	of := func(version int, uid string, annotations map[string]string) *coordinationv1.Lease {
		lease := leaseOf(meta{Version: version, Driver: driver, UID: "u", Epoch: 3, Process: "p"}, "u")
		lease.UID = "u"
		if uid != "" {
			lease = leaseOf(meta{Version: version, Driver: driver, UID: "u"}, "v")
		}
		maps.Copy(lease.Annotations, annotations)
		return lease
	}
	a, b := entryPrefix+"a", entryPrefix+"b"
	old := map[string]string{a: "old", b: "old", settlePrefix + "a": "x", settlePrefix + "b": "y", "example.com/n": "n"}
	for name, test := range map[string]struct {
		young, old *coordinationv1.Lease
		want       map[string]string
		err        error
	}{
		"both": {of(2, "", map[string]string{a: "young"}), of(1, "", old),
			map[string]string{a: "young", b: "old", settlePrefix + "b": "y"}, nil},
		"the old one does not count": {of(1, "", map[string]string{a: "young"}), of(1, "", old),
			map[string]string{a: "young"}, nil},
		"the old one is missing":       {of(2, "", map[string]string{a: "young"}), nil, map[string]string{a: "young"}, nil},
		"the old one is a copy":        {of(2, "", nil), of(1, "copy", nil), nil, ErrCopy},
		"a copy that does not count":   {of(1, "", nil), of(1, "copy", nil), nil, nil},
		"the young one is a copy":      {of(2, "copy", nil), of(1, "", old), nil, ErrCopy},
		"of a version that is unknown": {of(3, "", nil), of(1, "", old), nil, ErrVersion},
	} {
		v := look(test.young, driver).join(test.old)
		got := map[string]string{}
		for key, value := range v.lease.Annotations {
			if key != annMeta {
				got[key] = value
			}
		}
		if !errors.Is(v.err, test.err) || !maps.Equal(got, test.want) {
			t.Errorf("%s: %v, %v", name, got, v.err)
		}
	}
	if v := look(nil, driver).join(of(1, "", old)); !v.missing() {
		t.Error("the young one is missing")
	}
}

// TestFormerReleaseDropsNoChunk: it finds the chunks of all entries in the young Lease, or the mark.
func TestFormerReleaseDropsNoChunk(t *testing.T) {
	t.Parallel()
	if hashes, err := hashesOf(splitMarkValue); err == nil || volumeOf(splitMark) != "old_entries" {
		t.Errorf("the chunks of an unknown entry are %v", hashes)
	}
}

// TestOldEntries checks an old entry's life: it is confirmed, replaced, removed and settled like any other.
func TestOldEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		p, v := doubt(t, s, 5)
		others := volumes(4, 1)
		p.mustPut(others...)
		for _, volume := range v {
			p.mustConfirm(volume)
			p.wantState(volume, Open)
		}
		s.forget()
		p.mustPut(volumes(3, 6)[5])
		p.Remove(volumes(3, 6)[5])
		time.Sleep(time.Second)
		if n := s.count("update"); n != 2 {
			t.Errorf("a new entry and its removal take %d writes", n)
		}
		for _, one := range p.shards {
			p.Log.mu.Lock()
			one.moveFrom = time.Now().Add(time.Minute)
			p.Log.mu.Unlock()
		}
		p.mustPutEntry(doubled(v[0]))
		s.wantPlaces(t, v[:1], v)
		if n := s.count("get"); n > 0 {
			t.Errorf("%d reads", n)
		}
		located, problems := Locate(s.all(), nil)
		for i := range located {
			want := oldName
			switch located[i].Volume {
			case v[0]:
				want = shardName(3)
				if len(located[i].Requests) != 2 {
					t.Errorf("the entry that was replaced is shown")
				}
			case others[0]:
				want = shardName(4)
			}
			if located[i].Lease.Name != want || located[i].LeaseUID != s.read(want).UID {
				t.Errorf("volume %s is in Lease %s", located[i].Volume, located[i].Lease.Name)
			}
		}
		if len(located) != 6 || len(problems) > 0 || p.cfg.strays(s.all()) != nil {
			t.Errorf("%d entries, %v", len(located), problems)
		}
		other := p.cfg
		other.Name = "other"
		if strays := other.strays(s.all()); len(strays) != 2 || strays[0].Entries != 5 {
			t.Errorf("elsewhere are %+v", strays)
		}
		time.Sleep(150 * time.Second) // it moves again
		s.wantPlaces(t, nil, v)
		s.edit(oldName, settle(v[1]))
		if located, _ := Locate(s.all(), nil); len(located) != 5 {
			t.Errorf("with one settled: %d", len(located))
		}
		wantError(t, p.confirm(v[1]), ErrSettled)
		p.mustPut(others...)
		synctest.Wait() // the settled entry is removed
		s.forget()
		p.mustConfirm(others[0])
		p.Remove(v[0])
		time.Sleep(50 * time.Second)
		if reads, writes := s.count("get"), s.count("update"); reads != 1 || writes != 2 {
			t.Errorf("%d reads, %d writes", reads, writes)
		}
		p.wantRemoved(volumes(3, 6)[5], v[1], v[0])
		s.wantPlaces(t, nil, v[2:])
		if left := (view{lease: s.read(oldName)}).with(settlePrefix); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
		s.edit(oldName, unstore(v[2])) // a person removes it
		p.mustConfirm(v[2])
		s.remove(oldName)
		p.mustConfirm(v[3])
		s.wantStored(t, append(v[2:], others...)...)
		time.Sleep(5 * time.Minute)
		s.wantPlaces(t, nil, v[2:])
		s.edit(oldName, func(l *coordinationv1.Lease) {
			l.Annotations[settlePrefix+"x"], l.Annotations["example.com/note"] = "y", "kept"
		})
		p.mustConfirm(v[2])
		time.Sleep(time.Second)
		if all := s.read(oldName).Annotations; all[settlePrefix+"x"] != "" || all["example.com/note"] != "kept" {
			t.Errorf("the old Lease has %v", all)
		}
		for _, volume := range v[2:] {
			p.Remove(volume)
		}
		time.Sleep(time.Minute)
		s.wantPlaces(t, nil, nil)
	})
}

// TestOldLeaseThatIsNotRead: what cannot be read is not missing, in either Lease.
func TestOldLeaseThatIsNotRead(t *testing.T) {
	for _, name := range []string{oldName, shardName(3)} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			p, v := doubt(t, s, 2)
			s.fail(down.to("get").of(name))
			s.forget()
			if err := p.confirm(v[0]); err == nil {
				t.Errorf("%s: it is confirmed", name)
			}
			if n := s.count("update", "create"); n > 0 {
				t.Errorf("%s: %d writes", name, n)
			}
			s.fail(nil)
			p.mustConfirm(v[0])
			s.wantPlaces(t, nil, v)
		})
	}
}

// TestTakeOverOfOldLeaseWithHigherEpoch: another process has taken it over meanwhile.
func TestTakeOverOfOldLeaseWithHigherEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		p, v := doubt(t, s, 2)
		s.edit(oldName, func(l *coordinationv1.Lease) {
			m := look(l, driver).meta
			m.Epoch, m.Process = 70, "another"
			l.Annotations[annMeta] = m.String()
		})
		wantError(t, p.confirm(v[0]), ErrSuperseded)
		next := start(t, settings(s, "two"))
		if next.own.Epoch != 71 || look(s.read(shardName(5)), driver).meta.Epoch != 71 {
			t.Errorf("its epoch is %d", next.own.Epoch)
		}
		next.wantState(v[1], Open)
	})
}

// TestOldLeaseThatDoesNotCount: the remains of a former release are neither read nor kept.
func TestOldLeaseThatDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		p, v := doubt(t, s, 3)
		s.fail(denied.to("update").of(oldName)) // or the stop would empty it
		p.stop()
		s.fail(nil)
		s.wantYoung(t, v)
		if got := len(view{lease: s.read(oldName)}.entries()); got != 3 {
			t.Errorf("the old Lease has %d entries", got)
		}
		s.edit(shardName(3), unstore(v[0])) // a former release, which has finished it
		next := prepare(t, settings(s, "two"))
		next.age(aging{bytes: 1, after: time.Minute, along: time.Second})
		next.take()
		next.wantState(v[0], Absent)
		next.run()
		time.Sleep(5 * time.Minute)
		s.wantPlaces(t, nil, v[1:])
	})
}

// TestOldLeaseThatMayNotBeUsed: all entries stay in the young Lease.
func TestOldLeaseThatMayNotBeUsed(t *testing.T) {
	copied := leaseOf(meta{Version: 1, Driver: driver, UID: "u"}, "v", "pvc-1")
	copied.Name = oldName
	for name, prepared := range map[string]func(s *store){
		"no answer":               func(s *store) { s.fail(lost.to("update").of(oldName)) },
		"no read":                 func(s *store) { s.fail(down.to("get").of(oldName)) },
		"no permission to create": func(s *store) { s.fail(denied.to("create").of(oldName)) },
		"no permission to update": func(s *store) { s.fail(denied.to("update").of(oldName)) },
		"a copy":                  func(s *store) { s.leases[oldName] = copied.DeepCopy() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				p := prepare(t, settings(s, "one"))
				p.age(aging{bytes: 1, after: time.Minute, along: time.Second})
				p.take()
				prepared(s)
				p.run()
				v := volumes(3, 3)
				p.mustPut(v[0])
				time.Sleep(70 * time.Second)
				p.mustPut(v[1:]...)
				time.Sleep(time.Hour)
				s.wantYoung(t, v)
				if n := s.count("create", "update"); n > 400 {
					t.Errorf("%d writes", n)
				}
				s.fail(nil)
				s.remove(oldName)
				time.Sleep(5 * time.Minute)
				s.wantPlaces(t, nil, v)
			})
		})
	}
}

// A running process notices within a minute that the old Lease was deleted, and stores its entries again.
func TestDeletedOldLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		_, v := doubt(t, s, 2)
		s.remove(oldName)
		time.Sleep(recheckEvery + time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		if got := s.whole(v[0], Shards).entries(); len(got) != 2 {
			t.Errorf("entries %v", got)
		}
	})
}

// TestUnreadableOldLease blocks the names of its shard alone.
func TestUnreadableOldLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		p, v := doubt(t, s, 2)
		s.edit(oldName, func(l *coordinationv1.Lease) { l.UID = "copied" })
		p.wantState(v[0], Open)
		next := start(t, settings(s, "two"))
		next.wantState(v[0], Unreadable)
		next.wantState(volumes(3, 9)[8], Unreadable)
		next.mustPut(volumes(4, 1)...)
		problems := next.Problems()
		blamed := leaseName(s.read(oldName))
		if len(problems) != 1 || problems[0].Lease != blamed || !problems[0].Of(v[0]) ||
			problems[0].Of(volumes(4, 1)[0]) {
			t.Errorf("problems %v", problems)
		}
		if _, problems := Locate(s.all(), nil); len(problems) != 1 || problems[0].Lease != blamed {
			t.Errorf("problems %v", problems)
		}
		elsewhere := settings(s, "three")
		elsewhere.Namespace = "other"
		if strays := elsewhere.strays(s.all()); len(strays) != 2 || !errors.Is(strays[0].Err, ErrCopy) {
			t.Errorf("strays %v", strays)
		}
		s.edit(oldName, func(l *coordinationv1.Lease) { l.UID = look(l, driver).meta.UID })
		alone := []coordinationv1.Lease{*s.read(oldName)}
		if located, problems := Locate(alone, nil); len(located) != 2 || len(problems) > 0 {
			t.Errorf("without the young Lease: %d entries, %v", len(located), problems)
		}
	})
}

// TestOneShardDoesNotSplit: the Node of a log owns its only Lease.
func TestOneShardDoesNotSplit(t *testing.T) {
	for name, cfg := range map[string]func(*Config){
		"a node's log":                    func(c *Config) { c.Shards = 1 },
		"a process that creates no Lease": func(c *Config) { c.CreateMissing = false },
	} {
		c := settings(newStore(), "one")
		cfg(&c)
		l, err := New(c)
		if err != nil || l.shards[0].aging != (aging{}) || l.topology.aging != (aging{}) {
			t.Errorf("%s: %v, %v", name, err, l.shards[0].aging)
		}
	}
}
