package singlenode

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
)

// A thousand calls come at once and over time. No call gets a list that began before it.
func TestManyCallsShareFewLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, takes = 1000, time.Second
		var lists, running atomic.Int64
		u := newUsers(func(context.Context, string) ([]singlenode.Pod, error) {
			if running.Add(1) > 1 {
				t.Error("two lists of a namespace run at once")
			}
			defer running.Add(-1)
			time.Sleep(takes)
			return make([]singlenode.Pod, lists.Add(1)), nil
		}, time.Now)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				time.Sleep(time.Duration(i%100) * takes / 50)
				asked, before := time.Now(), lists.Load()
				pods, began, err := u.of(t.Context(), "ns")
				if err != nil || began.Before(asked) || len(pods) <= int(before) {
					t.Errorf("list %d, begun %v after the call: %v", len(pods), began.Sub(asked), err)
				}
				if waited := time.Since(asked); waited > 2*takes {
					t.Errorf("a call waits for %v", waited)
				}
			})
		}
		all.Wait()
		if n := lists.Load(); n > 5 {
			t.Errorf("%d lists for %d calls within 2 seconds", n, callers)
		}
		if len(u.namespaces) > 0 {
			t.Errorf("%v is left", u.namespaces)
		}
	})
}

func TestListsOfNamespacesRunConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUsers(func(_ context.Context, namespace string) ([]singlenode.Pod, error) {
			time.Sleep(time.Second)
			return []singlenode.Pod{{Ephemeral: []string{namespace}}}, nil
		}, time.Now)
		began := time.Now()
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				namespace := fmt.Sprint("ns-", i)
				if pods, _, err := u.of(t.Context(), namespace); err != nil || pods[0].Ephemeral[0] != namespace {
					t.Errorf("%s: %v, %v", namespace, pods, err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took != time.Second {
			t.Errorf("the lists take %v", took)
		}
	})
}

// Neither a waiting call nor the listing call ends the list for others.
func TestCanceledCallDoesNotEndListOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lists atomic.Int64
		u := newUsers(func(ctx context.Context, _ string) ([]singlenode.Pod, error) {
			lists.Add(1)
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(time.Second):
				return []singlenode.Pod{{}}, nil
			}
		}, time.Now)
		var all sync.WaitGroup
		first, endFirst := context.WithCancel(t.Context())
		waits, endWaiting := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{first, waits} {
			all.Go(func() {
				if _, _, err := u.of(ctx, "ns"); !errors.Is(err, context.Canceled) {
					t.Errorf("a call that ends: %v", err)
				}
			})
			synctest.Wait()
		}
		for range 3 {
			all.Go(func() {
				asked := time.Now()
				if pods, began, err := u.of(t.Context(), "ns"); err != nil || len(pods) != 1 || began.Before(asked) {
					t.Errorf("%v, %v", pods, err)
				}
			})
		}
		synctest.Wait()
		endWaiting()
		synctest.Wait()
		endFirst()
		all.Wait()
		if n := lists.Load(); n != 2 {
			t.Errorf("%d lists", n)
		}
		if len(u.namespaces) > 0 {
			t.Errorf("%v is left", u.namespaces)
		}
	})
}

// The list fails for all calls that have waited for it, and for no later call.
func TestListFailsForWaitingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errNoAnswer := errors.New("no answer")
		var lists atomic.Int64
		u := newUsers(func(context.Context, string) ([]singlenode.Pod, error) {
			time.Sleep(time.Second)
			if lists.Add(1) == 2 {
				return nil, errNoAnswer
			}
			return nil, nil
		}, time.Now)
		var all sync.WaitGroup
		of := func(want error) {
			all.Go(func() {
				if _, _, err := u.of(t.Context(), "ns"); !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			})
			synctest.Wait()
		}
		of(nil)
		of(errNoAnswer)
		of(errNoAnswer)
		all.Wait()
		of(nil)
		all.Wait()
	})
}

// Another waiting call makes it again.
func TestListOfCanceledCallIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUsers(func(ctx context.Context, _ string) ([]singlenode.Pod, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(time.Second):
				return []singlenode.Pod{{}}, nil
			}
		}, time.Now)
		makes, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, ctx := range []context.Context{t.Context(), makes, t.Context()} { // the last two share the second list
			all.Go(func() {
				if pods, _, err := u.of(ctx, "ns"); ctx != makes && (err != nil || len(pods) != 1) {
					t.Errorf("%v, %v", pods, err)
				} else if ctx == makes && !errors.Is(err, context.Canceled) {
					t.Errorf("a call that ends: %v", err)
				}
			})
			synctest.Wait()
		}
		time.Sleep(1500 * time.Millisecond)
		end()
		all.Wait()
	})
}

// Another waiting call makes it again.
func TestListAfterPanicIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lists atomic.Int64
		u := newUsers(func(context.Context, string) ([]singlenode.Pod, error) {
			time.Sleep(time.Second)
			if lists.Add(1) == 2 {
				panic("a list panics")
			}
			return []singlenode.Pod{{}}, nil
		}, time.Now)
		var all sync.WaitGroup
		var panics atomic.Int64
		for range 4 {
			all.Go(func() {
				defer func() {
					if recover() != nil {
						panics.Add(1)
					}
				}()
				if pods, _, err := u.of(t.Context(), "ns"); err != nil || len(pods) != 1 {
					t.Errorf("%v, %v", pods, err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if panics.Load() != 1 || lists.Load() > 4 || len(u.namespaces) > 0 {
			t.Errorf("%d panics, %d lists, %v is left", panics.Load(), lists.Load(), u.namespaces)
		}
	})
}
