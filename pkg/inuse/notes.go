package inuse

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// notes are what a process remembers of the objects that need something, by UID, and of others
// who do the work. They are safe for concurrent use.
type notes struct {
	mode     Mode
	patience time.Duration

	mu   sync.Mutex
	peer peer
	of   map[types.UID]note
}

// note is what is remembered of one object, from its first need to its end.
type note struct {
	// since is when the need that it has now was first found due, zero if it is not.
	since time.Time
	// sent: a write of ours is on its way, or was taken, or nobody knows. taken: it was taken.
	sent, taken bool
	adds        int
}

func newNotes(mode Mode, patience time.Duration) *notes {
	return &notes{mode: mode, patience: patience, of: map[types.UID]note{}}
}

// changed notes that an object changed, and tells whether it is news that somebody else is at work.
func (n *notes) changed(before, now Object, at time.Time) (news bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if before.Protected == now.Protected && before.Terminating == now.Terminating {
		return false
	}
	it := n.of[before.UID]
	// What it needs next is another need.
	n.of[before.UID] = note{adds: it.adds}
	return answered(before, now) && !it.sent && n.sawOthers(at)
}

// gone notes an object's end, and tells the same. final: the end itself was seen.
func (n *notes) gone(last Object, final bool, at time.Time) (news bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	it := n.of[last.UID]
	delete(n.of, last.UID)
	// Taking the last finalizer off looks like a deletion with the finalizer still on.
	return final && last.Terminating && last.Protected && !it.sent && n.sawOthers(at)
}

// answered tells whether an object got what it needed.
func answered(before, now Object) bool {
	if before.Terminating {
		return before.Protected && !now.Protected
	}
	return !before.Protected && now.Protected
}

func (n *notes) sawOthers(at time.Time) (news bool) {
	news = n.peer.absent || n.peer.seen.IsZero()
	n.peer = n.peer.atWork(at)
	return news
}

// duty returns what is known about whether it is on us to act for an object.
func (n *notes) duty(o Object, at time.Time) Duty {
	n.mu.Lock()
	defer n.mu.Unlock()
	it := n.of[o.UID]
	return Duty{
		Mode: n.mode, Alone: n.peer.absent, Adds: it.adds,
		Unanswered: !it.since.IsZero() && !at.Before(n.peer.patientUntil(it.since, n.patience)),
		Added:      it.taken && !o.Terminating, Dropped: it.taken && o.Terminating,
	}
}

// due notes that an object needs something that others are given the time to do, and returns how
// long that still is.
func (n *notes) due(uid types.UID, at time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	it := n.of[uid]
	if it.since.IsZero() {
		it.since = at
		n.of[uid] = it
	}
	return max(0, n.peer.patientUntil(it.since, n.patience).Sub(at))
}

// notDue notes that an object needs nothing now.
func (n *notes) notDue(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if it, known := n.of[uid]; known {
		it.since = time.Time{}
		n.of[uid] = it
	}
}

// alone notes that nobody else does the work, and tells whether that is news.
func (n *notes) alone() (news bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	news = !n.peer.absent
	n.peer = n.peer.missing()
	return news
}

// begin notes that a write is about to be sent; end what came of it: whether it was taken, refused,
// or neither is known.
func (n *notes) begin(uid types.UID, a Action) {
	n.mu.Lock()
	defer n.mu.Unlock()
	it := n.of[uid]
	it.sent = true
	if a == AddFinalizer {
		it.adds++
	}
	n.of[uid] = it
}

// outcome is what came of a write.
type outcome uint8

const (
	// lost: the answer is not known.
	lost outcome = iota
	taken
	refused
)

func (n *notes) end(uid types.UID, a Action, came outcome) {
	n.mu.Lock()
	defer n.mu.Unlock()
	it, known := n.of[uid]
	if !known || !it.sent {
		return // the watch was faster
	}
	it.sent, it.taken = came != refused, came == taken
	if a == AddFinalizer && came == refused {
		it.adds--
	}
	n.of[uid] = it
}

// leads begins anew: what others did before this process led says nothing, and what it wrote then
// neither.
func (n *notes) leads() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.peer, n.of = peer{}, map[types.UID]note{}
}

// othersSeen tells whether anybody else was seen at work since this process leads.
func (n *notes) othersSeen() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.peer.seen.IsZero()
}

// isAlone tells whether nobody else does the work.
func (n *notes) isAlone() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.peer.absent
}
