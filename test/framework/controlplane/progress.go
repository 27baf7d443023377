//go:build unix

package controlplane

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// progressInterval is how often a build says how far it is.
const progressInterval = 5 * time.Second

// lineCounter counts the lines that are written to it.
type lineCounter struct{ lines atomic.Int64 }

func (c *lineCounter) Write(p []byte) (int, error) {
	c.lines.Add(int64(bytes.Count(p, []byte("\n"))))
	return len(p), nil
}

func (c *lineCounter) count() int { return int(c.lines.Load()) }

// describe returns the number of packages begun, out of total. The last is the program itself, whose linking takes a
// while.
func (c *lineCounter) describe(total int) string {
	done := c.count()
	if done >= total {
		return "linking"
	}
	return fmt.Sprintf("%d of %d packages", done, total)
}

// every calls say again and again until stop is called, which returns when no call runs any more.
func every(interval time.Duration, say func()) (stop func()) {
	quit := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				say()
			case <-quit:
				return
			}
		}
	})
	return func() { close(quit); running.Wait() }
}
