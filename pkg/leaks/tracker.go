package leaks

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
)

// keyOf is by what a volume is known. Some drivers spell a handle now in large and now in small letters
// (Azure); two volumes that differ in nothing else are taken for one.
func keyOf(handle string) string { return strings.ToLower(handle) }

// unaccounted is what is remembered of a volume that the last complete leak check found without an owner.
type unaccounted struct {
	volume Volume
	// since is the number of the first complete leak check, of those in a row up to the last, that listed it.
	since uint64
	// sightings and firstSeen are as in Facts.
	sightings int
	firstSeen time.Time
	verdict   Verdict
	// because says more about the reason, for people.
	because string
}

// making is a claim or snapshot whose volume is being made.
type making struct {
	name string
	// since is the number of the first complete leak check, of those in a row up to the last, that saw it so.
	since uint64
}

// tracker is what is kept between leak checks. It is safe for concurrent use.
type tracker struct {
	mu sync.Mutex
	// round numbers the complete leak checks, from 1 on.
	round   uint64
	volumes map[string]unaccounted
	makers  map[types.UID]making
	// passing are the volumes that a PV named which came or went since the running leak check began; nil
	// between leak checks.
	passing map[string]bool
	last    figures
}

// figures are what the last leak checks came to.
type figures struct {
	// began and completed are when the last complete leak check did; zero before the first.
	began, completed time.Time
	// listed and bytes are how many volumes the driver listed in it, and their size as far as it reported it.
	listed int
	bytes  int64
	// forgotten are entries of the in-flight log whose claim and PV do not exist for the grace period.
	forgotten []inflight.Located
	// nameless is how many entries of the list had no volume_id.
	nameless int
	// complete and failed count leak checks.
	complete, failed int
	// failure is why the last leak check could not be completed; empty if it could.
	failure string
}

func newTracker() *tracker {
	return &tracker{volumes: map[string]unaccounted{}, makers: map[types.UID]making{}}
}

// begin notes that a leak check begins.
func (t *tracker) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.passing = map[string]bool{}
}

// seen notes that a PV of the volume came or went. It ends a suspicion: what was seen before a PV named a
// volume says nothing about what comes after.
func (t *tracker) seen(handle string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := keyOf(handle)
	delete(t.volumes, key)
	if t.passing != nil {
		t.passing[key] = true
	}
}

// fail notes that a leak check could not be completed. It is no sighting, and takes nothing back.
func (t *tracker) fail(err error) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first = t.last.failure == ""
	t.last.failed++
	t.last.failure, t.passing = err.Error(), nil
	return first
}

// complete takes in what a leak check found, and returns the volumes that it suspects and the last one did not.
func (t *tracker) complete(found survey, rules Rules, now time.Time) (fresh []unaccounted) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.round++
	oldest := t.remember(found.makers)
	volumes := map[string]unaccounted{}
	for key, v := range found.listing.volumes {
		before := t.volumes[key]
		u := t.judge(v, before, found, oldest, rules, now)
		if u.verdict.Reason.accounted() {
			continue
		}
		volumes[key] = u
		if u.verdict.Suspected && !before.verdict.Suspected {
			fresh = append(fresh, u)
		}
	}
	t.volumes, t.passing = volumes, nil
	t.last.began, t.last.completed, t.last.failure = found.began, now, ""
	t.last.listed, t.last.bytes, t.last.nameless = len(found.listing.volumes),
		sizeOf(maps.Values(found.listing.volumes), func(v Volume) int64 { return v.Bytes }), found.listing.nameless
	t.last.forgotten = found.forgotten(now.Add(-rules.Grace))
	t.last.complete++
	slices.SortFunc(fresh, byWeight)
	return fresh
}

// remember notes who makes volumes, and returns the one that has done so for the longest time; its since is
// 0 where there is none.
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

// judge decides on one volume.
func (t *tracker) judge(v Volume, before unaccounted, found survey, oldest making, rules Rules,
	now time.Time) unaccounted {
	key := keyOf(v.Handle)
	if found.named[key] || t.passing[key] { // nothing else needs to be looked up
		return unaccounted{verdict: Verdict{Reason: ReasonPV}}
	}
	u := before
	u.volume, u.because = v, ""
	if u.since == 0 {
		u.since = t.round
	}
	// A claim or snapshot that was absent in some leak check that listed the volume did not create it.
	s := found.snapshot(v, rules)
	s.PV = Absent
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
	u.verdict = Decide(s, now)
	switch u.verdict.Reason {
	case ReasonBeingMade:
		u.because = oldest.name
	case ReasonPVUnclear:
		u.because = found.unclear
	case ReasonInFlight:
		entry, _ := found.entryOf(v.Handle)
		u.because = "claim " + entry.Claim.Namespace + "/" + entry.Claim.Name
	case ReasonIncomplete:
		u.because = found.unreadable
	case ReasonInUse:
		u.because = strings.Join(v.Nodes, ", ")
	default:
	}
	return u
}

// byWeight sorts the largest first.
func byWeight(a, b unaccounted) int {
	return cmp.Or(cmp.Compare(b.volume.Bytes, a.volume.Bytes), cmp.Compare(a.volume.Handle, b.volume.Handle))
}

// state returns what is known now: the volumes, suspects first and of these the largest, and the figures.
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
