package inuse

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// tracker is safe for concurrent use. It holds, by UID, the records of one process about objects with a need, and its
// evidence of other programs that do the same work.
type tracker struct {
	mode     Mode
	patience time.Duration

	mu   sync.Mutex
	peer peer
	of   map[types.UID]entry
}

// peer holds the evidence of other programs that do the same work: Kubernetes' own controller, or any other. It relies
// on their writes, not on names and versions; the zero value is unknown.
type peer struct {
	// seen is the last time at which another program did work that we would have done.
	seen time.Time
	// absent means that a need stayed unanswered that every program with this work would answer.
	absent bool
}

// atWork returns the state after another program was seen at work.
func (peer) atWork(now time.Time) peer { return peer{seen: now} }

// missing returns the state after a need was found unanswered.
func (p peer) missing() peer { return peer{seen: p.seen, absent: true} }

// maxPatiences is the number of patiences after which a need counts as unanswered although others were seen at work.
// The removal of a finalizer by any user looks like such work, also if a tenant repeats it on its own objects.
const maxPatiences = 10

// patientUntil returns the time from which a need that began at since counts as unanswered. It moves while others are
// seen at work on other objects, because they may have a long queue, but not beyond maxPatiences.
func (p peer) patientUntil(since time.Time, patience time.Duration) time.Time {
	until, last := since.Add(patience), since.Add(maxPatiences*patience)
	if moved := p.seen.Add(patience); moved.After(until) {
		until = moved
	}
	if until.After(last) {
		return last
	}
	return until
}

// entry is the record of one object, from its first need to its deletion.
type entry struct {
	// since is the time at which the current need was first found due, zero if none is.
	since time.Time
	// sent means that our own write is in flight, was accepted, or has an unknown outcome, and accepted that it was
	// accepted.
	sent, accepted bool
	adds           int
}

func newTracker(mode Mode, patience time.Duration) *tracker {
	return &tracker{mode: mode, patience: patience, of: map[types.UID]entry{}}
}

// changed records a change of an object, and reports whether it is news that another program is at work.
func (t *tracker) changed(before, now Object, at time.Time) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before.Protected == now.Protected && before.Terminating == now.Terminating {
		return false
	}
	it := t.of[before.UID]
	// The next need of the object is a new one.
	t.of[before.UID] = entry{adds: it.adds}
	return answered(before, now) && !it.sent && t.sawOthers(at)
}

// gone records the deletion of an object, and reports the same. final means that the deletion event itself was seen.
func (t *tracker) gone(last Object, final bool, at time.Time) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	it := t.of[last.UID]
	delete(t.of, last.UID)
	// The removal of the last finalizer looks like a deletion of an object that still has it.
	return final && last.Terminating && last.Protected && !it.sent && t.sawOthers(at)
}

// answered reports whether a need of the object was answered.
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

// duty returns the Duty of this process for an object.
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

// due records that an object has a need that other programs are given time to answer, and returns the rest of that
// time.
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

// notDue records that an object has no need now.
func (t *tracker) notDue(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if it, known := t.of[uid]; known {
		it.since = time.Time{}
		t.of[uid] = it
	}
}

// alone records that no other program does the work, and reports whether that is news.
func (t *tracker) alone() (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	news = !t.peer.absent
	t.peer = t.peer.missing()
	return news
}

// begin records that a write is about to be sent, and end records its outcome.
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

// settled drops the record of an object that the watch cache lacks. A write of ours stays recorded for gone, which may
// follow, and would take the deletion for the work of others.
func (t *tracker) settled(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.of[uid].sent {
		delete(t.of, uid)
	}
}

// outcome is the outcome of a write.
type outcome uint8

const (
	// lost means that the write was not answered.
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

// leads starts again with the leadership: the writes of other programs and of this process from before prove nothing.
func (t *tracker) leads() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.peer, t.of = peer{}, map[types.UID]entry{}
}

// othersSeen reports whether another program was seen at work since this process leads.
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
