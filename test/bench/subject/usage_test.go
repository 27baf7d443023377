//go:build unix

package subject

import (
	"os"
	"testing"
	"time"
)

func TestUsageOfAProcess(t *testing.T) {
	status := "Name:\tx\nVmPeak:\t 9 kB\nVmHWM:\t  20480 kB\nVmRSS:\t  10240 kB\n"
	stat := "42 (a ) name) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20"
	got, err := parseUsage(status, stat)
	if want := (Usage{PeakMiB: 20, ResidentMiB: 10, CPU: 2}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, bad := range [][2]string{{"", stat}, {status, ""}, {status, "42 (x) S 1"}} {
		if _, err := parseUsage(bad[0], bad[1]); err == nil {
			t.Errorf("%q gives no error", bad)
		}
	}
}

func TestBusyProcessors(t *testing.T) {
	before := "cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1 1 1 1\n"
	after := "cpu  130 0 120 730 120 0 0 0 90 0\ncpu0 9 9 9 9\n"
	if got := busyBetween(before, after); got != 50 {
		t.Errorf("busy %v %%, want 50", got)
	}
	if got := busyBetween("", ""); got != 0 {
		t.Errorf("of nothing: %v %%, want 0", got)
	}
}

func TestUsageCountsProcessorTime(t *testing.T) {
	before, err := UsageOf(os.Getpid())
	if err != nil {
		t.Skipf("only Linux has /proc: %v", err)
	}
	deadline := time.Now().Add(time.Minute)
	for after := before; after.CPU-before.CPU < 0.05; {
		if time.Now().After(deadline) {
			t.Fatalf("a minute of work used %v s", after.CPU-before.CPU)
		}
		if after, err = UsageOf(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
}
