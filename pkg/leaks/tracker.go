package leaks

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// keyOf returns the key of a handle, or of a name that a handle may contain.
func keyOf(handle string) string { return volume.HandleKey(handle) }

// unaccounted is the record of a volume that had no owner in the last complete leak check.
type unaccounted struct {
	volume Volume
	// since is the number of the first complete leak check in the unbroken series that listed the volume.
	since uint64
	// sightings and firstSeen are the values for facts.
	sightings int
	firstSeen time.Time
	verdict   verdict
	// because names the object or node behind the reason, for messages.
	because string
}

// making is the record of a claim or snapshot in creation.
type making struct {
	name string
	// since is the number of the first complete leak check in the unbroken series that saw it in creation.
	since uint64
}

// tracker holds the state between leak checks, and is safe for concurrent use.
type tracker struct {
	mu sync.Mutex
	// round numbers the complete leak checks, starting with 1.
	round   uint64
	volumes map[string]unaccounted
	makers  map[types.UID]making
	// unlisted are the CSI PVs by UID whose volume the last complete leak check did not list.
	unlisted map[types.UID]string
	// passing holds the volumes of PVs created or deleted since the current leak check began, and is nil between leak
	// checks.
	passing map[string]bool
	last    figures
}

// figures summarize the last leak checks for reports and metrics.
type figures struct {
	// began and completed are start and end of the last complete leak check; zero before the first one.
	began, completed time.Time
	// listed and bytes are the number and total size of its listed volumes, as far as the driver reported sizes.
	listed int
	bytes  int64
	// forgotten are entries of the in-flight log older than the grace period whose claim and PV do not exist.
	forgotten []inflight.Located
	// nameless counts the list entries without a volume_id in it.
	nameless int
	// complete and failed count all leak checks of this process.
	complete, failed int
	// failure is the error of the last leak check, or empty if it was complete.
	failure string
}

func newTracker() *tracker {
	return &tracker{volumes: map[string]unaccounted{}, makers: map[types.UID]making{}}
}

// begin marks the start of a leak check, so that PVs passing from then on count.
func (t *tracker) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.passing = map[string]bool{}
}

// seen records that a PV of the volume was created or deleted. It ends a suspicion, because earlier sightings say
// nothing about the volume after that.
func (t *tracker) seen(handle string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := keyOf(handle)
	delete(t.volumes, key)
	if t.passing != nil {
		t.passing[key] = true
	}
}

// fail records an incomplete leak check, which neither adds sightings nor removes any. first is true for the first of
// consecutive failures.
func (t *tracker) fail(err error) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first = t.last.failure == ""
	t.last.failed++
	t.last.failure, t.passing = err.Error(), nil
	return first
}

// complete applies a complete leak check, and returns the volumes that it newly suspects.
func (t *tracker) complete(found survey, rules suspicionRules, now time.Time) (fresh []unaccounted) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.round++
	oldest := t.remember(found.makers)
	t.compare(&found)
	volumes := map[string]unaccounted{}
	bytes := int64(0)
	for key, v := range found.listing.volumes {
		bytes = max(bytes, bytes+v.Bytes) // not negative by an overflow
		before := t.volumes[key]
		u := t.judge(v, before, found, oldest, rules, now)
		if accounted(u.verdict.Reason) {
			continue
		}
		volumes[key] = u
		if u.verdict.Suspected && !before.verdict.Suspected {
			fresh = append(fresh, u)
		}
	}
	t.volumes, t.passing = volumes, nil
	t.last.began, t.last.completed, t.last.failure = found.began, now, ""
	t.last.listed, t.last.bytes, t.last.nameless = len(found.listing.volumes), bytes, found.listing.nameless
	t.last.forgotten = found.forgotten(now.Add(-rules.Grace))
	t.last.complete++
	slices.SortFunc(fresh, byWeight)
	return fresh
}

// remember records the makers, and returns the one that has been in creation longest; its since is 0 if none exists.
func (t *tracker) remember(makers []maker) (oldest making) {
	now := make(map[types.UID]making, len(makers))
	for _, of := range makers {
		since := t.round
		if before, known := t.makers[of.uid]; known {
			since = before.since
		}
		now[of.uid] = making{of.name, since}
		if oldest.since == 0 || since < oldest.since {
			oldest = now[of.uid]
		}
	}
	t.makers = now
	return oldest
}

// compare makes a leak check unclear by a CSI PV whose volume was not listed this time and the time before. Once alone
// proves nothing, because the volume may have been created after the list, or deleted just before its PV.
func (t *tracker) compare(found *survey) {
	for uid, pv := range found.unlisted {
		if _, again := t.unlisted[uid]; again {
			found.unclear = pv
		}
	}
	t.unlisted = found.unlisted
}

// judge updates the record of one volume and decides about it.
func (t *tracker) judge(v Volume, before unaccounted, found survey, oldest making, rules suspicionRules,
	now time.Time) unaccounted {
	key := keyOf(v.Handle)
	if found.named[key] || t.passing[key] { // no other fact is needed
		return unaccounted{verdict: verdict{Reason: reasonPV}}
	}
	u := before
	u.volume, u.because = v, ""
	if u.since == 0 {
		u.since = t.round
	}
	// A claim or snapshot that was absent in some leak check that listed the volume did not create it.
	s := found.snapshot(v, rules)
	s.PV = absent
	s.Maker = presence(oldest.since != 0 && oldest.since <= u.since)
	if _, against := s.against(); against {
		u.sightings, u.firstSeen = 0, time.Time{}
	} else {
		u.sightings++
		if u.firstSeen.IsZero() {
			u.firstSeen = found.listed
		}
	}
	s.Sightings, s.FirstSeen = u.sightings, u.firstSeen
	u.verdict = decide(s, now)
	switch u.verdict.Reason {
	case ReasonBeingMade:
		u.because = oldest.name
	case reasonPVUnclear:
		u.because = found.unclear
	case reasonInFlight:
		entry, _ := found.entryOf(v.Handle)
		u.because = "claim " + entry.Claim.Namespace + "/" + entry.Claim.Name
	case reasonIncomplete:
		u.because = found.unreadable
	case reasonInUse:
		u.because = cmp.Or(strings.Join(v.Nodes, ", "), found.attached[key])
	default:
	}
	return u
}

// byWeight sorts by size, largest first, and then by handle.
func byWeight(a, b unaccounted) int {
	return cmp.Or(cmp.Compare(b.volume.Bytes, a.volume.Bytes), cmp.Compare(a.volume.Handle, b.volume.Handle))
}

// state returns the volumes, suspects first and each group by size, and the figures.
func (t *tracker) state() ([]unaccounted, figures) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]unaccounted, 0, len(t.volumes))
	for _, u := range t.volumes {
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b unaccounted) int {
		if a.verdict.Suspected != b.verdict.Suspected {
			if a.verdict.Suspected {
				return -1
			}
			return 1
		}
		return byWeight(a, b)
	})
	return all, t.last
}

// failures returns the number of leak checks that failed.
func (t *tracker) failures() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last.failed
}
