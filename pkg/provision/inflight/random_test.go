package inflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestPromisesHoldUnderRandomFaults runs consecutive processes on a log whose API server fails, loses answers, executes
// calls late and is edited by people. At each stored write it fails if a confirmed entry is missing, an entry lacks a
// chunk, an entry with a confirmed removal is back, or an earlier process wrote.
func TestPromisesHoldUnderRandomFaults(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newReferee(t, seed).play() })
		})
	}
}

type referee struct {
	t      *testing.T
	seed   uint64
	store  *store
	random *rand.Rand // only with mu
	shards int

	mu      sync.Mutex
	leader  string          // the only process whose writes may land; empty during a take-over
	stored  map[string]bool // volumes whose entries must be there
	removed map[string]bool // volumes whose entries must be absent
	faults  bool
}

func newReferee(t *testing.T, seed uint64) *referee {
	j := &referee{
		t: t, seed: seed, store: newStore(), random: rand.New(rand.NewPCG(seed, 1)),
		stored: map[string]bool{}, removed: map[string]bool{}, faults: true, shards: Shards,
	}
	if seed%3 == 2 {
		j.shards = 1
	}
	if seed%2 == 1 {
		j.fewChunks()
	}
	j.store.latency = 5 * time.Millisecond
	j.store.fault, j.store.committed = j.fault, j.committed
	return j
}

// fewChunks leaves room for few chunks, so that most are dropped for others.
func (j *referee) fewChunks() {
	l, err := New(settings(j.store, "a person"))
	if err != nil {
		j.t.Fatal(err)
	}
	l.resize(j.shards)
	lease := l.emptyShard(topologyName)
	lease.Annotations["example.com/note"] = strings.Repeat("x", room-reserve-4<<10)
	j.store.insert(lease)
}

func (j *referee) fault(c call) fault {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.faults || j.random.IntN(4) > 0 {
		return fault{}
	}
	timeout := apierrors.NewTimeoutError("no answer", 0)
	switch j.random.IntN(6) {
	case 0:
		return fault{err: timeout, carry: true}
	case 1:
		return fault{err: timeout}
	case 2:
		return fault{err: apierrors.NewConflict(leasesResource, c.name, errors.New("random")), carry: j.random.IntN(2) > 0}
	case 3:
		return fault{late: time.Duration(1+j.random.IntN(20)) * time.Second}
	case 4:
		return fault{slow: time.Duration(j.random.IntN(20)) * time.Second}
	}
	return fault{err: apierrors.NewForbidden(leasesResource, c.name, errors.New("random"))}
}

func (j *referee) committed(by string, lease *coordinationv1.Lease) {
	j.mu.Lock()
	defer j.mu.Unlock()
	name, old := strings.CutSuffix(lease.Name, oldSuffix)
	counts := !old || look(j.store.leases[name], driver).join(lease).old != nil
	if j.leader != "" && by != j.leader && counts {
		j.t.Errorf("%s wrote Lease %s after %s took over", by, lease.Name, j.leader)
	}
	if len(view{lease: lease}.entries()) > 0 && len(lease.OwnerReferences) > 0 {
		j.t.Errorf("%s wrote Lease %s with entries and an owner", by, lease.Name)
	}
	if lacking := broken(j.store.leases, topologyName); len(lacking) > 0 {
		j.t.Errorf("%s wrote Lease %s, and chunks are missing of %v", by, lease.Name, lacking)
	}
	for volume := range j.stored {
		if !j.store.whole(volume, j.shards).has(volume) {
			j.t.Errorf("%s wrote Lease %s, and volume %s is missing", by, lease.Name, volume)
		}
	}
	for volume := range j.removed {
		if j.store.whole(volume, j.shards).has(volume) {
			j.t.Errorf("%s wrote Lease %s, and volume %s is back, whose removal was confirmed", by, lease.Name, volume)
		}
	}
}

func (v view) has(volume string) bool {
	_, there := v.entries()[annotationKey(volume)]
	return there
}

func (j *referee) number(n int) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.random.IntN(n)
}

func (j *referee) set(volume string, stored bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if delete(j.stored, volume); stored {
		j.stored[volume] = true
	}
}

func (j *referee) play() {
	var last *process
	for i := range 4 {
		next := j.process(fmt.Sprintf("process-%d", i))
		var work sync.WaitGroup
		for worker := range 6 {
			work.Go(func() {
				for n := range 8 {
					j.volume(next, fmt.Sprintf("pvc-%d-%d-%d", i, worker, n))
				}
			})
		}
		if last = next; j.number(2) > 0 {
			work.Wait()
		} else {
			time.Sleep(time.Duration(j.number(60)) * time.Second)
		}
		j.t.Cleanup(work.Wait)
	}
	time.Sleep(10 * time.Minute)
	j.mu.Lock()
	j.faults = false
	j.mu.Unlock()
	time.Sleep(chunksStay + 3*recheckEvery)
	entries, problems := readBack(j.store.all())
	if len(problems) > 0 {
		j.t.Error(problems)
	}
	referred := map[string]bool{}
	for i := range entries {
		maps.Copy(referred, chunksOf(j.t, entries[i]))
	}
	j.store.wantKeys(j.t, referred)
	for _, lease := range j.store.all() {
		if left := (view{lease: &lease}).with(settlePrefix); len(left) > 0 {
			j.t.Errorf("%v is left in Lease %s", left, lease.Name)
		}
	}
	if got, want := names(last.Entries()), names(sorted(entries)); !slices.Equal(got, want) {
		j.t.Errorf("the process has %v, the store %v", got, want)
	}
	for volume := range j.stored {
		if !slices.Contains(names(entries), volume) {
			j.t.Errorf("volume %s is lost", volume)
		}
	}
	if stats := last.Stats(); stats.Adding+stats.Removing > 0 {
		j.t.Errorf("not at rest: %+v", stats)
	}
}

// process makes a new process take over.
func (j *referee) process(name string) *process {
	cfg := settings(j.store, name)
	if cfg.Shards = j.shards; j.shards == 1 {
		cfg.Owner = ownedBy("node")
	}
	p := prepare(j.t, cfg)
	if j.shards > 1 && j.seed%4 > 0 {
		p.age(aging{bytes: 1, after: 2 * time.Second, along: time.Second})
	}
	p.Follow(func(volume string) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.removed[volume] = true
	})
	j.mu.Lock()
	j.leader = ""
	j.mu.Unlock()
	for {
		ctx, cancel := context.WithTimeout(j.t.Context(), time.Hour)
		err := p.TakeOver(ctx)
		cancel()
		if err == nil {
			break
		}
		wantError(j.t, err, ErrForbidden)
	}
	j.mu.Lock()
	j.leader = name
	for volume := range j.stored {
		if state := p.state(volume); state != Open {
			j.t.Errorf("after the take-over volume %s is %v", volume, state)
		}
	}
	j.mu.Unlock()
	p.run()
	return p
}

// volume handles one entry as a provisioner does.
func (j *referee) volume(p *process, volume string) {
	ctx, cancel := context.WithTimeout(j.t.Context(), time.Duration(1+j.number(30))*time.Second)
	defer cancel()
	e, list := entry(volume), j.number(15)
	if list > 0 {
		e = placed(volume, list)
	}
	if err := p.Put(ctx, e); err != nil {
		if j.number(2) > 0 {
			p.Remove(volume)
		}
		return
	}
	j.set(volume, true)
	time.Sleep(time.Duration(j.number(5000)) * time.Millisecond)
	switch j.number(7) {
	case 0: // a second request
		e.Requests = append(e.Requests, placed(volume, 1+j.number(14)).Requests...)
		if err := p.put(e); err == nil {
			if got, _ := p.Get(volume); len(got.Requests) != 2 && p.state(volume) != Unknown {
				j.t.Errorf("volume %s has %d requests, want 2", volume, len(got.Requests))
			}
		}
	case 1: // an operator settles it
		j.set(volume, false)
		j.store.editEntry(volume, j.shards, settle(volume))
		if err := p.confirm(volume); err == nil {
			j.t.Errorf("volume %s was settled, and confirmed", volume)
		}
		return
	case 2:
		j.confirm(p, volume)
	case 5: // a person removes it silently: unless the process ends, it is written again
		j.set(volume, false)
		j.store.editEntry(volume, j.shards, unstore(volume))
		j.confirm(p, volume)
	case 3: // a person does something else
		j.store.edit(shardName(shardOf(volume, j.shards)), func(l *coordinationv1.Lease) {
			l.Annotations["example.com/note"] = volume
		})
	case 4:
		if list < 3 { // more would fill the Lease with the chunks
			return
		}
	}
	j.set(volume, false)
	p.Remove(volume)
}

// confirm expects a stored entry to be confirmed, unless another process leads.
func (j *referee) confirm(p *process, volume string) {
	switch err := p.confirm(volume); {
	case errors.Is(err, ErrSettled), errors.Is(err, ErrAbsent):
		j.t.Errorf("volume %s is stored: %v", volume, err)
	case err == nil:
		j.set(volume, true)
	}
}

func sorted(entries []Entry) []Entry {
	slices.SortFunc(entries, func(a, b Entry) int {
		if a.Volume < b.Volume {
			return -1
		}
		return 1
	})
	return entries
}
