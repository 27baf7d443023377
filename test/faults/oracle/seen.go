package oracle

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// Seen is a version of an object as a watch showed it. The audit log has only answered requests. The effect of a
// request whose client left before its answer is seen only here.
type Seen struct {
	Object
	// At is when the watch showed it.
	At time.Time
	// Gone means that the object has left the API server; Object is its last version.
	Gone bool
}

// addSeen adds the seen versions to the lives that are known from answers, and sorts them.
func addSeen(all map[string]timeline, seen []Seen, requests []Request) {
	for _, s := range seen {
		if s.Gone {
			s.Version = math.MaxUint64
		}
		at := slices.IndexFunc(all[s.UID], func(known moment) bool { return known.Version == s.Version })
		if at < 0 {
			all[s.UID] = append(all[s.UID], s.moment(requests))
			continue
		}
		if known := &all[s.UID][at]; s.At.Before(known.commit.To) {
			known.commit.To = s.At
		}
	}
	for _, l := range all {
		slices.SortFunc(l, func(a, b moment) int { return cmp.Compare(a.Version, b.Version) })
		for i := range l {
			if l[i].commit.From.IsZero() { // after the version before, at an unknown time
				l[i].commit.From = l[max(i-1, 0)].commit.From
			}
		}
	}
}

// moment finds the request that was given up and made the version: the last one before it was seen.
func (s Seen) moment(requests []Request) moment {
	m := moment{Object: s.Object, commit: Span{To: s.At}, gone: s.Gone}
	resource := map[Kind]string{PV: "persistentvolumes", Claim: "persistentvolumeclaims", Attachment: "volumeattachments",
		Log: "leases"}[s.Kind]
	for _, r := range slices.Backward(requests) {
		about := strings.TrimSuffix(r.Resource, "/status") == resource && r.Namespace == s.Namespace && r.Name == s.Name
		if about && r.write() && r.Object == nil && (r.Code == 0 || r.Code >= 500) && !r.From.After(s.At) {
			m.by, m.commit.From = r.User, r.From
			break
		}
	}
	return m
}
