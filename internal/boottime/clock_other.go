//go:build !linux

package boottime

import "time"

// start is the origin of this clock, whose readings are only compared within one process.
var start = time.Now()

// Now returns the time since the program started, by Go's monotonic clock. The operating system determines whether that
// includes a suspend of the machine. Now is safe for concurrent use.
func Now() time.Duration { return time.Since(start) }
