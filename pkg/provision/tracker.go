package provision

import (
	"slices"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
)

// track is what this process remembers about one volume name.
type track struct {
	progress
	retry
	// claims want a volume of this name. They are several where a name has few characters of the claim's UID.
	claims []key
}

// progress is what this process remembers about an entry. It is the matter of the worker that has the name.
type progress struct {
	// entry is the open entry as this process wrote or read it, and record what was learned about it.
	entry  inflight.Entry
	record provision.Record
	// made is the driver's answer, and pv the PersistentVolume that it gives.
	made *csi.Volume
	pv   *v1.PersistentVolume
	// holds is the UID of the source that was protected.
	holds types.UID
	// since is when the try began that opened the entry; zero where another process did. storing: this process has
	// sent the PersistentVolume, and counted: the volume is counted as provisioned.
	since            time.Time
	storing, counted bool
}

// close forgets what belongs to the entry.
func (t *track) close() { t.progress = progress{} }

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

// tracker has the tracks of all volume names that this process works on. It is safe for concurrent use, and its mutex
// guards all of a track but its progress.
type tracker struct {
	mu sync.Mutex
	of map[string]*track
	// volumes are the names of the volumes of claims, where an open entry has another one than claims get now:
	// the prefix of the names may have changed since.
	volumes map[types.UID]string
	// ended are the claims without a volume for which an entry was closed.
	ended map[types.UID]bool
}

func newTracker() *tracker {
	return &tracker{of: map[string]*track{}, volumes: map[types.UID]string{}, ended: map[types.UID]bool{}}
}

func (t *tracker) get(name string) *track {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.locked(name)
}

// locked is get for who holds t.mu.
func (t *tracker) locked(name string) *track {
	if t.of[name] == nil {
		t.of[name] = &track{}
	}
	return t.of[name]
}

// want notes that a claim wants a volume of this name.
func (t *tracker) want(name string, claim key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.locked(name); !slices.Contains(one.claims, claim) {
		one.claims = append(one.claims, claim)
	}
}

// note notes whose volume an entry is.
func (t *tracker) note(entry inflight.Entry) {
	t.want(entry.Volume, keyOfEntry(entry))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.volumes[entry.Claim.UID] = entry.Volume
}

// claimsOf returns the claims that want a volume of this name, in the order in which they came.
func (t *tracker) claimsOf(name string) []key {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.of[name]; one != nil {
		return slices.Clone(one.claims)
	}
	return nil
}

// leave notes that a claim wants no volume of this name any more. A name that no claim is left of is forgotten.
func (t *tracker) leave(name string, claim key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.volumes, claim.uid)
	if one := t.of[name]; one != nil {
		one.claims = slices.DeleteFunc(one.claims, func(k key) bool { return k == claim })
	}
	t.forgetLocked(name)
}

// forget ends what is remembered about a name, unless a claim wants its volume. The caller is its worker.
func (t *tracker) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked(name)
}

func (t *tracker) forgetLocked(name string) {
	if one := t.of[name]; one != nil && len(one.claims) == 0 {
		delete(t.of, name)
	}
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
	return t.of[name] != nil
}

// retryOf returns when a name is tried again, zero for one that is not known.
func (t *tracker) retryOf(name string) retry {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.of[name]; one != nil {
		return one.retry
	}
	return retry{}
}

// failed notes a failure. The name is tried again after first, doubled each time, at most most.
func (t *tracker) failed(name string, now time.Time, first, most time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.locked(name).retry
	r.due = now.Add(controller.Backoff{First: first, Max: most}.Delay(r.count))
	r.count, r.slow, r.unbuilt = r.count+1, false, false
}

// mark notes of the last try of the name that it kept a worker for long, or failed before there was a request.
func (t *tracker) mark(name string, slow, unbuilt bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.locked(name).retry
	r.slow, r.unbuilt = slow, unbuilt
}

// hasten ends the wait of a name at once, or so long after the last time that it did. A name that is not known has
// nothing to wait for.
func (t *tracker) hasten(name string, now time.Time, least time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.of[name]; one != nil {
		one.changed = now
		one.hasten(now, least)
	}
}

// hasten ends the wait at once, or so long after the last time.
func (r *retry) hasten(now time.Time, least time.Duration) {
	due := now
	if soonest := r.hastened.Add(least); least > 0 && !r.hastened.IsZero() && soonest.After(now) {
		due = soonest
	}
	if r.due.After(due) {
		r.due, r.hastened = due, due
	}
}

// changedSince ends the wait of a name if something was changed since then: its last try has not seen it. It returns
// how long the name has to wait.
func (t *tracker) changedSince(name string, began, now time.Time, least time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.locked(name).retry
	if r.changed.After(began) {
		r.hasten(now, least)
	}
	return max(0, r.due.Sub(now))
}

// notBuilt returns the names whose last try failed before there was a request.
func (t *tracker) notBuilt() (names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, one := range t.of {
		if one.unbuilt {
			names = append(names, name)
		}
	}
	return names
}
