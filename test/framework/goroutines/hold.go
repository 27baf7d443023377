package goroutines

import (
	"runtime"
	"sync/atomic"
	"testing"
)

const (
	// changes is far more often than a missing lock needs to be seen.
	changes = 50_000
	// looks is the same on a single processor, where each look interrupts the changes anywhere.
	looks = 30
)

// Hold fails the test if holds is false at a moment between or during changes, which another goroutine makes one after
// the other. holds has to be true before.
func Hold(t testing.TB, what string, holds func() bool, change func()) {
	t.Helper()
	var looked atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; n < changes || looked.Load() < looks; n++ {
			change()
		}
	}()
	defer func() {
		looked.Store(looks)
		<-done
	}()
	for look := int64(1); ; look++ {
		if !holds() {
			t.Errorf("look %d: not true that %s", look, what)
			return
		}
		looked.Store(look)
		select {
		case <-done:
			return
		default:
			runtime.Gosched() // a single processor makes changes until it interrupts them
		}
	}
}
