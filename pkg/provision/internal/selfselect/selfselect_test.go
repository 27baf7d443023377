package selfselect

import (
	"testing"
	"time"

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
			b.Selected("u1")
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

func now() time.Time { return time.Unix(1e9, 0) }
