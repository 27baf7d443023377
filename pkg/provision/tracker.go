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
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// track is this process' memory of one volume name.
type track struct {
	progress
	retry
	// claims want a volume of this name. A name with few characters of the claim's UID may have several.
	claims []wanting
}

// wanting is a claim that wants a volume, and the number of its last offer, 0 if only an entry names the claim.
type wanting struct {
	volume.ClaimRef
	offer uint64
}

// progress is this process' memory of an entry. Only the worker on the name uses it.
type progress struct {
	// entry is the open entry as this process wrote or read it, and record the knowledge about it.
	entry  inflight.Entry
	record provision.Record
	// made is the driver's answer, and pv the PersistentVolume built from it.
	made *csi.Volume
	pv   *v1.PersistentVolume
	// holds is the UID of the protected source. It is empty at the start of a try without an open entry, because others
	// may have freed the source since the last try.
	holds types.UID
	// since is the start of the try that opened the entry, zero if another process opened it. storing means that this
	// process has sent the PersistentVolume. counted means that the metrics count the volume as provisioned.
	since            time.Time
	storing, counted bool
}

func (t *track) close() { t.progress = progress{} }

// retry is the schedule of a name's next try.
type retry struct {
	due time.Time
	// count is the number of consecutive failures.
	count int
	ending
	// changed is the time of the last relevant change, and hastened the time at which a change last ended a delay.
	changed, hastened time.Time
}

// ending describes the failure of a name's last try.
type ending struct {
	// slow means that the try kept a worker for long.
	slow bool
	// unbuilt means that it failed before the request was built.
	unbuilt bool
	// full means that the in-flight log had no room.
	full bool
	// secret is the Secret that it read last.
	secret seenSecret
}

// tracker has the tracks of all volume names that this process works on. It is safe for concurrent use, because its
// mutex guards everything in a track except progress.
type tracker struct {
	mu sync.Mutex
	of map[string]*track
	// full has the names of of whose last try found no room in the log.
	full map[string]struct{}
	// offers counts the offers of claims.
	offers uint64
	// names has the volume names of claims that have or had an entry, until over. A claim keeps the name, because a second
	// one would get a second volume, and an earlier process may have formed names in another way.
	names map[types.UID]noted
	// shown has the names of the PVs of claims whose names an earlier process has formed in another way, until over, or
	// until the PV of a claim that needs none is gone.
	shown map[types.UID]string
	// open has the entries that the log may have, by volume, until entryEnded.
	open map[string]inflight.Entry
}

// noted is the name of a claim's volume. sent means that the driver may have been called for it.
type noted struct {
	name string
	sent bool
}

func newTracker() *tracker {
	return &tracker{of: map[string]*track{}, full: map[string]struct{}{}, names: map[types.UID]noted{},
		shown: map[types.UID]string{}, open: map[string]inflight.Entry{}}
}

func (t *tracker) get(name string) *track {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.locked(name)
}

// locked is get for callers that hold t.mu.
func (t *tracker) locked(name string) *track {
	if t.of[name] == nil {
		t.of[name] = &track{}
	}
	return t.of[name]
}

// want records that a claim is offered. An offer of a known claim counts, too, because a run that began before may not
// have seen its cause.
func (t *tracker) want(name string, claim volume.ClaimRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.offers++
	t.listed(name, claim).offer = t.offers
}

// listed returns a claim of a name, which it adds if necessary. Callers hold t.mu.
func (t *tracker) listed(name string, claim volume.ClaimRef) *wanting {
	one := t.locked(name)
	at := slices.IndexFunc(one.claims, func(c wanting) bool { return c.ClaimRef == claim })
	if at < 0 {
		at, one.claims = len(one.claims), append(one.claims, wanting{ClaimRef: claim})
	}
	return &one.claims[at]
}

// offered returns the number of the last offer.
func (t *tracker) offered() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.offers
}

// note records an entry and its claim, until over is called. sent means that the driver may have been called for it, or
// is called next. Without that, a claim whose PV has another name keeps the PV's name.
func (t *tracker) note(entry inflight.Entry, sent bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listed(entry.Volume, entry.Claim)
	t.open[entry.Volume] = entry
	if shown, found := t.shown[entry.Claim.UID]; sent || !found || shown == entry.Volume {
		t.names[entry.Claim.UID] = noted{entry.Volume, sent || t.names[entry.Claim.UID] == noted{entry.Volume, true}}
	}
}

// claimsOf returns the claims that want a volume of this name, in order of arrival.
func (t *tracker) claimsOf(name string) (claims []volume.ClaimRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.of[name]; one != nil {
		for _, c := range one.claims {
			claims = append(claims, c.ClaimRef)
		}
	}
	return claims
}

// leave records that a claim no longer wants a volume of this name, unless it was offered after the offer with the
// number seen, and forgets a name without claims.
func (t *tracker) leave(name string, claim volume.ClaimRef, seen uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.of[name]; one != nil {
		one.claims = slices.DeleteFunc(one.claims, func(c wanting) bool { return c.ClaimRef == claim && c.offer <= seen })
	}
	t.forgetLocked(name)
}

// forget drops a name unless a claim wants its volume. Only the worker on the name calls it.
func (t *tracker) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked(name)
}

func (t *tracker) forgetLocked(name string) {
	if one := t.of[name]; one != nil && len(one.claims) == 0 {
		delete(t.of, name)
		delete(t.full, name)
	}
}

// nameOf returns the name of a claim's volume if the claim has or had an entry, or has a PV of an earlier process.
func (t *tracker) nameOf(claim types.UID) (name string, found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now, known := t.names[claim]; known {
		return now.name, true
	}
	name, found = t.shown[claim]
	return name, found
}

// show records that the claim has a PV with this name, which replaces a name for which the driver was never called.
func (t *tracker) show(claim types.UID, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := t.names[claim]; !now.sent && now.name != name {
		delete(t.names, claim)
	}
	t.shown[claim] = name
}

// hide forgets the name of a PV that is gone.
func (t *tracker) hide(claim types.UID, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shown[claim] == name {
		delete(t.shown, claim)
	}
}

// end forgets the entry of a name and returns it.
func (t *tracker) end(name string) (entry inflight.Entry, found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entry, found = t.open[name]
	delete(t.open, name)
	return entry, found
}

// isOpen reports whether the entry of a name is noted.
func (t *tracker) isOpen(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, found := t.open[name]
	return found
}

func (t *tracker) hadEntry(claim types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, found := t.names[claim]
	return found
}

// over forgets the name of a claim that will not get another volume, unless the log may have its entry.
func (t *tracker) over(claim types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.shown, claim)
	if t.open[t.names[claim].name].Claim.UID != claim {
		delete(t.names, claim)
	}
}

func (t *tracker) knows(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[name] != nil
}

// retryOf returns the schedule of a name, zero if the name is unknown.
func (t *tracker) retryOf(name string) retry {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.of[name]; one != nil {
		return one.retry
	}
	return retry{}
}

// namespaceOf returns the namespace of the claims of a name, empty if none is known.
func (t *tracker) namespaceOf(name string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.of[name]; one != nil && len(one.claims) > 0 {
		return one.claims[0].Namespace
	}
	return t.open[name].Claim.Namespace
}

// failed records a failure, and makes the next try due after first, doubled each time and limited to most. How the try
// ended is recorded in the same step: an event that ends the delay of such tries could otherwise come between.
func (t *tracker) failed(name string, as ending, now time.Time, first, most time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.endsAs(name, as).retry
	r.due = now.Add(controller.Backoff{First: first, Max: most}.Delay(r.count))
	r.count++
}

// mark records how the last try of the name ended.
func (t *tracker) mark(name string, as ending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endsAs(name, as)
}

// endsAs is mark for callers that hold t.mu, and returns the track of the name.
func (t *tracker) endsAs(name string, as ending) *track {
	one := t.locked(name)
	if one.ending = as; as.full {
		t.full[name] = struct{}{}
	} else {
		delete(t.full, name)
	}
	return one
}

// secrets returns the Secrets of the names whose next try is due after now, with these names.
func (t *tracker) secrets(now time.Time) map[v1.SecretReference][]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := map[v1.SecretReference][]string{}
	for name, one := range t.of {
		if ref := one.secret.ref; ref != (v1.SecretReference{}) && one.due.After(now) {
			names[ref] = append(names[ref], name)
		}
	}
	return names
}

// refused returns at most this many names that the log had no room for. Names that are due next come first, because a
// name that fails again is then the last. While the log is full, each removal calls refused, so it sorts only the names
// that it returns.
func (t *tracker) refused(most int) (names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	byDue := func(a, b string) int { return t.of[a].due.Compare(t.of[b].due) }
	for name := range t.full {
		at, _ := slices.BinarySearchFunc(names, name, byDue)
		names = slices.Insert(names, at, name)
		names = names[:min(most, len(names))]
	}
	return names
}

// hasten makes a known name due immediately, or least after the last time that hasten did so.
func (t *tracker) hasten(name string, now time.Time, least time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.of[name]; one != nil {
		one.changed = now
		one.hasten(now, least)
	}
}

func (r *retry) hasten(now time.Time, least time.Duration) {
	due := now
	if soonest := r.hastened.Add(least); least > 0 && !r.hastened.IsZero() && soonest.After(now) {
		due = soonest
	}
	if r.due.After(due) {
		r.due, r.hastened = due, due
	}
}

// changedSince ends the delay of a name if a change came after began, which the last try has not seen, and returns the
// remaining delay.
func (t *tracker) changedSince(name string, began, now time.Time, least time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.locked(name).retry
	if r.changed.After(began) {
		r.hasten(now, least)
	}
	return max(0, r.due.Sub(now))
}

// notBuilt returns the names whose last try failed before the request was built.
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
