package provision

import (
	"context"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/provisioning"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
)

// track is what this process remembers about one volume name.
type track struct {
	progress
	turn chan struct{}
}

// progress is what this process remembers about an entry. Whoever has taken the track may read and change it.
type progress struct {
	// entry is the open entry as this process wrote or read it, and record what was learned about it.
	entry  inflight.Entry
	record provisioning.Record
	// made is the driver's answer, and pv the PersistentVolume that it gives.
	made *csi.Volume
	pv   *v1.PersistentVolume
	// holds is the UID of the source that was protected.
	holds types.UID
	// stored is the PersistentVolume as the API server stored it.
	stored *v1.PersistentVolume
	// since is when the try began that opened the entry; zero where another process did. storing: this process has
	// sent the PersistentVolume, and counted: the volume is counted as provisioned.
	since            time.Time
	storing, counted bool
}

// close forgets what belongs to the entry.
func (t *track) close() { t.progress = progress{} }

// tracker has the tracks of all volume names that this process works on, and when each is tried again. It is safe
// for concurrent use.
type tracker struct {
	mu    sync.Mutex
	of    map[string]*track
	again map[string]retry
	// volumes are the names of the volumes of claims, where an open entry has another one than claims get now:
	// the prefix of the names may have changed since.
	volumes map[types.UID]string
	// claims are the claims of these volumes.
	claims map[string]types.UID
	// ended are the claims without a volume for which an entry was closed.
	ended map[types.UID]bool
	// missed are the names that tryTake came for while another worker had the turn.
	missed map[string]bool
}

// retry is when a name is tried again.
type retry struct {
	due time.Time
	// count is how often in a row it failed.
	count int
	// slow: its last try kept a worker for long.
	slow bool
	// unbuilt: its last try failed before there was a request.
	unbuilt bool
	// changed is when something was changed last that can make a difference, and hastened when that last ended a wait.
	changed, hastened time.Time
}

func newTracker() *tracker {
	return &tracker{of: map[string]*track{}, again: map[string]retry{}, volumes: map[types.UID]string{},
		claims: map[string]types.UID{}, ended: map[types.UID]bool{}, missed: map[string]bool{}}
}

// take waits for the name's turn: no two workers are at work on one name. giveBack ends it, and reports whether
// tryTake came meanwhile.
func (t *tracker) take(ctx context.Context, name string) (_ *track, giveBack func() (missed bool), err error) {
	for {
		one := t.get(name)
		select {
		case one.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
		if t.get(name) == one {
			return one, func() bool { return t.giveBack(name, one) }, nil
		}
		<-one.turn // it was forgotten meanwhile
	}
}

// tryTake is take for a worker that does not wait. nil: another one has the turn, whose giveBack reports it.
func (t *tracker) tryTake(name string) (_ *track, giveBack func() (missed bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.locked(name)
	select {
	case one.turn <- struct{}{}:
		return one, func() bool { return t.giveBack(name, one) }
	default:
		t.missed[name] = true
		return nil, nil
	}
}

func (t *tracker) giveBack(name string, one *track) (missed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	<-one.turn
	missed = t.missed[name]
	delete(t.missed, name)
	return missed
}

func (t *tracker) get(name string) *track {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.locked(name)
}

// locked is get for who holds t.mu.
func (t *tracker) locked(name string) *track {
	if t.of[name] == nil {
		t.of[name] = &track{turn: make(chan struct{}, 1)}
	}
	return t.of[name]
}

// forget ends what is remembered about a name. The caller has taken its track.
func (t *tracker) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, name)
	delete(t.again, name)
	delete(t.volumes, t.claims[name])
	delete(t.claims, name)
}

// note notes whose volume an entry is.
func (t *tracker) note(entry inflight.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.volumes[entry.Claim.UID], t.claims[entry.Volume] = entry.Volume, entry.Claim.UID
}

// volumeOf returns the name of the volume that an earlier process has begun for a claim.
func (t *tracker) volumeOf(claim types.UID) (name string, found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name, found = t.volumes[claim]
	return name, found
}

// closed notes that an entry of a claim was closed, until the claim is over.
func (t *tracker) closed(claim types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended[claim] = true
}

// wasClosed reports whether an entry of a claim was closed.
func (t *tracker) wasClosed(claim types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended[claim]
}

// over forgets a claim that gets no volume any more.
func (t *tracker) over(claim types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ended, claim)
}

// knows reports whether anything is remembered about a name.
func (t *tracker) knows(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[name] != nil || t.claims[name] != "" || t.again[name].count > 0
}

// claimOf returns whose volume it is, empty if that is not known.
func (t *tracker) claimOf(name string) types.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.claims[name]
}

// failed notes a failure and returns the delay until the name is tried again: first, doubled each time, at most most.
func (t *tracker) failed(name string, now time.Time, first, most time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.again[name]
	delay := min(first, most)
	for range r.count {
		if delay >= most/2 {
			delay = most
			break
		}
		delay *= 2
	}
	r.due, r.count, r.slow, r.unbuilt = now.Add(delay), r.count+1, false, false
	t.again[name] = r
	return delay
}

// hasten ends the wait of a name at once, or so long after the last time that it did. A name that is not known has
// nothing to wait for.
func (t *tracker) hasten(name string, now time.Time, least time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, failed := t.again[name]
	if !failed && t.of[name] == nil {
		return
	}
	r.changed = now
	t.again[name] = r.hasten(now, least)
}

// hasten ends the wait at once, or so long after the last time.
func (r retry) hasten(now time.Time, least time.Duration) retry {
	due := now
	if soonest := r.hastened.Add(least); least > 0 && !r.hastened.IsZero() && soonest.After(now) {
		due = soonest
	}
	if r.due.After(due) {
		r.due, r.hastened = due, due
	}
	return r
}

// changedSince ends the wait of a name if something was changed since then: its last try has not seen it. It returns
// how long the name has to wait.
func (t *tracker) changedSince(name string, began, now time.Time, least time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.again[name]
	if r.changed.After(began) {
		r = r.hasten(now, least)
		t.again[name] = r
	}
	return max(0, r.due.Sub(now))
}

// failedToBuild notes that the last try of the name failed before there was a request.
func (t *tracker) failedToBuild(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.again[name]
	r.unbuilt = true
	t.again[name] = r
}

// notBuilt returns the names whose last try failed before there was a request.
func (t *tracker) notBuilt() (names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, r := range t.again {
		if r.unbuilt {
			names = append(names, name)
		}
	}
	return names
}

// slowly notes that the last try of the name kept a worker for long.
func (t *tracker) slowly(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.again[name]
	r.slow = true
	t.again[name] = r
}

// isSlow reports whether the last try of the name kept a worker for long, and how often in a row it failed.
func (t *tracker) isSlow(name string) (slow bool, failures int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.again[name]
	return r.slow, r.count
}

// due returns how long the name has to wait until its next try.
func (t *tracker) due(name string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, t.again[name].due.Sub(now))
}

// freely lets the name be tried again at once.
func (t *tracker) freely(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.again, name)
}
