package controller

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowKeyWaitsForRoom checks that the waiting key with the fewest failures goes first.
func TestSlowKeyWaitsForRoom(t *testing.T) {
	l := NewLane(5, noShare) // room for two
	if !l.Enter("a", 1) || !l.Enter("b", 1) || l.Enter("c", 7) || l.Enter("d", 2) || l.Enter("e", 5) || l.Enter("d", 3) {
		t.Fatalf("%d are inside, %v wait", l.inside, l.waiting)
	}
	if key, found := l.Next(); found {
		t.Errorf("%q is worked on without room", key)
	}
	l.Leave()
	for _, want := range []string{"d", "e", "c", ""} {
		if key, found := l.Next(); key != want || found != (want != "") {
			t.Errorf("%q is next, want %q", key, want)
		}
	}
	for n := range 30 {
		l.waiting[fmt.Sprint(n)] = slowKey{"", 30 - n}
	}
	for n := 29; n >= 0; n-- {
		if key, _ := l.Next(); key != fmt.Sprint(n) {
			t.Errorf("%q is next, want %d", key, n)
		}
	}
	if NewLane(1, noShare).limit != 1 {
		t.Error("one worker alone works on no slow key")
	}
}

// TestSharesOfLaneTakeTurns: a namespace that always has new slow keys keeps no key of another one from its turns.
func TestSharesOfLaneTakeTurns(t *testing.T) {
	l := NewLane(1, func(key string) string { return key[:1] })
	l.Enter("hangs", 0)
	for key, failures := range map[string]int{"stuck": 20, "a-1": 3, "a-2": 2, "flood-0": 0, "flood-1": 0} {
		l.Enter(key, failures)
	}
	turns := map[string]int{}
	for n := range 9 {
		l.Enter(fmt.Sprint("flood-", n), 0)
		l.Leave()
		key, _ := l.Next()
		if n%2 == 0 && l.Enter(fmt.Sprint("flood-due-", n), 0) { // it stands before the key in the queue
			turns["f"]++
			l.Leave()
		}
		l.Enter(key, 0)
		turns[key[:1]]++
	}
	if turns["s"] != 1 || turns["a"] != 2 {
		t.Errorf("turns %v", turns)
	}
	l.Leave()
	for range l.Waiting() {
		l.Next()
	}
	if l.Enter("last", 0); len(l.turns) > 0 {
		t.Errorf("%v are remembered", l.turns)
	}
}

// TestNewShareOfLaneWaits: claims in ever new namespaces keep no older key from its turn.
func TestNewShareOfLaneWaits(t *testing.T) {
	l := NewLane(1, func(key string) string { return key })
	l.Enter("hangs", 0)
	l.Enter("old", 20)
	for n := range 3 {
		l.Enter(fmt.Sprint("new-", n), 0)
		l.Leave()
		key, _ := l.Next()
		if l.Enter(key, 0); key == "old" {
			return
		}
	}
	t.Error("the old key gets no turn")
}

// TestSoonKeyGoesFirst checks that a key whose turn was interrupted by Soon does not wait for a turn behind all others.
func TestSoonKeyGoesFirst(t *testing.T) {
	l := NewQueue(nil, Config{Name: "t", Workers: 2}, func(context.Context, string) Result {
		t.Error("the lane is full")
		return Done()
	})
	l.LimitSlow(noShare)
	defer l.Stop()
	l.tries["failed once"], l.tries["interrupted"] = try{count: 1, slow: true}, try{count: 5, soon: 1, slow: true}
	if !l.lane.Enter("hangs", 0) {
		t.Fatal("the lane has no room")
	}
	for _, key := range []string{"failed once", "interrupted"} {
		l.Add(key)
		l.work(t.Context())
	}
	l.lane.Leave()
	if key, _ := l.lane.Next(); key != "interrupted" {
		t.Errorf("%q goes first", key)
	}
}

// TestSlowKeysLeaveWorkersToOthers: twice as many keys as workers hang in each try, and each of them still gets its
// turns, with its number of tries.
func TestSlowKeysLeaveWorkersToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		tries := map[string]int{}
		quick := make(chan time.Time, 1)
		retry := Result{Backoff{First: time.Second, Max: time.Second}}
		l, _, _ := start(t, Config{Name: "t", Workers: 2}, func(_ context.Context, key string) Result {
			if key == "quick" {
				quick <- time.Now()
				return Done()
			}
			time.Sleep(10 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			tries[key]++
			return retry
		})
		for n := range 4 {
			l.Add(fmt.Sprint(n))
		}
		time.Sleep(time.Minute)
		for range 20 {
			time.Sleep(7 * time.Second)
			added := time.Now()
			l.Add("quick")
			if waited := receive(t, "the quick key", quick).Sub(added); waited > 0 {
				t.Errorf("a quick key waited for %v", waited)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		for n := range 4 {
			if key := fmt.Sprint(n); tries[key] < 3 || l.tries[key].count != tries[key] {
				t.Errorf("slow key %s: %d tries, %d counted", key, tries[key], l.tries[key].count)
			}
		}
	})
}
