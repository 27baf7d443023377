package provision

import (
	"context"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// life is what this process remembers of the provisioning of one claim. Whoever has taken it may
// read and change it.
type life struct {
	of     key
	volume Volume
	// doubt: something may be left of a try whose outcome is not known, this process's or one
	// before it. Only then does a refusal not show that there is no volume.
	doubt  bool
	tried  bool
	failed bool
	// unfit: made is not what was ordered.
	unfit bool
	order *Order
	// holds is the UID of the source of a clone that was made to stay.
	holds types.UID
	// made is the driver's answer, with the id handle; stored is the PV that was stored for it.
	made   *csi.Volume
	handle string
	stored *v1.PersistentVolume
	// letGo is the resourceVersion of the claim that our last LetGo made.
	letGo string

	turn chan struct{}
}

// lives are the lives of all claims that this process has to do with, and when each is to be tried
// again. It is safe for concurrent use.
type lives struct {
	mu    sync.Mutex
	of    map[types.UID]*life
	again map[types.UID]retry
}

// retry is when a claim is to be tried again.
type retry struct {
	not time.Time // before
	// count is how often in a row it failed.
	count int
	// early: the library asked before the time, and does not ask again by itself.
	early bool
}

func newLives() *lives {
	return &lives{of: map[types.UID]*life{}, again: map[types.UID]retry{}}
}

func (l *lives) get(k key) *life {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[k.uid] == nil {
		l.of[k.uid] = &life{of: k, doubt: true, turn: make(chan struct{}, 1)}
	}
	return l.of[k.uid]
}

// known tells whether anything is remembered of a claim, and which it is.
func (l *lives) known(uid types.UID) (_ key, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if it := l.of[uid]; it != nil {
		return it.of, true
	}
	return key{}, false
}

// take waits for the claim's turn: a worker of the library and one of ours are never at work on one
// claim at once. It is to be given back.
func (l *lives) take(ctx context.Context, k key) (_ *life, giveBack func(), err error) {
	for {
		it := l.get(k)
		select {
		case it.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
		if l.get(k) == it {
			return it, func() { <-it.turn }, nil
		}
		<-it.turn // it was forgotten meanwhile
	}
}

// forget ends what is remembered. The caller has taken the life.
func (l *lives) forget(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, uid)
	delete(l.again, uid)
}

// failed notes a failure and returns when the claim may be tried again, as a delay.
func (l *lives) failed(uid types.UID, now time.Time, first, most time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.again[uid]
	delay := min(first, most)
	for range r.count {
		if delay >= most/2 {
			delay = most
			break
		}
		delay *= 2
	}
	l.again[uid] = retry{not: now.Add(delay), count: r.count + 1}
	return delay
}

// due tells how long the claim has to wait before its next try.
func (l *lives) due(uid types.UID, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.again[uid].not.Sub(now))
}

// askedEarly notes that the library asked before the time.
func (l *lives) askedEarly(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, failed := l.again[uid]; failed {
		r.early = true
		l.again[uid] = r
	}
}

// comeBack tells whether a claim for which the library asked early is to be brought to it again,
// and how long that has to wait. What is to be brought now is not told twice.
func (l *lives) comeBack(uid types.UID, now time.Time) (wait time.Duration, early bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.again[uid]
	if !r.early {
		return 0, false
	}
	if wait = r.not.Sub(now); wait > 0 {
		return wait, true
	}
	r.early = false
	l.again[uid] = r
	return 0, true
}

// freely lets the claim be tried again at once.
func (l *lives) freely(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.again, uid)
}
