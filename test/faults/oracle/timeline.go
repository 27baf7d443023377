package oracle

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// moment is a version of an object and the time in which it was committed.
type moment struct {
	Object
	commit Span
	// by is the user who wrote it.
	by string
	// gone means that the object has left the API server; Object is its last version.
	gone bool
}

// timeline is all that an object was, in order.
type timeline []moment

func (l timeline) last() moment { return l[len(l)-1] }

// end returns when the object left the API server.
func (l timeline) end() (moment, bool) { return l.last(), l.last().gone }

// living is the last version before the object left.
func (l timeline) living() Object {
	last := l.last()
	if last.gone && len(l) > 1 {
		return l[len(l)-2].Object
	}
	return last.Object
}

// during returns the versions that may have been current at some time of the span.
func (l timeline) during(s Span) []moment {
	var possible []moment
	for i, m := range l {
		superseded := i+1 < len(l) && l[i+1].commit.To.Before(s.From)
		if !superseded && !m.commit.From.After(s.To) {
			possible = append(possible, m)
		}
	}
	return possible
}

// surely reports whether the object was, during the whole span, like that.
func (l timeline) surely(s Span, like func(moment) bool) bool {
	if len(l) == 0 || l[0].commit.To.After(s.From) {
		return false
	}
	for _, m := range l.during(s) {
		if !like(m) {
			return false
		}
	}
	return true
}

// lives folds requests and seen versions into the lives of objects, by UID.
func lives(requests []Request, seen []Seen) map[string]timeline {
	all := map[string]timeline{}
	for _, r := range requests {
		if r.Object == nil || r.Object.UID == "" {
			continue
		}
		uid, m := r.Object.UID, moment{Object: *r.Object, commit: r.Span, by: r.User}
		m.gone = len(m.Finalizers) == 0 && (r.Verb == "delete" || m.Terminating)
		if m.gone {
			m.Version = math.MaxUint64
		}
		at := slices.IndexFunc(all[uid], func(known moment) bool { return known.Version == m.Version })
		if at < 0 {
			all[uid] = append(all[uid], m)
			continue
		}
		// A write without a change shows another write's version, at its time or later.
		known := &all[uid][at]
		if m.commit.From.Before(known.commit.From) {
			known.commit.From, known.by = m.commit.From, m.by
		}
		if m.commit.To.Before(known.commit.To) {
			known.commit.To = m.commit.To
		}
	}
	addSeen(all, seen, requests)
	return all
}

// of returns the lives of a kind that are as wanted, in order of their beginning.
func of(all map[string]timeline, kind Kind, want func(timeline) bool) []timeline {
	var some []timeline
	for _, l := range all {
		if l[0].Kind == kind && want(l) {
			some = append(some, l)
		}
	}
	slices.SortFunc(some, func(a, b timeline) int {
		return cmp.Or(a[0].commit.From.Compare(b[0].commit.From), strings.Compare(a[0].UID, b[0].UID))
	})
	return some
}

func sortByTime(requests []Request) {
	slices.SortStableFunc(requests, func(a, b Request) int { return a.From.Compare(b.From) })
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
