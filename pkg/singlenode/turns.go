package singlenode

import (
	"cmp"
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

// turn is the time for which one of the pods that can take the free lock of a claim has it to itself. If all tried at
// once, the API server would refuse all but one of them, for each holder anew. A turn passes from the oldest pod to the
// next one once its try has ended without the lock, once it is gone, or after turnFor.
type turn struct {
	pod   waiting
	since time.Time
	// taken reports that a pod has taken the lock, which the watch of claims does not show yet.
	taken bool
}

// turnFor bounds a turn: a try waits for a worker and for the API server.
const turnFor = 10 * time.Second

func (o *observer) turn(claim string) (t turn, found bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t, found = o.freed[claim]
	return t, found
}

// wakeWaiting enqueues the gated pods that name a claim, or only the pod that has its turn.
func (o *observer) wakeWaiting(claim string) {
	if t, found := o.turn(claim); found {
		o.wake.pod(t.pod.key)
		return
	}
	for _, key := range o.waiting(claim) {
		o.wake.pod(key)
	}
}

// waitsForTurn reports whether an older pod has its turn to take the lock of one of the pod's claims. Pods may be in the
// queue since an earlier change, such as the one that gave the lock to its last holder, and would all try at once. The
// end of the turns wakes them again.
func (o *observer) waitsForTurn(key string) bool {
	p, found := o.pods.Get(key)
	return found && slices.ContainsFunc(p.claims, func(name string) bool {
		t, found := o.turn(keyOf(p.namespace, name))
		return found && t.pod.compare(p.waiting()) < 0
	})
}

// takesLock reports whether the next write of a pod is to take a lock.
func (o *observer) takesLock(key string) bool {
	f, _ := o.observe(key) // without facts, no lock is taken
	return singlenode.TakesLock(f, o.clock.Now())
}

// next returns the oldest pod after another that can take the lock of a claim, the zero value for none.
func (o *observer) next(claim string, after waiting) waiting {
	for {
		next, found := o.waitingAfter(claim, after)
		if !found || o.takesLock(next.key) {
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

// beginTurn records that the lock of a claim is free. A pod that waits alone needs no turn.
func (o *observer) beginTurn(claim string) {
	oldest := o.next(claim, waiting{})
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.gated[claim]) > 1 {
		o.setTurn(claim, oldest)
	}
}

// setTurn gives a turn to a pod, or ends the turns if the pod no longer waits. The caller holds mu.
func (o *observer) setTurn(claim string, pod waiting) {
	if _, waits := slices.BinarySearchFunc(o.gated[claim], pod, waiting.compare); !waits {
		delete(o.freed, claim)
		return
	}
	o.freed[claim] = turn{pod: pod, since: o.clock.Now()}
}

// tookLock records that a pod has taken the lock of a claim, so that the end of its try does not pass the turn.
func (o *observer) tookLock(claim string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if t, found := o.freed[claim]; found {
		t.taken = true
		o.freed[claim] = t
	}
}

// turnsOf returns the turns of a pod by claim.
func (o *observer) turnsOf(p *pod) map[string]turn {
	all := map[string]turn{}
	for _, name := range p.claims {
		claim := keyOf(p.namespace, name)
		if t, found := o.turn(claim); found && t.pod == p.waiting() {
			all[claim] = t
		}
	}
	return all
}

// passTurn passes a turn to the next pod that can take the lock, unless the turn has changed since. Without such a pod,
// it enqueues all pods that wait.
func (o *observer) passTurn(claim string, last turn) {
	next := o.next(claim, last.pod)
	o.mu.Lock()
	same := o.freed[claim] == last
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
	case !found:
		return 0
	case left > 0:
		return left
	}
	o.passTurn(claim, t)
	if _, found = o.turn(claim); found {
		return turnFor
	}
	return 0
}

func (o *observer) noTurn(claim string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.freed, claim)
}
