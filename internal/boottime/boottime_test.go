package boottime

import (
	"testing"
	"time"
)

func TestNowIsMonotonic(t *testing.T) {
	begun := Now()
	last := begun
	for range 1000 {
		now := Now()
		if now < last {
			t.Fatalf("the clock went back from %v to %v", last, now)
		}
		last = now
	}
	time.Sleep(time.Millisecond)
	if passed := Now() - begun; passed < time.Millisecond {
		t.Errorf("%v passed by this clock in more than 1ms", passed)
	}
}
