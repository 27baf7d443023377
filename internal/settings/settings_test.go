package settings

import (
	"testing"
	"time"

	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
)

func TestDefaults(t *testing.T) {
	for _, c := range []struct{ first, longest, wantFirst, wantLongest time.Duration }{
		{0, 0, time.Second, 5 * time.Minute},
		{time.Minute, 0, time.Minute, 5 * time.Minute},
		{0, time.Hour, time.Second, time.Hour},
		{2, 3, 2, 3},
	} {
		if first, longest := Retries(c.first, c.longest); first != c.wantFirst || longest != c.wantLongest {
			t.Errorf("%+v: from %v to %v", c, first, longest)
		}
	}
	recorder := record.NewFakeRecorder(1)
	if Events(nil, false) != (events.Discard{}) || Events(recorder, true) != (events.Discard{}) ||
		Events(recorder, false) != recorder {
		t.Error("Events go elsewhere")
	}
	fake := testclock.NewFakeClock(time.Now())
	if Clock(nil) != (clock.RealClock{}) || Clock(fake) != fake {
		t.Error("it is another clock")
	}
}

func TestWrong(t *testing.T) {
	for _, c := range []struct {
		first, longest time.Duration
		workers        int
		want           string
	}{
		{},
		{first: time.Minute, longest: time.Minute, workers: 1},
		{workers: -1, want: "workers: -1 is negative"},
		{first: -1, want: "retries: from -1ns to 5m0s is not a growing delay"},
		{longest: time.Millisecond, want: "retries: from 1s to 1ms is not a growing delay"},
		{first: time.Hour, workers: -2,
			want: "workers: -2 is negative\nretries: from 1h0m0s to 5m0s is not a growing delay"},
	} {
		var wrong Wrong
		wrong.Workers(c.workers)
		wrong.Retries(c.first, c.longest)
		got := ""
		if err := wrong.Err(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
