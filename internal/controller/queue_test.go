package controller

import (
	"context"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
)

func TestMain(m *testing.M) { os.Exit(goroutines.Run(m)) }

func TestDelayDoublesUpToItsMaximum(t *testing.T) {
	b := Backoff{First: time.Second, Max: 10 * time.Second}
	for tries, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		want *= time.Second
		if got := b.delay(tries, 0); got != want {
			t.Errorf("delay after %d tries = %v, want %v", tries, got, want)
		}
		if got := b.delay(tries, 0.999); got > want || got < want*7/10 {
			t.Errorf("delay after %d tries with jitter = %v, want at most a fifth less than %v", tries, got, want)
		}
	}
	if got := b.delay(100000, 0); got != b.Max {
		t.Errorf("delay after very many tries = %v, want %v", got, b.Max)
	}
}

// start runs a queue over the handler until the test ends.
func start(t *testing.T, cfg Config, handle Reconciler[string]) (l *Queue[string], ended <-chan struct{},
	cancel func()) {
	t.Helper()
	l = NewQueue(nil, cfg, handle)
	l.LimitSlow(noShare)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return l, done, cancel
}

func noShare(string) string { return "" }

func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("%s: nothing within a minute", what)
		panic("unreachable")
	}
}

// settle lets every other goroutine of a bubble run until it waits for the test, whatever it polls.
func settle() { time.Sleep(time.Second) }

func TestKeyIsNeverWorkedOnConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var busy, most atomic.Int32
		seen := make(chan string, 100)
		release := make(chan struct{})
		l, _, _ := start(t, Config{Name: "t", Workers: 4}, func(_ context.Context, key string) Result {
			most.Store(max(most.Load(), busy.Add(1)))
			defer busy.Add(-1)
			seen <- key
			<-release
			return Result{}
		})
		l.Add("pv")
		receive(t, "first run", seen)
		l.Add("pv")
		l.Add("pv")
		settle()
		close(release)
		settle()
		if len(seen) != 1 {
			t.Errorf("%d more runs for keys added meanwhile, want one", len(seen))
		}
		if most.Load() != 1 {
			t.Errorf("%d handlers ran at once for one key", most.Load())
		}
	})
}

// The test runs in a bubble, whose time passes only while every goroutine waits, so that a key comes back exactly when
// it is due, even on a busy machine.
func TestBackoffGrowsUntilSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(chan string)
		next := make(chan Result)
		l, _, _ := start(t, Config{Name: "t", Workers: 1}, func(_ context.Context, key string) Result {
			seen <- key
			return <-next
		})
		retry := Result{Backoff: Backoff{First: time.Second, Max: time.Minute}}
		expectRetryAfter := func(want time.Duration) {
			t.Helper()
			expectDelay(t, want, func() { next <- retry }, seen)
		}
		l.Add("pv")
		<-seen
		for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			expectRetryAfter(want)
		}
		next <- Result{}
		l.Add("pv")
		<-seen
		expectRetryAfter(time.Second)
		next <- Result{}
	})
}

// TestSoonKeepsTheBackoff covers a key that waits for a cache between two failures of its storage system. It sleeps in
// the time of its bubble, which no slow machine delays.
func TestSoonKeepsTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(chan string)
		next := make(chan Result)
		l, _, _ := start(t, Config{Name: "t", Workers: 1}, func(_ context.Context, key string) Result {
			seen <- key
			return <-next
		})
		retry := Result{Backoff: Backoff{First: time.Second, Max: time.Minute}}
		l.Add("pv")
		<-seen
		for tries := range 4 {
			for soon := range 3 {
				expectDelay(t, Soon().Backoff.Delay(soon), func() { next <- Soon() }, seen)
			}
			time.Sleep(2 * SlowTry)
			expectDelay(t, retry.Backoff.Delay(tries), func() { next <- retry }, seen)
		}
		next <- Soon()
		<-seen
		l.mu.Lock()
		if last := l.tries["pv"]; !last.slow || last.failures() != 0 {
			t.Errorf("in between, a key of a slow system is %+v", last)
		}
		l.mu.Unlock()
		next <- Done()
	})
}

// expectDelay expects a key to come back after want, or up to a fifth earlier.
func expectDelay(t *testing.T, want time.Duration, end func(), seen <-chan string) {
	t.Helper()
	before := time.Now()
	end()
	<-seen
	if waited := time.Since(before); waited > want || waited < want*7/10 {
		t.Errorf("came back after %v, want at most a fifth less than %v", waited, want)
	}
}

func TestPanicOverOneKey(t *testing.T) {
	seen := make(chan string, 10)
	l, _, _ := start(t, Config{Name: "t", Workers: 1}, func(_ context.Context, key string) Result {
		if key == "broken" {
			panic("bad object")
		}
		seen <- key
		return Result{}
	})
	l.Add("broken")
	l.Add("fine")
	receive(t, "the key behind the broken one", seen)
}

func TestStopLetsWorkFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(chan string, 10)
		release := make(chan struct{})
		var cutOff atomic.Bool
		l, ended, _ := start(t, Config{Name: "t", Workers: 1}, func(ctx context.Context, key string) Result {
			seen <- key
			<-release
			cutOff.Store(ctx.Err() != nil)
			return Result{}
		})
		l.Add("under way")
		receive(t, "the work under way", seen)
		l.Add("waiting")
		l.Stop()
		settle()
		select {
		case <-ended:
			t.Fatal("Run returned while a handler was at work")
		default:
		}
		close(release)
		receive(t, "the end of Run", ended)
		if cutOff.Load() {
			t.Error("Stop cut off the work under way")
		}
		if len(seen) != 0 {
			t.Errorf("%q was started after Stop", <-seen)
		}
	})
}

func TestEndOfContextCancelsWork(t *testing.T) {
	seen := make(chan string, 1)
	l, ended, cancel := start(t, Config{Name: "t", Workers: 1}, func(ctx context.Context, key string) Result {
		seen <- key
		<-ctx.Done()
		return Result{}
	})
	l.Add("pv")
	receive(t, "the work under way", seen)
	cancel()
	receive(t, "the end of Run", ended)
}

func TestAddAllLimitsBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 5 * backlog
		seen := make(chan string, many)
		goOn := make(chan struct{})
		l, _, cancel := start(t, Config{Name: "t", Workers: 1}, func(ctx context.Context, key string) Result {
			select {
			case <-goOn:
			case <-ctx.Done():
			}
			seen <- key
			return Result{}
		})
		keys := make([]string, many)
		for i := range keys {
			keys[i] = strconv.Itoa(i)
		}
		added := make(chan struct{})
		go func() { defer close(added); l.AddAll(t.Context(), keys) }()
		goOn <- struct{}{}
		receive(t, "the first key", seen)
		if settle(); l.queue.Len() != backlog {
			t.Errorf("%d keys wait, want %d", l.queue.Len(), backlog)
		}
		l.Add("urgent")
		if n := l.queue.Len(); n > backlog+1 {
			t.Errorf("%d keys wait, want at most %d", n, backlog+1)
		}
		close(goOn)
		position, urgent := 1, 0
		for range many {
			position++
			if receive(t, "a key", seen) == "urgent" {
				urgent = position
			}
		}
		if urgent == 0 || urgent > 2*backlog {
			t.Errorf("the key that was added alone was worked on as number %d of %d", urgent, many+1)
		}
		receive(t, "AddAll to return", added)

		full, done := make(chan struct{}), make(chan struct{})
		stuck, _, stop := start(t, Config{Name: "t", Workers: 1}, func(ctx context.Context,
			_ string) Result {
			<-ctx.Done()
			return Result{}
		})
		go func() {
			defer close(done)
			close(full)
			stuck.AddAll(context.Background(), keys)
		}()
		receive(t, "the start", full)
		stop()
		receive(t, "AddAll to return when the loop has ended", done)
		cancel()
	})
}

// TestAddAllWaitsForNoOtherKeys: keys of Add, whose number may never fall, do not keep AddAll from adding its own.
func TestAddAllWaitsForNoOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, cancel := start(t, Config{Name: "t", Workers: 1}, func(ctx context.Context, _ string) Result {
			<-ctx.Done()
			return Result{}
		})
		for i := range 2 * backlog {
			l.Add(strconv.Itoa(i))
		}
		added := make(chan struct{})
		go func() { defer close(added); l.AddAll(t.Context(), []string{"a", "b"}) }()
		settle()
		select {
		case <-added:
		default:
			t.Error("AddAll waits for keys that it has not added")
		}
		cancel()
		<-added
	})
}
