package oracle

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
)

// history describes all that happened to a PV, its volume, claim and attachments, in order.
func (j *judge) history(pv Object) []string {
	var lines []Note
	for _, r := range j.Requests {
		if j.concerns(r, pv) {
			lines = append(lines, Note{r.To, j.describe(r)})
		}
	}
	for _, c := range j.calls {
		if c.Volume == pv.Handle || j.made[c.Volume] == pv.Name {
			lines = append(lines, describeCall(c, c.Volume, "deleted")...)
		}
	}
	for _, c := range j.creations {
		if c.Name == pv.Name {
			lines = append(lines, describeCall(c, c.Name, "made: "+c.Volume)...)
		}
	}
	lines = append(lines, j.Notes...)
	slices.SortStableFunc(lines, func(a, b Note) int { return a.At.Compare(b.At) })
	texts := make([]string, len(lines))
	for i, line := range lines {
		texts[i] = clock(line.At) + " " + line.Text
	}
	if cut := len(texts) - 2*longest; cut > 0 {
		texts = slices.Replace(texts, longest, longest+cut, fmt.Sprintf("… %d lines more …", cut))
	}
	return texts
}

// logged reports whether a shard has, or had, the volume's entry.
func (j *judge) logged(shard Object, volume string) bool {
	return slices.ContainsFunc(j.lives[shard.UID], func(m moment) bool { return m.logs(volume) })
}

// longest is how many lines a history shows of its beginning, and of its end: a storm has thousands.
const longest = 150

func (j *judge) concerns(r Request, pv Object) bool {
	switch strings.TrimSuffix(r.Resource, "/status") {
	case "persistentvolumes":
		return r.Name == pv.Name && r.Verb != "watch" && r.Verb != "list"
	case "persistentvolumeclaims":
		return r.Name == pv.ClaimName || r.Name == pv.Name
	case "leases":
		return r.Object != nil && j.logged(*r.Object, pv.Name)
	case "volumeattachments":
		return r.Object != nil && r.Object.Volume == pv.Name
	}
	return false
}

func (j *judge) describe(r Request) string {
	who := r.User
	if who == j.User {
		who = "sidecar"
	}
	text := fmt.Sprintf("%s: %s %s %s: %d", who, r.Verb, r.Resource, r.Name, r.Code)
	if r.Object != nil {
		text += ": " + r.Object.String()
	}
	return text
}

// describeCall describes a call for a volume, and its effect.
func describeCall(c ledger.Call, volume, did string) []Note {
	call := "driver: " + c.Method + "(" + volume + ")"
	lines := []Note{{c.Received, call + " received"}}
	if !c.Done.IsZero() {
		lines = append(lines, Note{c.Done, "driver: volume " + volume + " is " + did})
	}
	switch {
	case !c.Answered.IsZero():
		lines = append(lines, Note{c.Answered, fmt.Sprintf("%s answered %s %s", call, c.Code, strings.Join(c.Faults, ","))})
	case c.Lost:
		lines = append(lines, Note{c.Received.Add(time.Nanosecond), "driver: ended before it answered"})
	}
	return lines
}

// History describes all that happened to a PV, its volume, claim and attachments, in order. Of pv the name and handle
// are needed.
func History(c Case, pv Object) []string {
	return newJudge(c).history(pv)
}

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
