package inflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestForeignMetadataStays(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		v := volumes(3, 2)
		p.mustPut(v[0])
		s.edit(shardName(3), func(l *coordinationv1.Lease) {
			l.Annotations["example.com/note"], l.Labels["team"], l.Finalizers = "mine", "storage", []string{"example.com/hold"}
			delete(l.Labels, LabelLog)
		})
		p.mustPut(v[1])
		l := s.read(shardName(3))
		if l.Annotations["example.com/note"] != "mine" || l.Labels["team"] != "storage" || len(l.Finalizers) != 1 {
			t.Errorf("it is %v, %v, %v", l.Annotations, l.Labels, l.Finalizers)
		}
		if l.Labels[LabelLog] != "true" || l.Labels["velero.io/exclude-from-backup"] != "true" {
			t.Errorf("labels %v", l.Labels)
		}
	})
}

// big returns an entry with so many bytes, and a namespace and a class of its own.
func big(volume string, bytes int) Entry {
	e := entry(volume)
	e.Claim.Namespace, e.Requests[0].PV.Spec.StorageClassName = volume, volume
	e.Requests[0].Create.Parameters = map[string]string{"x": noise(volume, bytes)}
	return e
}

func TestFullShardRefusesPuts(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		v := volumes(3, 200)
		n := 0
		for ; n < 200; n++ {
			if err := p.put(big(v[n], 3<<10)); err != nil {
				wantError(t, err, ErrFull)
				break
			}
		}
		if n < 50 || n > 70 {
			t.Errorf("%d entries of 3 KiB fit", n)
		}
		p.wantState(v[n], Absent)
		wantError(t, p.put(big(v[0], 40<<10)), ErrFull)
		if e, state := p.Get(v[0]); state != Open || len(e.Requests[0].Create.Parameters["x"]) != 3<<10 {
			t.Errorf("a replacement that does not fit left %v", state)
		}
		p.Remove(v[1])
		if err := p.put(big(v[n], 2<<10)); err != nil {
			t.Error(err)
		}
		// Another program's annotation takes the rest: a pending Put is refused, and removals go on.
		s.edit(shardName(3), func(l *coordinationv1.Lease) {
			l.Annotations["example.com/note"] = strings.Repeat("x", reserve+16<<10-1<<10)
		})
		p.Remove(v[2])
		wantError(t, p.put(big(v[n+1], 2<<10)), ErrFull)
		time.Sleep(10 * time.Second)
		p.wantRemoved(v[1], v[2])
	})
}

func TestRefusedPutIsNotStored(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		v := volumes(3, 3)
		p.mustPut(v[0])
		s.fail(denied.to("update"))
		err := p.put(entry(v[1]))
		if wantError(t, err, ErrForbidden); errors.Is(err, ErrUnconfirmed) || !apierrors.IsForbidden(err) {
			t.Error(err)
		}
		p.wantState(v[1], Absent)
		again := doubled(v[0])
		wantError(t, p.put(again), ErrForbidden)
		if e, state := p.Get(v[0]); state != Open || len(e.Requests) != 1 {
			t.Errorf("a replacement that is refused left %v of %d requests", state, len(e.Requests))
		}
		p.Remove(v[0])
		time.Sleep(time.Minute)
		wantError(t, p.put(entry(v[0])), ErrForbidden) // in place of an entry that is being removed
		p.wantState(v[0], Removing)
		s.fail(nil)
		time.Sleep(10 * time.Second)
		p.wantRemoved(v[0])
		s.wantStored(t)
	})
}

// leftOf is the leader election's lease.
type leftOf struct{ until atomic.Pointer[time.Time] }

func (l *leftOf) Left() time.Duration { return time.Until(*l.until.Load()) }

func leaseFor(d time.Duration) *leftOf {
	l := &leftOf{}
	l.renew(d)
	return l
}

func (l *leftOf) renew(d time.Duration) { l.until.Store(new(time.Now().Add(d))) }

func TestNoWritesPastTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, v := newStore(), volumes(3, 3)
		cfg := settings(s, "one")
		lease := leaseFor(0)
		cfg.Lease = lease
		p := prepare(t, cfg)
		wantError(t, p.TakeOver(t.Context()), ErrLeaseEnded)
		lease.renew(10 * time.Second)
		p.take()
		p.run()
		p.mustPut(v[0])
		p.Remove(v[0])
		s.forget()
		lease.renew(100 * time.Millisecond)
		time.Sleep(time.Minute)
		wantError(t, p.put(entry(v[1])), ErrLeaseEnded)
		if n := s.count("update", "create"); n > 0 {
			t.Errorf("%d writes past the lease", n)
		}
		p.wantState(v[0], Removing)
		lease.renew(time.Minute)
		time.Sleep(2 * leasePause)
		p.wantState(v[0], Absent)
		p.mustPut(v[1])

		// The lease ends while one Put waits for another write, and while one is being written.
		s.latency = 8 * time.Second
		lease.renew(3 * time.Second)
		err := p.put(entry(v[2]))
		if wantError(t, err, ErrLeaseEnded, ErrUnconfirmed); time.Until(*lease.until.Load()) > 0 {
			t.Error("the call did not use the lease")
		}
		p.wantState(v[2], Adding)
		time.Sleep(time.Minute)
		lease.renew(time.Minute)
		time.Sleep(30 * time.Second)
		p.wantState(v[2], Open)
	})
}

func TestUnconfirmedPutIsInFlight(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		v := volumes(3, 4)
		p.mustPut(v[0])
		s.fail(down.to())
		results := make(chan error, 2)
		go func() { results <- p.put(entry(v[1])) }()
		go func() { results <- p.put(entry(v[2])) }()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := p.Put(ctx, entry(v[3]))
		if wantError(t, err, ErrUnconfirmed, context.DeadlineExceeded); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("the cause is not named: %v", err)
		}
		wantError(t, p.Confirm(ctx, v[0]), context.DeadlineExceeded)
		p.wantState(v[3], Adding)
		p.Remove(v[1]) // while it waits
		wantError(t, <-results, ErrUnconfirmed)
		two := doubled(v[2])
		go func() { results <- p.put(two) }()
		wantError(t, <-results, ErrUnconfirmed) // the first of them
		s.fail(nil)
		if err := <-results; err != nil {
			t.Error(err)
		}
		if e, state := p.Get(v[2]); state != Open || len(e.Requests) != 2 {
			t.Errorf("%v of %d requests", state, len(e.Requests))
		}
		time.Sleep(time.Second)
		p.wantState(v[3], Open)
		p.wantRemoved(v[1])
		s.wantStored(t, v[0], v[2], v[3])
	})
}

func TestPendingCallsFailAtTheEnd(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		v := volumes(3, 2)
		p.mustPut(v[0])
		s.fail(down.to())
		results := make(chan error, 2)
		go func() { results <- p.put(entry(v[1])) }()
		go func() { results <- p.confirm(v[0]) }()
		synctest.Wait()
		p.stop()
		for range 2 {
			wantError(t, <-results, ErrStopped)
		}
		wantError(t, p.put(entry(v[1])), ErrStopped)
		p.wantState(v[0], Unknown)
	})
}

func TestReplacementKeepsEpochAndBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		before(t, s, "pvc-1")
		time.Sleep(time.Hour)
		p := start(t, settings(s, "one"))
		first, _ := p.Get("pvc-1")
		two := doubled("pvc-1")
		two.Epoch, two.Begun = 99, time.Now()
		p.mustPutEntry(two)
		got, _ := p.Get("pvc-1")
		if got.Epoch != 1 || !got.Begun.Equal(first.Begun) || len(got.Requests) != 2 || first.Begun.IsZero() {
			t.Errorf("epoch %d, begun %v, %d requests", got.Epoch, got.Begun, len(got.Requests))
		}
		s.forget()
		if err := p.put(got); err != nil || s.count("update") != 0 {
			t.Errorf("the same again: %v, %d writes", err, s.count("update"))
		}
		p.Remove("pvc-1")
		p.mustPutEntry(entry("pvc-1"))
		time.Sleep(time.Minute)
		if got, state := p.Get("pvc-1"); state != Open || got.Epoch != 2 {
			t.Errorf("after a removal: %v, epoch %d", state, got.Epoch)
		}
		p.wantRemoved() // it was put again first
	})
}

func TestPutCopiesTheEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, settings(newStore(), "one"))
		e := entry("pvc-1")
		p.mustPutEntry(e)
		e.Requests[0].Create.CapacityRange.RequiredBytes = 7
		if got, _ := p.Get("pvc-1"); got.Requests[0].Create.CapacityRange.RequiredBytes != 1<<30 {
			t.Errorf("it is %v", got)
		}
	})
}

func TestRetryAfterIsHonored(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		s.fail(fault{err: apierrors.NewTooManyRequests("slow down", 7)}.to().once())
		began := time.Now()
		p.mustPut("pvc-1")
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("written after %v, want 7s", took)
		}
	})
}

func TestConfigValidate(t *testing.T) {
	good := settings(newStore(), "one")
	for name, test := range map[string]struct {
		change func(*Config)
		valid  bool
	}{
		"complete":      {func(*Config) {}, true},
		"no client":     {func(c *Config) { c.Leases = nil }, false},
		"no namespace":  {func(c *Config) { c.Namespace = "" }, false},
		"no name":       {func(c *Config) { c.Name = "" }, false},
		"an upper name": {func(c *Config) { c.Name = "Log" }, false},
		"a long name":   {func(c *Config) { c.Name = strings.Repeat("a", 252) }, false},
		"no driver":     {func(c *Config) { c.Driver = "" }, false},
		"before now":    {func(c *Config) { c.RemoveDelay = -1 }, false},
	} {
		cfg := good
		test.change(&cfg)
		if _, err := New(cfg); (err == nil) != test.valid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnknownStateHasName(t *testing.T) {
	if got := fmt.Sprint(Unknown, " ", Open); got != "Unknown Open" {
		t.Error(got)
	}
}

func TestOversizedPutLeavesPendingPuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, v := newStore(), volumes(3, 2)
		slices.Sort(v)
		p := start(t, settings(s, "one"))
		s.latency = time.Second
		first := make(chan error, 1)
		go func() { first <- p.put(big(v[0], 150<<10)) }()
		synctest.Wait()
		began := time.Now()
		if wantError(t, p.put(big(v[1], 150<<10)), ErrFull); time.Since(began) > 0 {
			t.Error("it waited")
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

// TestUnwritableDeletedLease checks that no entry is confirmed and none is forgotten.
func TestUnwritableDeletedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, v := newStore(), volumes(3, 2)
		before(t, s)
		broken := entryPrefix + "broken"
		s.edit(shardName(3), func(l *coordinationv1.Lease) { l.Annotations[broken] = "?" })
		p := start(t, settings(s, "one"))
		p.mustPut(v[0])
		s.remove(shardName(3))
		s.fail(down.to("create"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wantError(t, p.Confirm(ctx, v[0]), context.DeadlineExceeded)
		wantError(t, p.put(entry(v[0])), ErrUnconfirmed)
		if problems := p.Problems(); len(problems) > 0 {
			t.Errorf("what is gone is a problem: %v", problems)
		}
		s.fail(nil)
		p.mustPut(v[1])
		s.wantStored(t, v...)
	})
}

func TestConfirmEndsWithItsRemovedPut(t *testing.T) {
	alone(t, func(t *testing.T, s *store, p *process) {
		volume := volumes(3, 1)[0]
		s.fail(fault{wait: time.Second, err: apierrors.NewTimeoutError("x", 0)}.to("update"))
		results := make(chan error, 2)
		go func() { results <- p.put(entry(volume)) }()
		synctest.Wait()
		go func() { results <- p.confirm(volume) }()
		time.Sleep(2 * time.Second)
		p.Remove(volume)
		wantError(t, <-results, ErrUnconfirmed)
		began := time.Now()
		wantError(t, <-results, ErrAbsent)
		if time.Since(began) > 30*time.Second {
			t.Error("it waited for its context")
		}
	})
}
