package selfselect

import (
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
)

func TestDecide(t *testing.T) {
	selects := provision.Decision{Action: provision.SelectNode, Reason: provision.ReasonNodeSelection}
	leaves := provision.Decision{Reason: provision.ReasonOtherNode, Done: true}
	waits := provision.Decision{Reason: provision.ReasonNodeSelection, Timed: true}
	ready := Facts{Enabled: true, Free: true, Node: provision.NodeNone, Immediate: true, Allowed: true,
		Due: now()}
	change := func(change func(*Facts)) Facts { b := ready; change(&b); return b }
	cases := map[string]struct {
		facts Facts
		want  provision.Decision
	}{
		"its turn has come":                       {ready, selects},
		"nothing is known":                        {Facts{}, leaves},
		"its turn has not come":                   {change(func(b *Facts) { b.Due = now().Add(1) }), waits},
		"it has not drawn":                        {change(func(b *Facts) { b.Due = time.Time{} }), waits},
		"it does not take part":                   {change(func(b *Facts) { b.Enabled = false }), leaves},
		"the claim has a PV, or is being deleted": {change(func(b *Facts) { b.Free = false }), leaves},
		"another node was faster": {change(func(b *Facts) { b.Node = provision.NodeElsewhere }),
			leaves},
		"it is selected already": {change(func(b *Facts) { b.Node = provision.NodeHere }),
			leaves},
		"it answers for all nodes":           {change(func(b *Facts) { b.Node = provision.NodeAny }), leaves},
		"the scheduler selects":              {change(func(b *Facts) { b.Immediate = false }), leaves},
		"the class does not allow this node": {change(func(b *Facts) { b.Allowed = false }), leaves},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Decide(c.facts, now()); got != c.want {
				t.Errorf("Decide = %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestTurns(t *testing.T) {
	const first, most = 20 * time.Second, time.Minute
	for _, luck := range []float64{0, 0.5, 0.999} {
		b := NewTurns()
		b.draw = func() float64 { return luck }
		delay := func() time.Duration { return b.Due("u1", now(), first, most).Sub(now()) }
		if d := delay(); d != time.Duration(luck*float64(first)) {
			t.Errorf("first: %v", d)
		}
		again := b.Due("u1", now().Add(time.Hour), first, most)
		if again.Sub(now()) != time.Duration(luck*float64(first)) {
			t.Error("draws twice for one turn")
		}
		for _, whole := range []time.Duration{40 * time.Second, most, most} {
			b.Taken("u1")
			if d := delay(); d < whole/2 || d > whole {
				t.Errorf("after a turn: %v, want between half and whole of %v", d, whole)
			}
		}
		b.Forget("u1")
		if d := delay(); d > first {
			t.Errorf("after it was forgotten: %v", d)
		}
	}
}

// TestPause: the claim moves at most once in ten seconds, whichever nodes were selected.
func TestPause(t *testing.T) {
	const first, most = time.Second, 2 * time.Second
	b := NewTurns()
	b.draw = func() float64 { return 0.5 }
	at := now()
	for round, pause := range []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000} {
		b.Due("u1", at, first, most) // a turn that was drawn before does not count
		b.Over("u1")
		b.Due("u1", at, first, most)
		at = at.Add(time.Minute)
		b.Withdrawn("u1", at)
		pause *= time.Millisecond
		if d := b.Due("u1", at.Add(time.Millisecond), first, most).Sub(at); d != pause+first/2 {
			t.Errorf("round %d: %v, want %v and the node's own delay", round, d, pause)
		}
		b.Over("u1")
		late := at.Add(pause + time.Second)
		if d := b.Due("u1", late, first, most).Sub(late); d != first/2 {
			t.Errorf("round %d: %v after the pause", round, d)
		}
	}
	b.Taken("u1")
	if d := b.Due("u1", at, first, most).Sub(at); d != 10*time.Second+most*3/4 {
		t.Errorf("after a turn of its own: %v", d)
	}
	b.Forget("u1")
	if d := b.Due("u1", at, first, most).Sub(at); d != first/2 {
		t.Errorf("after it was forgotten: %v", d)
	}
}

func TestClaimThatNeverMovedIsForgotten(t *testing.T) {
	b := NewTurns()
	b.Due("u1", now(), time.Second, time.Second)
	if b.Over("u1"); len(b.of) > 0 {
		t.Errorf("keeps %v", b.of)
	}
}

func TestFull(t *testing.T) {
	for name, c := range map[string]struct {
		available int64
		largest   *wrapperspb.Int64Value
		want      bool
	}{
		"just enough":                   {10, nil, false},
		"too little":                    {9, nil, true},
		"nothing":                       {0, nil, true},
		"the largest volume fits":       {20, wrapperspb.Int64(10), false},
		"the largest volume is smaller": {20, wrapperspb.Int64(9), true},
		"no volume at all":              {20, wrapperspb.Int64(0), true},
		"too little in spite of that":   {9, wrapperspb.Int64(20), true},
		"a negative capacity":           {-1, nil, false},
		"a negative largest volume":     {10, wrapperspb.Int64(-1), false},
	} {
		answer := &csi.GetCapacityResponse{AvailableCapacity: c.available, MaximumVolumeSize: c.largest}
		if got := Full(answer, 10); got != c.want {
			t.Errorf("%s: Full = %v", name, got)
		}
	}
}

func now() time.Time { return time.Unix(1e9, 0) }
