// Package boottime reads a clock that keeps counting while the machine is suspended.
//
// Go's monotonic clock is CLOCK_MONOTONIC on Linux, which stops during a suspend. A lease runs on in that time, so its
// duration is measured on this clock.
package boottime
