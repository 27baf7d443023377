package inflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

const (
	driver  = "inflight.csi-reclaimer.io"
	logName = "inflight-csi-reclaimer-io"
)

// entry returns a small valid entry.
func entry(name string) Entry {
	return Entry{
		Volume: name, Claim: volume.ClaimRef{Namespace: "shop", Name: "data", UID: types.UID("of-" + name)},
		Requests: []Request{{
			Create: &csi.CreateVolumeRequest{Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30}},
			PV:     &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}},
		}},
	}
}

// doubled returns an entry with a second request.
func doubled(name string) Entry {
	e := entry(name)
	e.Requests = append(e.Requests, e.Requests[0])
	return e
}

// volumes returns n volume names of one shard.
func volumes(number, n int) []string {
	var names []string
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprintf("pvc-%d", i); shardOf(name, Shards) == number {
			names = append(names, name)
		}
	}
	return names
}

func shardName(number int) string { return Config{Name: logName}.shard(number) }

// process is a running Log.
type process struct {
	*Log
	t       *testing.T
	mu      sync.Mutex
	removed []string
	ended   chan struct{}
	err     error
	stop    context.CancelFunc
}

func settings(s *store, by string) Config {
	return Config{Leases: s.client(by), Namespace: "driver", Name: logName, Driver: driver, Identity: by,
		CreateMissing: true}
}

// start takes the log over and runs it until the test ends.
func start(t *testing.T, cfg Config) *process {
	t.Helper()
	p := prepare(t, cfg)
	p.take()
	p.run()
	return p
}

// alone runs a test, on a fake clock, with a log that no other process has used.
func alone(t *testing.T, test func(t *testing.T, s *store, p *process)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		test(t, s, start(t, settings(s, "one")))
	})
}

func prepare(t *testing.T, cfg Config) *process {
	t.Helper()
	p := &process{t: t, ended: make(chan struct{})}
	l := must.Get(New(cfg))(t)
	l.Follow(func(volume string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.removed = append(p.removed, volume)
	})
	p.Log = l
	return p
}

func (p *process) take() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	if err := p.TakeOver(ctx); err != nil {
		p.t.Fatal(err)
	}
}

// age sets when entries move to the old Leases.
func (p *process) age(a aging) {
	for _, s := range p.shards {
		s.aging = a
	}
}

func (p *process) run() {
	ctx, cancel := context.WithCancel(p.t.Context())
	p.stop = func() { cancel(); <-p.ended }
	go func() {
		defer close(p.ended)
		p.err = p.Run(ctx)
	}()
	p.t.Cleanup(p.stop)
}

func (p *process) put(e Entry) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	return p.Put(ctx, e)
}

func (p *process) mustPut(volumes ...string) {
	p.t.Helper()
	for _, volume := range volumes {
		p.mustPutEntry(entry(volume))
	}
}

func (p *process) confirm(volume string) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	return p.Confirm(ctx, volume)
}

func (p *process) mustConfirm(volume string) {
	p.t.Helper()
	if err := p.confirm(volume); err != nil {
		p.t.Error(err)
	}
}

func (p *process) state(volume string) State {
	_, state := p.Get(volume)
	return state
}

func (p *process) wantState(volume string, want State) {
	p.t.Helper()
	if got := p.state(volume); got != want {
		p.t.Errorf("volume %s: state %v, want %v", volume, got, want)
	}
}

func (p *process) wantRemoved(want ...string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := slices.Sorted(slices.Values(p.removed)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		p.t.Errorf("removed %v, want %v", got, want)
	}
}

func names(entries []Entry) []string {
	var names []string
	for i := range entries {
		names = append(names, entries[i].Volume)
	}
	return names
}

func (s *store) wantStored(t *testing.T, want ...string) {
	t.Helper()
	entries, problems := decoded(s.all())
	got := slices.Sorted(slices.Values(names(entries)))
	if !slices.Equal(got, slices.Sorted(slices.Values(want))) || len(problems) > 0 {
		t.Errorf("stored %v and problems %v, want %v and none", got, problems, want)
	}
}

func wantError(t *testing.T, got error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(got, w) {
			t.Errorf("got error %v, want %v", got, w)
		}
	}
}

func TestNextProcessReadsStoredEntry(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		if p.wantState("pvc-1", Absent); len(p.Entries()) != 0 {
			t.Error("a new log has entries")
		}
		p.mustPut("pvc-1", "pvc-2")
		p.wantState("pvc-1", Open)
		s.wantStored(t, "pvc-1", "pvc-2")
		p.Remove("pvc-2")
		p.wantState("pvc-2", Removing)
		time.Sleep(time.Second)
		p.wantState("pvc-2", Absent)
		p.wantRemoved("pvc-2")
		p.stop()
		if p.err != nil {
			t.Error(p.err)
		}
		p.wantState("pvc-1", Unknown)

		next := start(t, settings(s, "two"))
		if got := names(next.Entries()); !slices.Equal(got, []string{"pvc-1"}) {
			t.Errorf("the next process reads %v", got)
		}
		if e, state := next.Get("pvc-1"); state != Open || e.Epoch != 1 || next.own.Epoch != 2 {
			t.Errorf("%v of epoch %d, and epoch %d", state, e.Epoch, next.own.Epoch)
		}
	})
}

func TestWaitingPutsShareOneWrite(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		s.latency = 10 * time.Millisecond
		s.forget()
		var puts sync.WaitGroup
		for i, volume := range volumes(3, 20) {
			if i == 1 {
				synctest.Wait() // the first one is being written
			}
			puts.Go(func() {
				if err := p.put(entry(volume)); err != nil {
					t.Error(err)
				}
			})
		}
		puts.Wait()
		if got := s.count("update"); got != 2 || s.count("get", "create") != 0 {
			t.Errorf("20 puts cost %d writes, want 2", got)
		}
	})
}

func TestRemovalsWaitForOtherWrites(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		v := volumes(3, 8)
		p.mustPut(v[:7]...)
		s.forget()
		for _, volume := range v[:4] {
			p.Remove(volume)
			p.Remove(volume)
			time.Sleep(100 * time.Millisecond)
		}
		if s.count("update") != 0 {
			t.Error("a removal was written at once")
		}
		time.Sleep(101 * time.Millisecond)
		if got := s.count("update"); got != 1 {
			t.Errorf("4 removals within the delay cost %d writes, want 1", got)
		}
		s.forget()
		p.Remove(v[4])
		p.mustPut(v[7])
		if got := s.count("update"); got != 1 {
			t.Errorf("a removal and a put cost %d writes, want 1", got)
		}
		time.Sleep(time.Second)
		if got := s.count("update"); got != 1 {
			t.Errorf("a removal was written again: %d", got)
		}
		p.wantRemoved(v[:5]...)
		s.wantStored(t, v[5], v[6], v[7])
	})
}

func TestEarlierProcessIsSuperseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		old := start(t, settings(s, "old"))
		v := volumes(3, 3)
		old.mustPut(v[0])
		next := start(t, settings(s, "new"))
		before := s.all()
		wantError(t, old.put(entry(v[1])), ErrSuperseded)
		<-old.ended
		wantError(t, old.err, ErrSuperseded)
		old.wantState(v[0], Unknown)
		wantError(t, old.put(entry(v[2])), ErrSuperseded)
		wantError(t, old.confirm(v[0]), ErrSuperseded)
		if len(old.Entries()) > 0 {
			t.Error("a superseded process has entries")
		}
		if after := s.all(); fmt.Sprint(before) != fmt.Sprint(after) {
			t.Error("an earlier process wrote after the take-over")
		}
		next.mustPut(v[1])
		s.wantStored(t, v[0], v[1])
	})
}

func TestLostAnswerIsReadBack(t *testing.T) {
	lost := apierrors.NewTimeoutError("lost", 0)
	for name, f := range map[string]fault{
		"stored":            {err: lost, carry: true},
		"not stored":        {err: lost},
		"slow":              {slow: time.Minute},
		"stored at a time":  {late: 20 * time.Second},
		"a proxy's 404":     {err: apierrors.NewGenericServerResponse(404, "put", leasesResource, "", "", 0, true)},
		"conflict of ours":  {err: apierrors.NewConflict(leasesResource, "x", errors.New("sent twice")), carry: true},
		"internal error":    {err: apierrors.NewInternalError(errors.New("webhook"))},
		"too many requests": {err: apierrors.NewTooManyRequests("slow down", 3)},
	} {
		t.Run(name, func(t *testing.T) {
			alone(t, func(t *testing.T, s *store, p *process) {
				v := volumes(3, 3)
				p.mustPut(v[0])
				s.fail(f.to("update").once())
				p.Remove(v[0])
				p.mustPut(v[1])
				p.wantState(v[1], Open)
				p.mustPut(v[2])
				time.Sleep(time.Minute)
				s.wantStored(t, v[1], v[2])
				p.wantRemoved(v[0])
			})
		})
	}
}

func TestDeletedLeaseIsRecreated(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		v := volumes(3, 3)
		p.mustPut(v[:2]...)
		s.remove(shardName(3))
		p.mustConfirm(v[0])
		s.wantStored(t, v[:2]...)
		s.remove(shardName(3))
		p.mustPut(v[2])
		s.wantStored(t, v...)
		p.wantRemoved()
	})
}
