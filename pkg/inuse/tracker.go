package inuse

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// tracker has what a process knows of the objects that need something, by UID, and of others who do
// the same work. It is safe for concurrent use.
type tracker struct {
	mode     Mode
	patience time.Duration

	mu   sync.Mutex
	peer peer
	of   map[types.UID]entry
}

// entry is what is known of one object, from its first need to its end.
type entry struct {
	// since is when the need that it has now was first found due, zero if it is not.
	since time.Time
	// sent: a write of ours is on its way, or was accepted, or its outcome is unknown. accepted: it was.
	sent, accepted bool
	adds           int
}

func newTracker(mode Mode, patience time.Duration) *tracker {
	return &tracker{mode: mode, patience: patience, of: map[types.UID]entry{}}
}

// changed notes that an object changed, and reports whether it is news that somebody else is at work.
func (t *tracker) changed(before, now Object, at time.Time) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before.Protected == now.Protected && before.Terminating == now.Terminating {
		return false
	}
	it := t.of[before.UID]
	// What it needs next is another need.
	t.of[before.UID] = entry{adds: it.adds}
	return answered(before, now) && !it.sent && t.sawOthers(at)
}

// gone notes an object's end, and reports the same. final: the end itself was seen.
func (t *tracker) gone(last Object, final bool, at time.Time) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	it := t.of[last.UID]
	delete(t.of, last.UID)
	// Removing the last finalizer looks like a deletion with the finalizer still on.
	return final && last.Terminating && last.Protected && !it.sent && t.sawOthers(at)
}

// answered reports whether an object got what it needed.
func answered(before, now Object) bool {
	if before.Terminating {
		return before.Protected && !now.Protected
	}
	return !before.Protected && now.Protected
}

func (t *tracker) sawOthers(at time.Time) (news bool) {
	news = t.peer.absent || t.peer.seen.IsZero()
	t.peer = t.peer.atWork(at)
	return news
}

// duty returns what is known about whether it is on us to act for an object.
func (t *tracker) duty(o Object, at time.Time) Duty {
	t.mu.Lock()
	defer t.mu.Unlock()
	it := t.of[o.UID]
	return Duty{
		Mode: t.mode, Alone: t.peer.absent, Adds: it.adds,
		Unanswered: !it.since.IsZero() && !at.Before(t.peer.patientUntil(it.since, t.patience)),
		Added:      it.accepted && !o.Terminating, Removed: it.accepted && o.Terminating,
	}
}

// due notes that an object needs something that others are given the time to do, and returns how
// long that still is.
func (t *tracker) due(uid types.UID, at time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	it := t.of[uid]
	if it.since.IsZero() {
		it.since = at
		t.of[uid] = it
	}
	return max(0, t.peer.patientUntil(it.since, t.patience).Sub(at))
}

// notDue notes that an object needs nothing now.
func (t *tracker) notDue(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if it, known := t.of[uid]; known {
		it.since = time.Time{}
		t.of[uid] = it
	}
}

// alone notes that no other program does the work, and reports whether that is new.
func (t *tracker) alone() (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	news = !t.peer.absent
	t.peer = t.peer.missing()
	return news
}

// begin notes that a write is about to be sent; end what came of it: whether it was accepted, refused,
// or neither is known.
func (t *tracker) begin(uid types.UID, a Action) {
	t.mu.Lock()
	defer t.mu.Unlock()
	it := t.of[uid]
	it.sent = true
	if a == AddFinalizer {
		it.adds++
	}
	t.of[uid] = it
}

// outcome is what came of a write.
type outcome uint8

const (
	// lost: the answer is not known.
	lost outcome = iota
	accepted
	refused
)

func (t *tracker) end(uid types.UID, a Action, came outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	it, known := t.of[uid]
	if !known || !it.sent {
		return // the watch was faster
	}
	it.sent, it.accepted = came != refused, came == accepted
	if a == AddFinalizer && came == refused {
		it.adds--
	}
	t.of[uid] = it
}

// leads begins anew: what others did before this process led says nothing, and what it wrote then
// neither.
func (t *tracker) leads() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.peer, t.of = peer{}, map[types.UID]entry{}
}

// othersSeen reports whether anybody else was seen at work since this process leads.
func (t *tracker) othersSeen() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.peer.seen.IsZero()
}

// isAlone reports whether no other program does the work.
func (t *tracker) isAlone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peer.absent
}
