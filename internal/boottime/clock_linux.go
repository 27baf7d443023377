package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since the machine booted, including any suspend (CLOCK_BOOTTIME, clock_gettime(2)). It never
// goes back while the machine runs, and is safe for concurrent use.
func Now() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		// Linux has this clock since 2.6.39, and Go needs 3.2.
		panic("read CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(now.Nano())
}
