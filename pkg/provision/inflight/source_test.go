package inflight

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

var snap = volume.SourceRef{Kind: volume.SourceSnapshot, Namespace: "shop", Name: "snap"}

// restored returns an entry whose volume is created from snap.
func restored(volume string) Entry {
	e, from := entry(volume), snap
	from.UID = "u"
	e.Requests[0].Source = &from
	return e
}

func (p *process) wantSource(of volume.SourceRef, want volume.InFlight) {
	p.t.Helper()
	if got, problem := p.SourceInFlight(of); got != want || problem != "" {
		p.t.Errorf("source %v: %d, %q, want %d", of, got, problem, want)
	}
}

// TestSourceIsInFlightWhileItsEntryMayBeStored covers writes that take time, during which no entry is confirmed.
func TestSourceIsInFlightWhileItsEntryMayBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, v := newStore(), volumes(3, 2)
		p := prepare(t, settings(s, "one"))
		p.wantSource(snap, volume.InFlightUnknown)
		p.take()
		p.run()
		p.mustPut(v[1])
		p.wantSource(snap, volume.InFlightSettled)
		s.fail(fault{wait: time.Second}.to())
		added, replaced := restored(v[0]), restored(v[0])
		replaced.Discarding = true
		for _, e := range []Entry{added, replaced} {
			ended := make(chan error)
			go func() { ended <- p.put(e) }()
			synctest.Wait()
			if p.wantSource(snap, volume.InFlightOpen); len(p.Entries()) != 1 {
				t.Error("the write is confirmed before its answer")
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			p.wantSource(snap, volume.InFlightOpen)
		}
		for _, other := range []volume.SourceRef{{Kind: volume.SourceClaim, Namespace: "shop", Name: "snap"},
			{Kind: volume.SourceSnapshot, Namespace: "x", Name: "snap"},
			{Kind: volume.SourceSnapshot, Namespace: "shop", Name: "x"}} {
			p.wantSource(other, volume.InFlightSettled)
		}
		p.Remove(v[0])
		p.wantSource(snap, volume.InFlightOpen)
		ended := make(chan error)
		go func() { ended <- p.put(entry(v[0])) }()
		synctest.Wait()
		p.wantSource(snap, volume.InFlightOpen) // the replaced entry is stored
		if err := <-ended; err != nil {
			t.Error(err)
		}
		p.wantSource(snap, volume.InFlightSettled)
		p.mustPutEntry(restored(v[0]))
		p.Remove(v[0])
		p.wantSource(snap, volume.InFlightOpen)
		time.Sleep(10 * time.Second)
		p.wantSource(snap, volume.InFlightSettled)
		p.stop()
		p.wantSource(snap, volume.InFlightUnknown)
	})
}

// TestUnreadablePartMayHaveTheSource: the volume of any entry may be created from it.
func TestUnreadablePartMayHaveTheSource(t *testing.T) {
	edit := func(change func(*coordinationv1.Lease)) func(*store) {
		return func(s *store) { s.edit(shardName(3), change) }
	}
	for name, c := range map[string]struct {
		spoil, mend func(*store)
		problem     string
	}{
		"a copy": {edit(func(l *coordinationv1.Lease) { l.UID = "another" }),
			func(s *store) { s.remove(shardName(3)) }, shardName(3)},
		"a later version": {edit(func(l *coordinationv1.Lease) { replaceMeta(l, `"version":1`, `"version":3`) }),
			func(s *store) { s.remove(shardName(3)) }, shardName(3)},
		"an entry": {edit(func(l *coordinationv1.Lease) { l.Annotations[entryPrefix+"x"] = "?" }),
			edit(func(l *coordinationv1.Lease) { delete(l.Annotations, entryPrefix+"x") }), entryPrefix + "x"},
		"the entry whose chunks are gone": {func(s *store) { s.remove(topologyName) },
			func(s *store) { s.remove(shardName(shardOf("pvc-1", Shards))) }, entryPrefix + "pvc-1"},
		"not a copy of the chunks": {func(s *store) {
			s.edit(topologyName, func(l *coordinationv1.Lease) { l.UID = "another" })
		}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				old := start(t, settings(s, "old"))
				old.mustPutEntry(placed("pvc-1", 0))
				old.mustPutEntry(restored(volumes(4, 1)[0]))
				old.stop()
				c.spoil(s)
				p := start(t, settings(s, "one"))
				p.wantSource(snap, volume.InFlightOpen)
				other := volume.SourceRef{Kind: volume.SourceSnapshot, Namespace: "shop", Name: "other"}
				if c.problem == "" {
					p.wantSource(other, volume.InFlightSettled)
					return
				}
				state, problem := p.SourceInFlight(other)
				if state != volume.InFlightUnreadable || !strings.Contains(problem, c.problem) {
					t.Errorf("%d, %q", state, problem)
				}
				c.mend(s)
				time.Sleep(2 * recheckEvery)
				p.wantSource(other, volume.InFlightSettled)
			})
		})
	}
}
