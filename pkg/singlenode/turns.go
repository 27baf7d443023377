package singlenode

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
)

// waiting is a gated pod with a claim.
type waiting struct {
	key     string
	created int64
}

func (w waiting) compare(other waiting) int {
	return cmp.Or(cmp.Compare(w.created, other.created), cmp.Compare(w.key, other.key))
}

// turn is the time for which one of several pods that wait for the free lock of a claim has it to itself. If all tried
// at once, the API server would refuse all but one of them, for each holder anew. A turn passes from the oldest pod to
// the next one once its try has ended without the lock, once it is gone, or after turnFor.
type turn struct {
	// pod has the turn, or lastTurn if all pods may try.
	pod   waiting
	since time.Time
	// taken reports that a pod has taken the lock, which the watch of claims does not show yet.
	taken bool
}

// turnFor bounds a turn: a try waits for a worker and for the API server.
const turnFor = 10 * time.Second

// lastTurn is younger than all pods.
var lastTurn = waiting{created: math.MaxInt64}

func (o *observer) turn(claim string) (t turn, found bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t, found = o.turns[claim]
	return t, found
}

// wakeWaiting enqueues the gated pods that name a claim, or only the pod that has its turn.
func (o *observer) wakeWaiting(claim string) {
	if t, found := o.turn(claim); found && t.pod != lastTurn {
		o.wake.pod(t.pod.key)
		return
	}
	for _, key := range o.waiting(claim) {
		o.wake.pod(key)
	}
}

// waitsForTurn reports whether a pod with these facts has to leave the lock of a free claim to an older pod, or another
// pod has taken it since. It begins turns, because pods may be in the queue since an earlier change, such as the one
// that gave the lock to its last holder, or since the start, and would all try at once. The end of the turns wakes them
// again.
func (o *observer) waitsForTurn(p *pod, f singlenode.Facts) (waits bool) {
	_, asked := freeClaims(f)
	for _, claim := range asked {
		if o.beginTurn(claim) {
			o.wake.claim(claim)
			o.wakeWaiting(claim)
		}
		now, exists := o.claims.Get(claim)
		t, begun := o.turn(claim)
		waits = waits || exists && now.marked() || begun && t.pod.compare(p.waiting()) < 0
	}
	return waits
}

// freeClaims returns the keys of all claims without a lock according to the facts about a pod, and of the asked claims
// among them. A claim that needs no lock, such as a volume that many pods share, keeps no pod waiting.
func freeClaims(f singlenode.Facts) (all, asked []string) {
	for _, c := range f.Claims {
		if c.Claim.Locked || c.Claim.Kept {
			continue
		}
		key := keyOf(f.Pod.Namespace, c.Claim.Name)
		if all = append(all, key); !c.Claim.Unasked {
			asked = append(asked, key)
		}
	}
	return all, asked
}

// takesLock reports whether the next write of a pod that needs the free lock of a claim is to take a lock.
func (o *observer) takesLock(key, claim string) bool {
	_, f, _ := o.observe(key) // without facts, no lock is taken
	_, asked := freeClaims(f)
	return slices.Contains(asked, claim) && singlenode.TakesLock(f, o.clock.Now())
}

// next returns the oldest pod after another that can take the lock of a claim, or lastTurn.
func (o *observer) next(claim string, after waiting) waiting {
	for {
		next, found := o.waitingAfter(claim, after)
		switch {
		case !found:
			return lastTurn
		case o.takesLock(next.key, claim):
			return next
		}
		after = next
	}
}

// waitingAfter returns one of the pods that waiting returns, since there may be thousands.
func (o *observer) waitingAfter(claim string, after waiting) (next waiting, found bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i, found := slices.BinarySearchFunc(o.gated[claim], after, waiting.compare)
	if found {
		i++
	}
	if i == len(o.gated[claim]) {
		return waiting{}, false
	}
	return o.gated[claim][i], true
}

// needsTurn reports whether the lock of a claim is free and several pods wait for it, without a turn. The caller holds
// mu, which orders the look at the claim before the event that ends its turns.
func (o *observer) needsTurn(claim string) bool {
	_, begun := o.turns[claim]
	c, found := o.claims.Get(claim)
	return !begun && found && !c.marked() && len(o.gated[claim]) > 1
}

// beginTurn gives the free lock of a claim to the oldest pod that can take it, for its turn, unless turns have begun.
func (o *observer) beginTurn(claim string) bool {
	o.mu.Lock()
	needed := o.needsTurn(claim)
	o.mu.Unlock()
	if !needed {
		return false
	}
	oldest := o.next(claim, waiting{})
	o.mu.Lock()
	defer o.mu.Unlock()
	if needed = o.needsTurn(claim); needed {
		o.setTurn(claim, oldest)
	}
	return needed
}

// setTurn gives a turn to a pod, or to all pods if the pod no longer waits. The caller holds mu.
func (o *observer) setTurn(claim string, pod waiting) {
	if _, waits := slices.BinarySearchFunc(o.gated[claim], pod, waiting.compare); !waits {
		pod = lastTurn
	}
	o.turns[claim] = turn{pod: pod, since: o.clock.Now()}
}

// tookLock records that a pod has taken the lock of a claim, so that the end of its try does not pass the turn.
func (o *observer) tookLock(claim string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if t, found := o.turns[claim]; found {
		t.taken = true
		o.turns[claim] = t
	}
}

// turnsOf returns the turns that a pod has to take locks of these claims, by their keys.
func (o *observer) turnsOf(p *pod, claims []string) map[string]turn {
	all := map[string]turn{}
	for _, claim := range claims {
		if t, _ := o.turn(claim); t.pod == p.waiting() {
			all[claim] = t
		}
	}
	return all
}

// passTurn passes a turn to the next pod that can take the lock, unless the turn has changed since. Without such a pod,
// all pods may try.
func (o *observer) passTurn(claim string, last turn) {
	if now, _ := o.turn(claim); now != last {
		return
	}
	next := o.next(claim, last.pod)
	o.mu.Lock()
	same := o.turns[claim] == last
	if same {
		o.setTurn(claim, next)
	}
	o.mu.Unlock()
	if same {
		o.wakeWaiting(claim)
	}
}

func (o *observer) passTurns(turns map[string]turn) {
	for claim, t := range turns {
		o.passTurn(claim, t)
	}
}

// leftOfTurn passes the turn of a claim if its time is over, and returns the rest of the present turn, 0 for none.
func (o *observer) leftOfTurn(claim string) time.Duration {
	t, found := o.turn(claim)
	left := t.since.Add(turnFor).Sub(o.clock.Now())
	switch {
	case !found, t.pod == lastTurn:
		return 0
	case left > 0:
		return left
	}
	o.passTurn(claim, t)
	return o.leftOfTurn(claim)
}

func (o *observer) noTurn(claim string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.turns, claim)
}
