package inflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// TestPermissions: a log that creates no Leases needs no permission for that.
func TestPermissions(t *testing.T) {
	for create, want := range map[bool][]string{true: {"get", "update", "create"}, false: {"get", "update"}} {
		cfg := settings(newStore(), "one")
		cfg.CreateMissing = create
		var verbs []string
		for _, needed := range prepare(t, cfg).Permissions() {
			if verbs = append(verbs, needed.Verb); needed.Resource != "leases" || needed.Group != "coordination.k8s.io" ||
				needed.Namespace != cfg.Namespace || !needed.Unsafe {
				t.Errorf("%+v", needed)
			}
		}
		if !slices.Equal(verbs, want) {
			t.Errorf("create %t: %q, want %q", create, verbs, want)
		}
	}
}

func TestTakeOverWithoutRights(t *testing.T) {
	for _, verb := range []string{"get", "create", "update"} {
		s := newStore()
		s.fault = denied.to(verb)
		p := prepare(t, settings(s, "one"))
		err := p.TakeOver(t.Context())
		if wantError(t, err, ErrForbidden); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", verb, err)
		}
		p.wantState("pvc-1", Unknown)
		if state, problem := p.InFlight("pvc-1"); state != volume.InFlightUnknown || problem != "" {
			t.Errorf("in flight %d, problem %q", state, problem)
		}
		wantError(t, p.put(entry("pvc-1")), ErrNotReady)
		wantError(t, p.confirm("pvc-1"), ErrNotReady)
		wantError(t, p.Run(t.Context()), ErrNotReady)
	}
}

func TestTakeOverRetriesUntilContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.fault = down.to()
		p := prepare(t, settings(s, "one"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		err := p.TakeOver(ctx)
		if wantError(t, err, context.DeadlineExceeded); !apierrors.IsServiceUnavailable(err) ||
			time.Since(began) != time.Hour {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if n := s.count("get") / Shards; n < 720 || n > 1500 {
			t.Errorf("%d tries in an hour", n)
		}
		s.fail(nil)
		p.take()
		if err := p.TakeOver(t.Context()); err == nil {
			t.Error("a second take-over succeeded")
		}
	})
}

func TestFinishingWithoutCreateMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, v := newStore(), volumes(3, 2)
		old := start(t, settings(s, "old"))
		old.mustPut(v[0])
		for i := range Shards {
			if i != 3 && i != 4 {
				s.remove(shardName(i))
			}
		}
		cfg := settings(s, "one")
		cfg.CreateMissing = false
		s.forget()
		p := start(t, cfg)
		if n := s.count("create"); n > 0 {
			t.Errorf("%d shards were created", n)
		}
		p.wantState(v[0], Open)
		there, missing := volumes(4, 1)[0], volumes(5, 1)[0]
		p.mustPut(v[1], there)
		p.wantState(missing, Absent)
		wantError(t, p.put(entry(missing)), ErrNoShard)

		// The old process finds a shard missing that it writes to. Before it writes the shard anew, it reads the others.
		wantError(t, old.put(entry(missing)), ErrSuperseded)
		if e, _ := decoded(s.all()); len(e) != 3 {
			t.Errorf("stored %v", names(e))
		}

		s.remove(shardName(3)) // a shard with entries is written anew
		p.mustConfirm(v[0])
		s.wantStored(t, v[0], v[1], there)
	})
}

// TestTakeOverIncludesShardCreatedMeanwhile: an earlier process may create a shard that was missing.
func TestTakeOverIncludesShardCreatedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		old := start(t, settings(s, "old"))
		s.remove(shardName(3))
		volume := volumes(3, 1)[0]
		cfg := settings(s, "one")
		cfg.CreateMissing = false
		s.duringUpdates("one", func() { old.put(entry(volume)) }) //nolint:errcheck // its effect is checked below
		p := start(t, cfg)
		p.wantState(volume, Open)
		if m := look(s.read(shardName(3)), driver).meta; m.Epoch != 2 {
			t.Errorf("its epoch is %d", m.Epoch)
		}
	})
}

func TestConcurrentTakeOversEndWithOneLeader(t *testing.T) {
	for i := range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			s.latency = time.Millisecond
			if i%2 > 0 {
				before(t, s, "pvc-1")
			}
			done := make(chan *process, 2)
			for _, by := range []string{"one", "two"} {
				go func() {
					p := prepare(t, settings(s, by))
					if err := p.TakeOver(t.Context()); err != nil {
						t.Error(err)
					}
					done <- p
				}()
			}
			first, second := <-done, <-done
			if first.own.Epoch > second.own.Epoch {
				first, second = second, first
			}
			first.run()
			second.run()
			lost, won := 0, 0
			for shard := range Shards {
				volume := volumes(shard, 1)[0]
				if err := first.put(entry(volume)); errors.Is(err, ErrSuperseded) {
					lost++
				} else {
					t.Error(err)
				}
				if err := second.put(entry(volume)); err == nil {
					won++
				}
			}
			if lost != Shards || won != Shards {
				t.Errorf("the lower epoch %d lost %d of 8, the higher %d won %d", first.own.Epoch, lost, second.own.Epoch, won)
			}
		})
	}
}

// TestTakeOverAfterFailedTakeOver: a write of the first take-over may land, and must not count as one of the second.
func TestTakeOverAfterFailedTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, volume := newStore(), volumes(3, 1)[0]
		carried := fault{err: lost.err, carry: true}.to("update").of(shardName(3))
		s.fail(func(c call) fault { return cmp.Or(carried(c), denied.to("update").of(shardName(4))(c)) })
		p := prepare(t, settings(s, "one"))
		wantError(t, p.TakeOver(t.Context()), ErrForbidden)
		s.fail(nil)
		p.take()
		p.run()
		s.fail(lost.to("update").once())
		p.mustPut(volume)
		s.wantStored(t, volume)
		p.wantRemoved()
	})
}

// TestAwaitIdle lets a superseded process wait while its successor writes, and while the Leases cannot be read.
func TestAwaitIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		old := start(t, settings(s, "old"))
		next := start(t, settings(s, "next"))
		wantError(t, old.put(entry("pvc-0")), ErrSuperseded)
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		for name, of := range map[string]context.Context{"to the end": t.Context(), "cut off": ctx} {
			done := make(chan error, 1)
			go func() { done <- old.AwaitIdle(of, time.Minute) }()
			waits := func(after time.Duration) {
				t.Helper()
				time.Sleep(after)
				select {
				case err := <-done:
					t.Fatalf("%s: it ends with %v", name, err)
				default:
				}
			}
			for i := range 5 {
				waits(50 * time.Second)
				next.mustPut(fmt.Sprintf("pvc-%d-%s", i, strings.ReplaceAll(name, " ", "-")))
			}
			waits(10 * time.Second)
			s.fail(down.to("get"))
			waits(5 * time.Minute)
			s.fail(nil)
			waits(59 * time.Second)
			if of == ctx {
				cancel(errNo)
				wantError(t, <-done, errNo)
				continue
			}
			time.Sleep(16 * time.Second)
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			default:
				t.Errorf("it still waits")
			}
		}
	})
}

// TestForgottenEntries: the young Lease is deleted while no process leads. The old entries may have ended, so they do
// not count, and a message names their volumes.
func TestForgottenEntries(t *testing.T) {
	for name, test := range map[string]struct {
		reads faults
		says  []string
	}{
		"old Lease":  {nil, []string{`"deleted"="` + shardName(3) + `"`, volumes(3, 2)[0], volumes(3, 2)[1]}},
		"unreadable": {down.to("get").of(oldName), []string{oldName, "cannot be read"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				p, v := doubt(t, s, 2)
				s.fail(down.to("update"))
				p.stop()
				s.remove(shardName(3))
				s.remove(shardName(4)) // without an old one
				s.fail(test.reads)
				var said []string
				next := prepare(t, settings(s, "two"))
				if err := next.TakeOver(klog.NewContext(t.Context(), funcr.New(func(_, args string) {
					if strings.Contains(args, "deleted") || strings.Contains(args, "missing") {
						said = append(said, args)
					}
				}, funcr.Options{}))); err != nil {
					t.Fatal(err)
				}
				if len(said) != 1 {
					t.Fatalf("messages %q", said)
				}
				for _, want := range test.says {
					if !strings.Contains(said[0], want) {
						t.Errorf("message %q lacks %q", said[0], want)
					}
				}
				next.wantState(v[0], Absent)
			})
		})
	}
}
