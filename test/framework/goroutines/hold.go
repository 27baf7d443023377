package goroutines

import "testing"

// changes is far more often than a missing lock needs to be seen.
const changes = 50_000

// Hold fails the test if holds is false at a moment between or during changes, which another goroutine makes one after
// the other. holds has to be true before.
func Hold(t testing.TB, what string, holds func() bool, change func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range changes {
			change()
		}
	}()
	defer func() { <-done }()
	for looks := 1; ; looks++ {
		if !holds() {
			t.Errorf("look %d: not true that %s", looks, what)
			return
		}
		select {
		case <-done:
			return
		default:
		}
	}
}
