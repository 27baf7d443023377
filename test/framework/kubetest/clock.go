package kubetest

import (
	"time"

	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
)

// EagerClock is a fake clock that advances by the duration of each new timer at once. Code that waits in a loop then
// runs without a second goroutine that advances its clock, and the elapsed time is exact.
type EagerClock struct{ *testclock.FakeClock }

// NewTimer returns a timer that has fired.
func (c EagerClock) NewTimer(d time.Duration) clock.Timer {
	timer := c.FakeClock.NewTimer(d)
	c.Step(d)
	return timer
}
