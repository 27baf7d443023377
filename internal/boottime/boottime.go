// Package boottime reads a clock that counts the time in which the machine was suspended.
//
// Go's own monotonic clock is CLOCK_MONOTONIC on Linux, which stands still while the machine
// sleeps. A lease continues meanwhile, so how long it lasts is measured by this clock.
package boottime
