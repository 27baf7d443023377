package provision

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// hands tells which claim has a volume's name in hand. Of two claims that have the same, one may be
// about to delete the volume that the other was just told of, so that only one is worked on at a
// time. It is safe for concurrent use.
type hands struct {
	mu sync.Mutex
	of map[string]types.UID
}

func newHands() *hands { return &hands{of: map[string]types.UID{}} }

// take tells whether the claim has the name in hand now.
func (h *hands) take(name string, claim types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if by, taken := h.of[name]; taken {
		return by == claim
	}
	h.of[name] = claim
	return true
}

// giveBack leaves the name to others, if the claim had it.
func (h *hands) giveBack(name string, claim types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of[name] == claim {
		delete(h.of, name)
	}
}

// leaveName ends a run's hold on the volume's name, unless a volume may be there under it that has
// no PV yet.
func (w *run) leaveName() {
	it, c := w.life, w.facts.Claim
	if _, known := w.lives.known(c.UID); known && it.tried && it.volume != VolumeNone && it.stored == nil {
		return
	}
	w.hands.giveBack(c.PVName, c.UID)
}
