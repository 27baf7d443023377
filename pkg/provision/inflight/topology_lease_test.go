package inflight

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// TestTopologyLeaseIsRepaired: the process has the chunks in memory, and reads the Lease each minute.
func TestTopologyLeaseIsRepaired(t *testing.T) {
	chunk := chunkOf(t, 0)
	for name, spoil := range map[string]func(*store){
		"it is deleted": func(s *store) { s.remove(topologyName) },
		"a chunk is removed": func(s *store) {
			s.edit(topologyName, func(l *coordinationv1.Lease) { delete(l.Annotations, chunk) })
		},
		"a chunk is changed": func(s *store) {
			s.edit(topologyName, func(l *coordinationv1.Lease) { l.Annotations[chunk] = "?" })
		},
		"all is removed": func(s *store) { s.edit(topologyName, func(l *coordinationv1.Lease) { l.Annotations = nil }) },
		"a copy is there, and deleted": func(s *store) {
			s.edit(topologyName, func(l *coordinationv1.Lease) { l.UID = "another" })
			time.Sleep(2 * recheckEvery)
			s.remove(topologyName)
		},
	} {
		t.Run(name, func(t *testing.T) {
			alone(t, func(t *testing.T, s *store, p *process) {
				p.mustPutEntry(placed("pvc-1", 0))
				time.Sleep(time.Hour)
				spoil(s)
				time.Sleep(recheckEvery + time.Second)
				p.wantState("pvc-1", Open)
				if name == "all is removed" { // it has no metadata, like a foreign shard
					if problems := p.Problems(); len(problems) != 1 || !errors.Is(problems[0].Err, ErrForeign) {
						t.Error(problems)
					}
					s.remove(topologyName)
					time.Sleep(recheckEvery + time.Second)
				}
				s.wantChunks(t, 0)
				s.wantStored(t, "pvc-1")
				p.mustPutEntry(placed("pvc-2", 1))
			})
		})
	}
}

// TestPutAfterTopologyLeaseLossWaitsForChunks checks that no lost chunk counts as stored.
func TestPutAfterTopologyLeaseLossWaitsForChunks(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		p.mustPutEntry(placed("pvc-1", 0))
		s.remove(topologyName)
		s.fail(down.to("create").of(topologyName))
		time.Sleep(2 * recheckEvery)
		if err := p.put(placed("pvc-2", 0)); !apierrors.IsServiceUnavailable(err) {
			t.Error(err)
		}
		s.fail(nil)
		p.mustPutEntry(placed("pvc-2", 0))
		s.wantStored(t, "pvc-1", "pvc-2")
	})
}

// TestCopyOfTopologyLease checks that a copy is not written to. Its chunks are read, because their hash proves their
// content.
func TestCopyOfTopologyLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		old := start(t, settings(s, "old"))
		old.mustPutEntry(placed("pvc-1", 0))
		old.stop()
		s.edit(topologyName, func(l *coordinationv1.Lease) { l.UID = "another" })
		version := s.read(topologyName).ResourceVersion
		p := start(t, settings(s, "two"))
		problems := p.Problems()
		if len(problems) != 1 || !errors.Is(problems[0].Err, ErrCopy) || problems[0].Of("pvc-1") ||
			problems[0].HidesEntries() ||
			!strings.HasSuffix(problems[0].Lease, "/"+topologyName) || p.Stats().ReadOnly != 1 {
			t.Errorf("%v, %+v", problems, p.Stats())
		}
		p.wantState("pvc-1", Open)
		wantError(t, p.put(placed("pvc-2", 0)), ErrUnreadable, ErrCopy)
		if time.Sleep(time.Hour); s.read(topologyName).ResourceVersion != version {
			t.Error("it was written to")
		}
		s.remove(topologyName)
		time.Sleep(2*recheckEvery + time.Second)
		s.wantChunks(t, 0)
		s.wantStored(t, "pvc-1")
		p.mustPutEntry(placed("pvc-2", 1))
	})
}

// TestEntryWithMissingChunkIsKept checks that the entry blocks its volume until the chunk is back.
func TestEntryWithMissingChunkIsKept(t *testing.T) {
	for name, spoil := range map[string]func(*store){
		"the Lease": func(s *store) { s.remove(topologyName) },
		"the chunk": func(s *store) {
			s.edit(topologyName, func(l *coordinationv1.Lease) { delete(l.Annotations, chunkOf(t, 0)) })
		},
		"its content": func(s *store) {
			s.edit(topologyName, func(l *coordinationv1.Lease) { l.Annotations[chunkOf(t, 0)] = l.Annotations[chunkOf(t, 1)] })
		},
	} {
		t.Run(name, func(t *testing.T) {
			alone(t, func(t *testing.T, s *store, p *process) {
				v := volumes(3, 3)
				p.mustPutEntry(twice(v[0], 0, 2))
				p.mustPutEntry(placed("pvc-other", 1))
				p.stop()
				spoil(s)
				p = start(t, settings(s, "two"))
				p.wantState(v[0], Unreadable)
				_, problem := p.InFlight(v[0])
				if !strings.Contains(problem, topologyName) || !strings.Contains(problem, shardName(3)) {
					t.Error(problem)
				}
				wantError(t, p.put(placed(v[0], 0)), ErrUnreadable, ErrDecode)
				p.Remove(v[0])
				p.mustPutEntry(placed(v[1], 3))
				p.Remove(v[1])
				time.Sleep(time.Hour)
				if name != "the Lease" && s.read(topologyName).Annotations[chunkOf(t, 2)] == "" {
					t.Error("its other chunk was removed")
				}
				if _, there := s.read(shardName(3)).Annotations[annotationKey(v[0])]; !there {
					t.Error("the entry was removed")
				}
				p.mustPutEntry(twice(v[2], 0, 2))
				p.Remove(v[2])
				time.Sleep(time.Hour)
				p.wantState(v[0], Open)
				p.stop()
				if next := start(t, settings(s, "three")); next.state(v[0]) != Open {
					t.Error("it is not read although its chunk is back")
				}
			})
		})
	}
}

// TestEntryIsReadWhenItsChunkIsBack: programs that only read the Leases show such an entry, and operators settle it.
func TestEntryIsReadWhenItsChunkIsBack(t *testing.T) {
	v, others := volumes(3, 1)[0], volumes(4, 2)
	replace := func(l *coordinationv1.Lease) {
		other := placed(v, 0)
		other.Claim.UID = "another"
		stored, err := newCodec("").encode(&other)
		if err != nil {
			t.Error(err)
		}
		l.Annotations[annotationKey(v)] = stored.value
	}
	nothing := func(*coordinationv1.Lease) {}
	for name, test := range map[string]struct {
		// before happens while its chunks are missing, and after when other entries have them.
		before, after func(*coordinationv1.Lease)
		state         State
		told          []string
	}{
		"as it was":                  {nothing, nothing, Open, []string{v}},
		"settled before it is read":  {nothing, settle(v), Absent, []string{v, v}},
		"changed by another program": {replace, nothing, Unreadable, nil},
		"changed as the chunk comes": {nothing, replace, Unreadable, nil},
		"removed by another program": {nothing, unstore(v), Absent, nil},
		"in a copy of its Lease":     {nothing, func(l *coordinationv1.Lease) { l.UID = "another" }, Unreadable, nil},
	} {
		t.Run(name, func(t *testing.T) {
			alone(t, func(t *testing.T, s *store, p *process) {
				p.mustPutEntry(twice(v, 0, 1))
				p.stop()
				s.remove(topologyName)
				p = start(t, settings(s, "two"))
				s.edit(shardName(3), test.before)
				time.Sleep(2 * recheckEvery)
				p.mustPutEntry(placed(others[0], 0))
				time.Sleep(2 * recheckEvery)
				p.wantState(v, Unreadable) // its other chunk is missing
				s.fail(down.to().of(topologyName))
				wantError(t, p.put(placed(others[1], 1)), context.DeadlineExceeded)
				time.Sleep(2*recheckEvery + recheckEvery/2) // until between two reads
				p.wantState(v, Unreadable)                  // the chunk is known, and not stored
				p.wantRemoved()
				s.fail(nil)
				p.mustPutEntry(placed(others[1], 1))
				s.edit(shardName(3), test.after)
				time.Sleep(recheckEvery)
				p.wantState(v, test.state)
				p.wantRemoved(test.told...)
				s.wantNoneSettling(t, shardName(3))
				if err := p.confirm(v); (err == nil) != (test.state == Open) {
					t.Error(err)
				}
				if problems := p.Problems(); (len(problems) > 0) != (test.state == Unreadable) {
					t.Error(problems)
				}
				p.Remove(others[0])
				p.Remove(others[1])
				time.Sleep(time.Hour)
				if chunks := (view{lease: s.read(topologyName)}).content(); (len(chunks) > 0) != (test.state != Absent) {
					t.Errorf("the chunks are %v", chunks)
				}
			})
		})
	}
}

func TestHasStoredChunks(t *testing.T) {
	for name, test := range map[string]struct {
		it   *item
		want bool
	}{
		"none":                 {nil, false},
		"a stored one":         {storedItem(coded{value: "1"}), true},
		"one that is written":  {newItem(coded{value: "1"}), false},
		"one of other content": {storedItem(coded{value: "2"}), false},
	} {
		s := newShard(topologyNumber, topologyName)
		s.want[chunkPrefix+"a"] = storedItem(coded{value: "a"})
		if test.it != nil {
			s.want[chunkPrefix+"b"] = test.it
		}
		if got := s.hasStored(map[string]string{"a": "a", "b": "1"}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestNoEarlierChunkDropLandsAfterTakeOver checks that the entries read by the take-over keep their chunks.
func TestNoEarlierChunkDropLandsAfterTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		old := start(t, settings(s, "old"))
		old.mustPutEntry(placed("pvc-1", 0))
		old.Remove("pvc-1")
		time.Sleep(recheckEvery)
		late := true
		s.fail(func(c call) fault {
			if late && c.by == "old" && c.name == topologyName && c.verb == "update" {
				late = false
				return fault{late: 10 * time.Second}
			}
			return fault{}
		})
		for s.mu.Lock(); late; s.mu.Lock() { // until the drop is being written
			s.mu.Unlock()
			time.Sleep(time.Second)
		}
		s.mu.Unlock()
		next := start(t, settings(s, "next"))
		next.mustPutEntry(placed("pvc-2", 0))
		time.Sleep(time.Minute)
		s.wantChunks(t, 0)
		s.wantStored(t, "pvc-2")
		wantError(t, old.put(placed("pvc-3", 0)), ErrSuperseded)
		if m := look(s.read(topologyName), driver).meta; m.Epoch != 2 || m.Identity != "next" {
			t.Errorf("%+v", m)
		}
	})
}

// TestChunksAddedDuringTakeOverAreRead: the earlier process creates the chunks' Lease after the next one found it
// missing.
func TestChunksAddedDuringTakeOverAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		old := start(t, settings(s, "old"))
		s.duringUpdates("one", func() { old.put(placed("pvc-1", 0)) }) //nolint:errcheck // its effect is checked below
		p := start(t, settings(s, "one"))
		p.wantState("pvc-1", Open)
		if m := look(s.read(topologyName), driver).meta; m.Epoch != 2 {
			t.Errorf("its epoch is %d", m.Epoch)
		}
		s.wantStored(t, "pvc-1")
	})
}

// TestEarlierProcessCreatesNoChunksAfterTakeOver: it reads the shards before it writes to the new Lease.
func TestEarlierProcessCreatesNoChunksAfterTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		old := start(t, settings(s, "old"))
		p := start(t, settings(s, "one"))
		wantError(t, old.put(placed("pvc-1", 0)), ErrSuperseded)
		s.wantChunks(t)
		p.mustPutEntry(placed("pvc-2", 0))
		s.wantChunks(t, 0)
		s.wantStored(t, "pvc-2")
	})
}

// TestReadersFindTheChunksOfEachLog checks that chunks of other logs and namespaces are not used.
func TestReadersFindTheChunksOfEachLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, node := newStore(), newStore()
		start(t, settings(s, "one")).mustPutEntry(placed("pvc-1", 0))
		cfg := ofNode(node, "two")
		cfg.Name = "topology-in-flight-worker-1"
		start(t, cfg).mustPutEntry(placed("pvc-2", 1))
		leases := append(s.all(), node.all()...)
		for i := range leases {
			leases[i].Namespace = "driver"
		}
		entries, problems := Locate(leases, nil)
		if len(entries) != 2 || len(problems) > 0 {
			t.Errorf("%v, problems %v", entries, problems)
		}
		for i := range leases {
			if leases[i].Name == topologyName {
				leases[i].Namespace = "elsewhere"
			}
		}
		entries, problems = Locate(leases, nil)
		if len(entries) != 1 || len(problems) != 1 || problems[0].Volume != "pvc-1" ||
			!strings.Contains(problems[0].String(), "driver/"+topologyName) || problems[0].Driver != driver {
			t.Errorf("%v, problems %v", entries, problems)
		}
		if !problems[0].Of("pvc-1") || problems[0].Of("pvc-2") {
			t.Error("it is about another volume")
		}
		if strays := settings(s, "x").strays(leases); len(strays) != 1 || strays[0].Lease.Name != cfg.shard(0) {
			t.Errorf("strays %+v", strays)
		}
	})
}

// TestNodeTopologyLeaseHasOwnerWhileEmpty checks that the Lease has an owner while it has no chunks.
func TestNodeTopologyLeaseHasOwnerWhileEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		p := start(t, ofNode(s, "one"))
		owned := func(want types.UID) {
			t.Helper()
			var got types.UID
			for _, owner := range s.read(topologyName).OwnerReferences {
				got += owner.UID
			}
			if got != want {
				t.Errorf("its owner is %q, want %q", got, want)
			}
		}
		p.mustPutEntry(placed("pvc-1", 0))
		owned("")
		p.Remove("pvc-1")
		time.Sleep(time.Hour)
		owned("node")
		s.remove(topologyName)
		p.mustPutEntry(placed("pvc-1", 0))
		owned("")
		s.wantStored(t, "pvc-1")
	})
}

func TestAwaitNamesTheTopologyLease(t *testing.T) {
	l := must.Get(New(settings(newStore(), "one")))(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := l.await(ctx, []*item{newItem(coded{value: "1"})})
	if want := "its topologies, in Lease " + topologyName + ": context canceled"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestAwaitedChunkStays: if the chunk were dropped during a slow write, the Put would fail.
func TestAwaitedChunkStays(t *testing.T) {
	l := must.Get(New(settings(newStore(), "one")))(t)
	it := l.topology.add(chunkOf(t, 0), coded{value: "1"})
	it.used = l.cfg.Clock.Now().Add(-chunksStay)
	l.sweep(chunksStay)
	if l.topology.want[chunkOf(t, 0)] != it {
		t.Error("it is dropped")
	}
	it.confirmed = true
	if l.sweep(chunksStay); l.topology.want[chunkOf(t, 0)] != nil {
		t.Error("it stays once it is stored")
	}
}
