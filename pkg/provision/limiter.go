package provision

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// limiter tells the library when a claim comes back. Its queues hold UIDs of claims. The library asks
// it once for each claim that a worker has taken, when it has done all else.
type limiter struct{ *Provisioner }

// When returns how long a claim waits: as long as its last failure said, or, where the library
// did not come as far as Provision, longer each time.
func (l limiter) When(item any) time.Duration {
	text, _ := item.(string)
	uid, now := types.UID(text), l.cfg.Clock.Now()
	defer l.gate.endTurn(uid)
	if wait := l.tracker.due(l.nameOf(uid), now); wait > 0 {
		return wait
	}
	return l.early.failed(text, now, l.cfg.RetryStart, l.cfg.RetryMax)
}

// Forget is called whenever the library has nothing to do for a claim. A claim's failures are
// forgotten with its success instead: our own patches bring claims back in between.
func (l limiter) Forget(item any) {
	text, _ := item.(string)
	l.early.freely(text)
	l.gate.endTurn(types.UID(text))
}

// NumRequeues tells nothing: the library is told never to give up.
func (limiter) NumRequeues(any) int { return 0 }
