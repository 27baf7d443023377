//go:build !linux

package boottime

import "time"

// start is where this clock begins: readings of it are compared within one process only.
var start = time.Now()

// Now returns the time since the program started, by Go's monotonic clock. Whether that counts
// time in which the machine was suspended depends on the operating system. It is safe for
// concurrent use.
func Now() time.Duration { return time.Since(start) }
