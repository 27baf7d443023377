package inuse

import (
	"testing"
	"time"
)

const patience = 30 * time.Second

func at(seconds int) time.Time { return time.Unix(1000+int64(seconds), 0) }

func object(terminating, protected bool) Object {
	return Object{Name: "o", UID: "u", Terminating: terminating, Protected: protected}
}

// again has a need begin, and others be seen at work on other objects, for so many seconds.
func again(n *tracker, seconds int) {
	n.due("u", at(0))
	for s := 20; s <= seconds; s += 20 {
		other(n, at(s))
	}
}

// TestTrackerAlone plays events and writes, and checks whether the tracker takes itself to be alone.
func TestTrackerAlone(t *testing.T) {
	need, going, held := object(false, false), object(true, true), object(false, true)
	letGo := object(true, false)
	cases := map[string]struct {
		play       func(*tracker)
		at         int
		alone      bool
		unanswered bool
	}{
		"at first nothing is known":                {func(*tracker) {}, 100, false, false},
		"a need that is new":                       {func(n *tracker) { n.due("u", at(0)) }, 29, false, false},
		"a need without an answer for long enough": {func(n *tracker) { n.due("u", at(0)) }, 30, false, true},
		"it counts from when it was first found": {func(n *tracker) { n.due("u", at(0)); n.due("u", at(20)) }, 30,
			false, true},
		"it counts anew when it ended meanwhile": {func(n *tracker) {
			n.due("u", at(0))
			n.notDue("u")
			n.due("u", at(20))
		}, 30, false, false},
		"another object was released by others meanwhile": {func(n *tracker) { n.due("u", at(0)); other(n, at(20)) }, 49,
			false, false},
		"and then nothing more was done by others": {func(n *tracker) { n.due("u", at(0)); other(n, at(20)) }, 50,
			false, true},
		"others were seen on other objects, again and again": {func(n *tracker) { again(n, 300) }, 299, false, false},
		"and that for ten times as long":                     {func(n *tracker) { again(n, 300) }, 300, false, true},
		"proven: no answer":                                  {func(n *tracker) { n.alone() }, 0, true, false},
		"others add the finalizer": {func(n *tracker) { n.alone(); n.changed(need, held, at(1)) }, 2,
			false, false},
		"others let one go that has more finalizers": {func(n *tracker) { n.alone(); n.changed(going, letGo, at(1)) }, 2,
			false, false},
		"others let one go": {func(n *tracker) { n.alone(); n.gone(going, true, at(1)) }, 2,
			false, false},
		"we add the finalizer": {func(n *tracker) {
			n.alone()
			ours(n, AddFinalizer, accepted)
			n.changed(need, held, at(1))
		}, 2, true, false},
		"we let one go": {func(n *tracker) {
			n.alone()
			ours(n, RemoveFinalizer, accepted)
			n.gone(going, true, at(1))
		}, 2, true, false},
		"we let one go and the watch is faster": {func(n *tracker) {
			n.alone()
			n.begin("u", RemoveFinalizer)
			n.gone(going, true, at(1))
			n.end("u", RemoveFinalizer, accepted)
		}, 2, true, false},
		"we may have let one go: the answer was lost": {func(n *tracker) {
			n.alone()
			ours(n, RemoveFinalizer, lost)
			n.gone(going, true, at(1))
		}, 2, true, false},
		"our write was refused, others let it go": {func(n *tracker) {
			n.alone()
			ours(n, RemoveFinalizer, refused)
			n.gone(going, true, at(1))
		}, 2, false, false},
		"we add it, later others remove it": {func(n *tracker) {
			n.alone()
			ours(n, AddFinalizer, accepted)
			n.changed(need, held, at(1))
			n.changed(held, going, at(2))
			n.gone(going, true, at(3))
		}, 4, false, false},
		"one is deleted that had no finalizer": {func(n *tracker) { n.alone(); n.gone(need, true, at(1)) }, 2,
			true, false},
		"one went unseen": {func(n *tracker) { n.alone(); n.gone(going, false, at(1)) }, 2,
			true, false},
		"a protected one begins to be deleted": {func(n *tracker) { n.alone(); n.changed(held, going, at(1)) }, 2,
			true, false},
		"an unprotected one begins to be deleted": {func(n *tracker) { n.alone(); n.changed(need, letGo, at(1)) }, 2,
			true, false},
		"the finalizer of an object in use is removed": {func(n *tracker) { n.alone(); n.changed(held, need, at(1)) }, 2,
			true, false},
		"it was protected and deleted between two looks": {func(n *tracker) { n.alone(); n.changed(need, going, at(1)) }, 2,
			false, false},
		"another leader took over and back": {func(n *tracker) { n.due("u", at(0)); n.alone(); n.leads() },
			100, false, false},
	}
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			n := newTracker(ModeFull, patience)
			c.play(n)
			d := n.duty(need, at(c.at))
			if d.Alone != c.alone || d.Unanswered != c.unanswered || n.isAlone() != c.alone {
				t.Errorf("alone %v, unanswered %v, want %v, %v", d.Alone, d.Unanswered, c.alone, c.unanswered)
			}
		})
	}
}

// other has another program release another object.
func other(n *tracker, when time.Time) {
	n.gone(Object{Name: "other", UID: "other", Terminating: true, Protected: true}, true, when)
}

func ours(n *tracker, a Action, came outcome) {
	n.begin("u", a)
	n.end("u", a, came)
}

func TestTrackerKnowsOwnWrites(t *testing.T) {
	need, held, going := object(false, false), object(false, true), object(true, true)
	n := newTracker(ModeFull, patience)
	ours(n, AddFinalizer, accepted)
	if d := n.duty(need, at(0)); !d.Added || d.Removed || d.Adds != 1 {
		t.Errorf("after it was put on: %+v", d)
	}
	n.changed(need, held, at(1))
	n.changed(held, need, at(2))
	if d := n.duty(need, at(3)); d.Added || d.Adds != 1 {
		t.Errorf("after others removed it: %+v", d)
	}
	ours(n, AddFinalizer, refused)
	if d := n.duty(need, at(3)); d.Added || d.Adds != 1 {
		t.Errorf("after a refusal: %+v", d)
	}
	ours(n, AddFinalizer, lost)
	if d := n.duty(need, at(3)); d.Added || d.Removed {
		t.Errorf("after a lost answer: %+v", d)
	}
	n.changed(need, held, at(4))
	n.changed(held, going, at(4))
	ours(n, RemoveFinalizer, accepted)
	if d := n.duty(going, at(5)); !d.Removed || d.Added {
		t.Errorf("after it was removed: %+v", d)
	}
	n.gone(going, true, at(6))
	if len(n.of) != 0 {
		t.Errorf("%v is left of what is gone", n.of)
	}
}

// A session may end between the moment when the cache lacks an object and the event of its deletion.
func TestSettledBeforeDeletionEvent(t *testing.T) {
	t.Parallel()
	going := object(true, true)
	for came, others := range map[outcome]bool{accepted: false, lost: false, refused: true} {
		n := newTracker(ModeFull, patience)
		n.due(going.UID, at(0))
		ours(n, RemoveFinalizer, came)
		n.settled(going.UID)
		if news := n.gone(going, true, at(1)); news != others || len(n.of) != 0 {
			t.Errorf("outcome %d: others are at work: %t, left: %v", came, news, n.of)
		}
	}
	n := newTracker(ModeFull, patience)
	n.gone(going, false, at(0))
	n.due(going.UID, at(1))
	n.settled(going.UID)
	if len(n.of) != 0 {
		t.Errorf("%v is left of an object that is gone", n.of)
	}
}
