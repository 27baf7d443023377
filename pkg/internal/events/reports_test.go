package events

import (
	"maps"
	"testing"
)

type reason string

func TestEachReasonIsNewsOnce(t *testing.T) {
	var b lastReports[reason]
	for i, step := range []struct {
		say  func() bool
		news bool
	}{
		{func() bool { return b.Now("a", "InUse", "", true) }, true},
		{func() bool { return b.Now("a", "InUse", "", true) }, false},
		{func() bool { return b.Now("b", "InUse", "", true) }, true},
		{func() bool { return b.Now("a", "InUse", "by another", true) }, true},
		{func() bool { return b.Aside("a", "Odd") }, true},
		{func() bool { return b.Aside("a", "Odd") }, false},
		{func() bool { return b.Now("a", "InUse", "by another", true) }, false},
		{func() bool { return b.Now("a", "Unused", "", false) }, true},
		{func() bool { return b.Aside("a", "Odd") }, false}, // it is still true
		{func() bool { return b.Now("a", "InUse", "", true) }, true},
		{func() bool { b.Forget("a"); return b.Now("a", "InUse", "", true) }, true},
	} {
		if news := step.say(); news != step.news {
			t.Errorf("step %d: news %v, want %v", i, news, step.news)
		}
	}
}

func TestWhatWaitsIsCounted(t *testing.T) {
	var b lastReports[reason]
	b.Now("a", "InUse", "", true)
	b.Now("b", "InUse", "once", true)
	b.Now("c", "Held", "", true)
	b.Aside("d", "Odd")
	if got, want := b.Waiting(), map[reason]int{"InUse": 2, "Held": 1}; !maps.Equal(got, want) {
		t.Errorf("%v wait, want %v", got, want)
	}
	b.Now("a", "Unused", "", false)
	b.Now("d", "Unused", "", false)
	b.Forget("c")
	if got, want := b.Waiting(), map[reason]int{"InUse": 1}; !maps.Equal(got, want) {
		t.Errorf("%v wait, want %v", got, want)
	}
	if len(b.last) != 2 {
		t.Errorf("%d are remembered, want the one that waits and the one of which something else is true", len(b.last))
	}
}
