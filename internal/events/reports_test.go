package events

import (
	"maps"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
)

type reason string

func (b *lastReports[R]) news(uid types.UID, reason R, detail string, waits bool) bool {
	news, _ := b.Now(uid, reason, detail, waits)
	return news
}

func TestReasonIsNewsOnce(t *testing.T) {
	b := lastReports[reason]{clock: clock.RealClock{}}
	for i, step := range []struct {
		say  func() bool
		news bool
	}{
		{func() bool { return b.news("a", "InUse", "", true) }, true},
		{func() bool { return b.news("a", "InUse", "", true) }, false},
		{func() bool { return b.news("b", "InUse", "", true) }, true},
		{func() bool { return b.news("a", "InUse", "by another", true) }, true},
		{func() bool { return b.Aside("a", "Odd") }, true},
		{func() bool { return b.Aside("a", "Odd") }, false},
		{func() bool { return b.news("a", "InUse", "by another", true) }, false},
		{func() bool { return b.news("a", "Unused", "", false) }, true},
		{func() bool { return b.Aside("a", "Odd") }, false}, // it is still true
		{func() bool { return b.news("a", "InUse", "", true) }, true},
		{func() bool { b.Forget("a"); return b.news("a", "InUse", "", true) }, true},
		{func() bool { b.Count("a", "InUse"); return b.news("a", "InUse", "", true) }, false},
		{func() bool { b.Count("a", "Odd"); return b.news("a", "Odd", "", true) }, true},
		{func() bool { return b.news("a", "Odd", "", true) }, false},
		{func() bool { b.Count("a", "InUse"); b.Count("a", "Odd"); return b.news("a", "Odd", "", true) }, true},
		{func() bool { b.Aside("a", "Strange"); b.Count("a", "InUse"); return b.Aside("a", "Strange") }, false},
	} {
		if news := step.say(); news != step.news {
			t.Errorf("step %d: news %v, want %v", i, news, step.news)
		}
	}
}

func TestWaitingCount(t *testing.T) {
	start := time.Unix(1e9, 0)
	clk := testclock.NewFakePassiveClock(start)
	b := lastReports[reason]{clock: clk}
	b.news("a", "InUse", "", true)
	b.news("b", "InUse", "once", true)
	b.Count("c", "InUse")
	b.Count("c", "Held")
	b.Aside("d", "Odd")
	clk.SetTime(start.Add(time.Minute))
	b.news("b", "InUse", "by another", true)
	b.Count("c", "Held")
	b.Count("e", "InUse")
	want := map[reason]waiting{"InUse": {3, time.Minute}, "Held": {1, time.Minute}}
	if got := b.Waiting(); !maps.Equal(got, want) {
		t.Errorf("%v wait, want %v", got, want)
	}
	b.news("a", "Unused", "", false)
	b.news("d", "Unused", "", false)
	b.Forget("c")
	b.news("e", "Held", "", true)
	b.news("e", "InUse", "", true)
	if got, want := b.Waiting(), (map[reason]waiting{"InUse": {2, time.Minute}}); !maps.Equal(got, want) {
		t.Errorf("%v wait, want %v", got, want)
	}
	if len(b.last) != 3 {
		t.Errorf("%d are remembered, want those that wait and the one of which something else is true", len(b.last))
	}
	b.Forget("b")
	if got := b.Waiting()["InUse"]; got != (waiting{1, 0}) {
		t.Errorf("%v wait, want one since just now", got)
	}
}

// A wait whose reason alternates with another is as old as it is long.
func TestInterruptedWaitKeepsItsAge(t *testing.T) {
	start := time.Unix(1e9, 0)
	for between, want := range map[time.Duration]map[reason]waiting{
		brief / 2: {"Failed": {1, 20 * brief}}, brief + 1: {"Failed": {1, 0}},
	} {
		clk := testclock.NewFakePassiveClock(start)
		b := lastReports[reason]{clock: clk}
		for n := range 20 * brief / between / 2 {
			clk.SetTime(start.Add(2 * n * between))
			b.news("a", "Failed", "no answer", true)
			clk.SetTime(start.Add((2*n + 1) * between))
			b.Count("a", "InProgress")
		}
		clk.SetTime(start.Add(20 * brief / between / 2 * 2 * between))
		b.news("a", "Failed", "no answer", true)
		if got := b.Waiting(); !maps.Equal(got, want) {
			t.Errorf("each %s: %v wait, want %v", between, got, want)
		}
		b.Aside("a", "Odd")
		b.news("a", "Unused", "", false)
		b.news("a", "Failed", "no answer", true)
		if got := b.Waiting()["Failed"].longest; got != 0 {
			t.Errorf("each %s: after its end, it waits for %s", between, got)
		}
	}
}

// A change is reported at once, further changes once a minute, and an unchanged state before its Event expires.
func TestPace(t *testing.T) {
	start := time.Unix(1e9, 0)
	clk := testclock.NewFakePassiveClock(start)
	b := lastReports[reason]{pace: Pace{Change: time.Minute, Repeat: 20 * time.Minute}, clock: clk}
	for i, step := range []struct {
		at     time.Duration
		reason reason
		detail string
		news   bool
	}{
		{0, "Failed", "no answer", true},
		{time.Second, "Failed", "no answer", false},
		{2 * time.Second, "Failed", "no room", true},
		{3 * time.Second, "Failed", "no room, request 1", false},
		{4 * time.Second, "Full", "", false},
		{62 * time.Second, "Failed", "no room, request 2", true},
		{63 * time.Second, "Failed", "no room, request 2", false},
		{21*time.Minute + time.Second, "Failed", "no room, request 2", false},
		{21*time.Minute + 2*time.Second, "Failed", "no room, request 2", true},
		{22 * time.Minute, "Full", "", true},
		{41 * time.Minute, "Full", "", false},
		{42 * time.Minute, "Full", "", true},
	} {
		clk.SetTime(start.Add(step.at))
		if news := b.news("a", step.reason, step.detail, true); news != step.news {
			t.Errorf("step %d: news %v, want %v", i, news, step.news)
		}
	}
	b.news("a", "Unused", "", false)
	if len(b.last) > 0 {
		t.Errorf("%d are remembered", len(b.last))
	}
}
