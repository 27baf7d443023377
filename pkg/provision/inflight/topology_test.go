package inflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight/internal/chunks"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

var (
	topologyName = Config{Name: logName}.topology()
	errNo        = errors.New("no")
)

// placed returns an entry that refers to one chunk, a different one for each list.
func placed(volume string, list int) Entry {
	e := entry(volume)
	e.Requests[0].Create.AccessibilityRequirements = &csi.TopologyRequirement{
		Requisite: nodes(100)[5*list : 5*list+chunks.Inline+1]}
	return e
}

// twice returns an entry with a second request, for another list of topologies.
func twice(volume string, first, second int) Entry {
	e := placed(volume, first)
	e.Requests = append(e.Requests, placed(volume, second).Requests...)
	return e
}

func (p *process) mustPutEntry(e Entry) {
	p.t.Helper()
	if err := p.put(e); err != nil {
		p.t.Fatal(err)
	}
}

// chunksOf returns the keys of an entry's chunks.
func chunksOf(t *testing.T, e Entry) map[string]bool {
	t.Helper()
	stored := must.Get(newCodec("").encode(&e))(t)
	keys := map[string]bool{}
	for hash := range stored.refers {
		keys[chunkPrefix+hash] = true
	}
	return keys
}

// chunkOf returns the key of the only chunk of a list.
func chunkOf(t *testing.T, list int) string {
	t.Helper()
	keys := chunksOf(t, placed("pvc-1", list))
	if len(keys) != 1 {
		t.Fatalf("list %d has %d chunks", list, len(keys))
	}
	for key := range keys {
		return key
	}
	return ""
}

// wantChunks checks that the topology Lease has the chunks of exactly these lists.
func (s *store) wantChunks(t *testing.T, lists ...int) {
	t.Helper()
	want := map[string]bool{}
	for _, list := range lists {
		want[chunkOf(t, list)] = true
	}
	s.wantKeys(t, want)
}

// wantKeys checks that the topology Lease has exactly these chunks, by key.
func (s *store) wantKeys(t *testing.T, want map[string]bool) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	got := view{lease: s.leases[topologyName]}.with(chunkPrefix)
	if !maps.EqualFunc(got, want, func(string, bool) bool { return true }) {
		t.Errorf("the topology Lease has chunks %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// broken returns the entries in Leases that lack a chunk.
func broken(leases map[string]*coordinationv1.Lease, topology string) []string {
	var lacking []string
	chunks := view{lease: leases[topology]}
	for name, lease := range leases {
		if strings.HasSuffix(name, oldSuffix) {
			continue // see join
		}
		for key, value := range look(lease, "").join(leases[name+oldSuffix]).entries() {
			hashes, err := hashesOf(value)
			for _, hash := range hashes {
				if _, there := chunks.chunk(hash); !there || err != nil {
					lacking = append(lacking, name+" "+key)
				}
			}
		}
	}
	return lacking
}

func TestShortListsNeedNoTopologyLease(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		e := placed("pvc-1", 0)
		r := e.Requests[0].Create.GetAccessibilityRequirements()
		r.Requisite = r.GetRequisite()[:chunks.Inline]
		p.mustPutEntry(e)
		time.Sleep(time.Hour)
		if p = start(t, settings(s, "two")); len(s.all()) != Shards {
			t.Errorf("%d Leases", len(s.all()))
		}
		p.wantState("pvc-1", Open)
	})
}

// TestEntryIsStoredAfterItsChunks covers faults in the writes of chunks.
func TestEntryIsStoredAfterItsChunks(t *testing.T) {
	timeout := apierrors.NewTimeoutError("lost", 0)
	for name, f := range map[string]fault{
		"they fail":                     {err: timeout},
		"the answers are lost":          {err: timeout, carry: true},
		"they are carried out late":     {late: 3 * time.Second},
		"they are slow":                 {wait: 3 * time.Second},
		"another one seems to be first": {err: apierrors.NewConflict(leasesResource, topologyName, errNo)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				until := time.Now().Add(20 * time.Second)
				s.fault = func(c call) fault {
					if c.name == topologyName && c.verb != "get" && time.Now().Before(until) {
						return f
					}
					return fault{}
				}
				s.committed = func(string, *coordinationv1.Lease) {
					if lacking := broken(s.leases, topologyName); len(lacking) > 0 {
						t.Errorf("without chunks: %v", lacking)
					}
				}
				p := start(t, settings(s, "one"))
				p.mustPutEntry(placed("pvc-1", 0))
				p.mustPutEntry(twice("pvc-1", 0, 1))
				s.wantStored(t, "pvc-1")
				s.wantChunks(t, 0, 1)
			})
		})
	}
}

// TestEntryWithoutRoomAddsNoChunks checks that the entry's share is judged first.
func TestEntryWithoutRoomAddsNoChunks(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		v := volumes(3, 2)
		p.mustPut(v[0])
		s.edit(shardName(3), func(l *coordinationv1.Lease) {
			l.Annotations["example.com/note"] = strings.Repeat("x", room-reserve-4<<10)
		})
		p.mustConfirm(v[0])
		e := placed(v[1], 0)
		e.Requests[0].Create.Parameters = map[string]string{"x": noise("x", 3<<10)}
		wantError(t, p.put(e), ErrShare)
		if len(s.all()) != Shards {
			t.Error("its chunks were stored")
		}
	})
}

// TestTopologyLeaseErrorsFailThePut checks that no content was changed then.
func TestTopologyLeaseErrorsFailThePut(t *testing.T) {
	edit := func(change func(*coordinationv1.Lease)) func(*process, *store) {
		return func(p *process, s *store) {
			s.edit(topologyName, change)
			time.Sleep(recheckEvery + time.Second)
		}
	}
	for name, test := range map[string]struct {
		spoil func(*process, *store)
		want  error
	}{
		"it is full": {edit(func(l *coordinationv1.Lease) {
			l.Annotations["example.com/note"] = strings.Repeat("x", room-reserve-1<<8)
		}), ErrFull},
		"another program fills it before the write": {func(_ *process, s *store) {
			s.edit(topologyName, func(l *coordinationv1.Lease) {
				l.Annotations["example.com/note"] = strings.Repeat("x", room)
			})
		}, ErrFull},
		"it is a copy": {edit(func(l *coordinationv1.Lease) { l.UID = "another" }), ErrUnreadable},
		"it was deleted, and a copy is there": {func(_ *process, s *store) {
			lease := s.read(topologyName)
			s.remove(topologyName)
			s.mu.Lock()
			s.insert(lease)
			s.mu.Unlock()
		}, ErrCopy},
		"it may not be written": {func(_ *process, s *store) {
			s.fail(denied.to("update").of(topologyName))
		}, ErrForbidden},
		"an answer is lost, then it may not be written": {func(_ *process, s *store) {
			once := lost.to("update").of(topologyName).once()
			s.fail(func(c call) fault { return cmp.Or(once(c), denied.to("update").of(topologyName)(c)) })
		}, ErrForbidden},
		"it does not answer": {func(_ *process, s *store) { s.fail(down.to().of(topologyName)) }, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			alone(t, func(t *testing.T, s *store, p *process) {
				p.mustPutEntry(placed("pvc-1", 0))
				test.spoil(p, s)
				err := p.put(placed("pvc-2", 1))
				if wantError(t, err, test.want); errors.Is(err, ErrUnconfirmed) || err == nil ||
					!strings.Contains(err.Error(), topologyName) {
					t.Error(err)
				}
				p.wantState("pvc-2", Absent)
				p.wantState("pvc-1", Open)
				p.mustPut("pvc-3")
				p.mustPutEntry(func() Entry { // it adds no chunk
					e := placed("pvc-1", 0)
					e.Discarding = true
					return e
				}())
				late := errors.Is(test.want, context.DeadlineExceeded)
				if errors.Is(err, context.DeadlineExceeded) != late || late && !apierrors.IsServiceUnavailable(err) {
					t.Errorf("it comes late, or does not say why: %v", err)
				}
			})
		})
	}
}

func TestListBeyondOneLeaseIsTooLarge(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		e := entry("pvc-1")
		r := &csi.TopologyRequirement{}
		for i := range 5000 {
			r.Requisite = append(r.Requisite, &csi.Topology{Segments: map[string]string{"node": noise(fmt.Sprint(i), 60)}})
		}
		e.Requests[0].Create.AccessibilityRequirements = r
		wantError(t, p.put(e), ErrTooLarge)
	})
}

// TestUnreferencedChunksMakeRoom checks that referenced chunks stay.
func TestUnreferencedChunksMakeRoom(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		p.mustPutEntry(placed("pvc-1", 0))
		p.mustPutEntry(placed("pvc-2", 1))
		p.Remove("pvc-1")
		time.Sleep(2 * recheckEvery)
		s.wantChunks(t, 0, 1)
		full := size(s.read(topologyName).Annotations)
		s.edit(topologyName, func(l *coordinationv1.Lease) {
			l.Annotations["example.com/note"] = strings.Repeat("x", room-reserve-full-len("example.com/note")-10)
		})
		time.Sleep(recheckEvery + time.Second)
		if fill := p.Stats().Fill; fill < 0.8 || fill > 0.9 {
			t.Errorf("fill ratio %f", fill)
		}
		p.mustPutEntry(placed("pvc-3", 2))
		s.wantChunks(t, 1, 2)
		wantError(t, p.put(placed("pvc-4", 3)), ErrFull)
		p.mustPutEntry(twice("pvc-2", 1, 3)) // it may use the reserve
	})
}

// TestReferencesKeepAChunk covers everything that refers to a chunk now or may do so after a write.
func TestReferencesKeepAChunk(t *testing.T) {
	coded := func(list int) coded {
		e := placed("pvc-1", list)
		one := must.Get(newCodec("").encode(&e))(t)
		return one
	}
	key := annotationKey("pvc-1")
	keep := func(s *shard, value string) {
		s.seen.lease.Annotations[key], s.kept[key] = value, ErrAppeared
	}
	for name, test := range map[string]struct {
		hold func(l *Log, s *shard)
		want bool
	}{
		"nothing":                  {func(*Log, *shard) {}, false},
		"an entry of another list": {func(_ *Log, s *shard) { s.add(key, coded(1)) }, false},
		"an entry":                 {func(_ *Log, s *shard) { s.add(key, coded(0)) }, true},
		"an entry that is removed": {func(_ *Log, s *shard) { s.removing[key] = storedItem(coded(0)) }, true},
		"an entry that is replaced": {func(_ *Log, s *shard) {
			s.want[key] = storedItem(coded(0))
			s.add(key, coded(1))
		}, true},
		"a write that may land": {func(_ *Log, s *shard) {
			s.add(key, coded(0))
			s.compose(us)
			delete(s.want, key)
		}, true},
		"a write that cannot land any more": {func(_ *Log, s *shard) {
			s.add(key, coded(0))
			s.compose(us)
			delete(s.want, key)
			if _, err := s.observe(seenAs("8", 6, nil), us); err != nil {
				t.Fatal(err)
			}
		}, false},
		"an entry that is kept":                 {func(_ *Log, s *shard) { keep(s, coded(0).value) }, true},
		"an entry of another list that is kept": {func(_ *Log, s *shard) { keep(s, coded(1).value) }, false},
		"an entry that cannot be read":          {func(_ *Log, s *shard) { keep(s, "?") }, true},
		"an entry of a shard that is read-only": {func(_ *Log, s *shard) {
			keep(s, coded(0).value)
			s.seen.err = ErrCopy
			clear(s.kept)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := must.Get(New(settings(newStore(), "one")))(t)
			s := l.shards[3]
			s.seen, s.known = seenAs("7", 6, nil), true
			chunk := chunkOf(t, 0)
			l.topology.want[chunk] = storedItem(coded(5))
			it := l.topology.want[chunk]
			it.used = l.cfg.Clock.Now().Add(-chunksStay)
			test.hold(l, s)
			l.sweep(chunksStay)
			if stays := l.topology.want[chunk] == it; stays != test.want {
				t.Errorf("it stays: %t", stays)
			}
			// A chunk that is being dropped is restored when a reference appears.
			l.topology.removing[chunk] = storedItem(coded(5))
			delete(l.topology.want, chunk)
			l.sweep(chunksStay)
			if it := l.topology.want[chunk]; (it != nil) != test.want || it != nil && it.confirmed {
				t.Errorf("it comes back: %+v", it)
			}
		})
	}
}

// TestPutWaitsForItsChunks covers chunks that are not known to be stored, or not known to stay.
func TestPutWaitsForItsChunks(t *testing.T) {
	key := chunkPrefix + "h"
	for name, test := range map[string]struct {
		stored string
		edit   func(*shard)
		want   bool
	}{
		"stored":                    {"1", func(*shard) {}, false},
		"gone":                      {"", func(*shard) {}, true},
		"changed":                   {"2", func(*shard) {}, true},
		"one with another value":    {"2", func(s *shard) { s.want[key] = storedItem(coded{value: "2"}) }, true},
		"not wanted":                {"1", func(s *shard) { delete(s.want, key) }, true},
		"being dropped":             {"1", func(s *shard) { s.remove(key, time.Time{}) }, true},
		"a write may drop it":       {"1", func(s *shard) { s.tries = []values{{}} }, true},
		"another Put waits for it":  {"1", func(s *shard) { s.want[key].confirmed = false }, true},
		"a write may store it anew": {"1", func(s *shard) { s.tries = []values{{key: "1"}} }, false},
	} {
		s := newShard(topologyNumber, topologyName)
		s.seen = seenAs("7", 6, nil)
		if test.stored != "" {
			s.seen.lease.Annotations[key] = test.stored
		}
		s.want[key] = storedItem(coded{value: "1"})
		test.edit(s)
		limit := room
		if !test.want {
			limit = 0 // it needs no room
		}
		waiting, err := s.need(values{"h": "1"}, limit, us, time.Now())
		if err != nil || (len(waiting) > 0) != test.want || s.want[key].value != "1" {
			t.Errorf("%s: %d chunks, %v", name, len(waiting), err)
		}
	}
}

// TestConsecutiveVolumesShareChunkWrites covers two alternating lists.
func TestConsecutiveVolumesShareChunkWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		writes := 0
		s.committed = func(_ string, lease *coordinationv1.Lease) {
			if lease.Name == topologyName {
				writes++
			}
		}
		p := start(t, settings(s, "one"))
		for i := range 40 {
			volume := fmt.Sprintf("pvc-%d", i)
			p.mustPutEntry(placed(volume, i%2))
			time.Sleep(time.Second)
			p.Remove(volume)
			time.Sleep(chunksStay/2 - 2*recheckEvery)
		}
		if writes != 3 { // one to create it, one for the first list, one for both
			t.Errorf("%d writes of chunks", writes)
		}
		s.wantChunks(t, 0, 1)
		time.Sleep(chunksStay + 3*recheckEvery)
		s.wantChunks(t)
		if writes > 5 {
			t.Errorf("%d writes to drop them", writes-3)
		}
		s.forget()
		if time.Sleep(time.Hour); s.count("get", "update", "create") > 0 {
			t.Error("it is read although it has no chunks")
		}
	})
}

// TestEntryKeepsItsChunks checks that chunks stay while an entry is in flight, even after a take-over.
func TestEntryKeepsItsChunks(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		p.mustPutEntry(placed("pvc-1", 0))
		p.mustPutEntry(placed("pvc-2", 1))
		time.Sleep(time.Hour)
		s.wantChunks(t, 0, 1)
		next := start(t, settings(s, "two"))
		time.Sleep(time.Hour)
		s.wantChunks(t, 0, 1)
		next.Remove("pvc-2")
		time.Sleep(recheckEvery + time.Second)
		next.stop()
		start(t, settings(s, "three"))
		time.Sleep(recheckEvery + time.Second)
		s.wantChunks(t, 0, 1) // the time of its last use is unknown
		time.Sleep(time.Hour)
		s.wantChunks(t, 0)
		s.wantStored(t, "pvc-1")
	})
}
