package objects

import (
	"context"
	"fmt"
	"time"
)

// How often a condition is checked: often at first, for the API server is on this machine,
// and then less and less, for it has other work to do.
const (
	pollFirst = 5 * time.Millisecond
	pollLast  = 80 * time.Millisecond
)

// poll returns how long to wait before the next look, after this many.
func poll(looks int) time.Duration { return min(pollFirst<<min(looks, 10), pollLast) }

// wait returns once an object is as wanted. get returns nil for one that is gone, which want and
// describe take too. The error describes the state that the object was last seen in.
func wait[T any](ctx context.Context, what string, get func(context.Context) (*T, error), want func(*T) bool,
	describe func(*T) string) error {
	seen := "nothing"
	for looks := 0; ; looks++ {
		object, err := get(ctx)
		if err == nil && want(object) {
			return nil
		}
		switch {
		case err == nil:
			seen = describe(object)
		case ctx.Err() == nil:
			seen = err.Error()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; last seen: %s", what, ctx.Err(), seen)
		case <-time.After(poll(looks)):
		}
	}
}
