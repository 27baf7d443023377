package oracle

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
)

// judgeCall checks that DeleteVolume is sent only for the volume of a PV, after live reads that show that it may go.
func (j *judge) judgeCall(c ledger.Call) {
	var why []string
	var about Object
	for _, pv := range j.pvs {
		if pv.living().Handle != c.Volume || pv[0].commit.From.After(c.Received) {
			continue
		}
		about = pv[0].Object
		reason := j.objection(pv, c)
		if reason == "" {
			j.judgeUse(pv, c)
			return
		}
		why = append(why, reason)
	}
	if len(why) == 0 {
		var reason string
		about, reason = j.objectionWithoutPV(c)
		why = []string{reason}
	}
	j.found(WrongDelete, about, "DeleteVolume(%s) at %s: %s", c.Volume, clock(c.Received), strings.Join(why, "; "))
}

// objection returns the objection to a deletion, empty for none. A deletion needs the proof for a protected PV, or the
// proof for a PV that is gone.
func (j *judge) objection(pv timeline, c ledger.Call) string {
	window, process, known := j.window(c)
	if !known {
		return "no sidecar ran"
	}
	if end, gone := pv.end(); gone && !end.commit.From.After(c.Received) {
		return j.objectionAfterEnd(pv, end, window, process.From)
	}
	return j.objectionAlive(pv, window, process.From)
}

// window is the time in which the reads for a call must have been made, by the process that sent it.
func (j *judge) window(c ledger.Call) (window Span, process Process, known bool) {
	window = Span{c.Received.Add(-readFor), c.Received}
	if process, known = j.process(c); !known {
		return window, process, false
	}
	window.From = later(window.From, process.From)
	// Every try begins with reads of its own. Where several PVs have the volume, the calls before may be for the others.
	var before []time.Time
	for _, other := range j.calls {
		if other.Volume == c.Volume && other.Received.Before(c.Received) {
			before = append(before, other.Received)
		}
	}
	if n := max(1, len(j.family(c.Volume))); len(before) >= n {
		window.From = later(window.From, before[len(before)-n])
	}
	return window, process, true
}

// family returns the PVs of a volume.
func (j *judge) family(handle string) []timeline {
	return slices.DeleteFunc(slices.Clone(j.pvs), func(pv timeline) bool { return pv.living().Handle != handle })
}

// objectionAlive looks for a read of the claim, or its end since the sidecar's process began at since, and then for a
// read of the PV, that together are the proof.
func (j *judge) objectionAlive(pv timeline, window Span, since time.Time) string {
	reads := j.reads("persistentvolumes", "", pv[0].Name, window)
	if len(reads) == 0 {
		return "the PV was not read before"
	}
	why := ""
	for _, read := range reads {
		for _, m := range pv.during(read.Span) {
			switch {
			case read.Code != http.StatusOK || m.gone:
				why = "the PV was gone when it was read"
			case !m.due():
				why = "the PV read was: " + m.String()
			case !m.has(j.Finalizer) && (m.Terminating || !j.contested(pv)):
				why = "the PV read had no finalizer: " + m.String()
			default:
				// A read that was under way beside the PV's may show a state from after the PV was read.
				claimWindow := Span{window.From, read.From}
				if j.endWasWatched(m.Object, Span{since, window.To}) {
					return ""
				}
				if reason := j.objectionClaim(m.Object, claimWindow); reason != "" {
					why = reason
					continue
				}
				return ""
			}
		}
	}
	return why
}

// objectionClaim looks for a read that shows that the PV's claim is gone.
func (j *judge) objectionClaim(pv Object, window Span) string {
	reads := j.reads("persistentvolumeclaims", pv.ClaimNamespace, pv.ClaimName, window)
	if len(reads) == 0 {
		return "the claim was not read before"
	}
	for _, read := range reads {
		if read.Code == http.StatusNotFound {
			return ""
		}
		if j.namedDuring(pv, read.Span) {
			continue
		}
		own, found := j.lives[pv.ClaimUID]
		alive := false
		if found {
			for _, m := range own.during(read.Span) {
				elsewhere := pv.Dynamic && m.Volume != "" && m.Volume != pv.Name
				alive = alive || !m.gone && !elsewhere
				if m.gone || elsewhere {
					return "" // it may have been gone when it was read
				}
			}
		}
		if !alive && read.Code == http.StatusOK {
			return "" // another claim of the name
		}
	}
	return "the claim was alive when it was read, or another one of its name that names the PV"
}

// endWasWatched reports whether a sidecar that watches claims needs no read of the PV's claim: its end is within the
// span, and no other claim that names the PV has been known for long.
func (j *judge) endWasWatched(pv Object, span Span) bool {
	own, found := j.lives[pv.ClaimUID]
	if !found || !j.ClaimsWatched {
		return false
	}
	end, gone := own.end()
	return gone && end.commit.To.After(span.From) && !end.commit.From.After(span.To) &&
		(j.lagged(span.To) || !j.namedDuring(pv, Span{span.To.Add(-lagFor), span.To}))
}

// lagged reports whether a watch may not have shown a state that was current for long.
func (j *judge) lagged(at time.Time) bool {
	recent := Span{at.Add(-lagFor), at}
	return slices.ContainsFunc(j.Lags, func(lag Span) bool { return lag.overlaps(recent) })
}

// namedDuring reports whether another claim than the PV's had the name in its claimRef during the whole span, and
// named the PV.
func (j *judge) namedDuring(pv Object, span Span) bool {
	return len(of(j.lives, Claim, func(l timeline) bool {
		return l[0].Namespace == pv.ClaimNamespace && l[0].Name == pv.ClaimName && l[0].UID != pv.ClaimUID &&
			l.surely(span, func(m moment) bool { return !m.gone && m.Volume == pv.Name })
	})) > 0
}

// objectionAfterEnd is objection for a PV that was gone. No other program may have removed its protection since the
// sidecar's process began at since (the process does not know earlier events), and the claim must be read after the
// PV's end.
func (j *judge) objectionAfterEnd(pv timeline, end moment, window Span, since time.Time) string {
	last := pv.living()
	for i := 1; i < len(pv); i++ {
		if pv[i-1].has(j.Finalizer) && !pv[i].has(j.Finalizer) && pv[i].by != j.User && pv[i].commit.To.After(since) {
			return "another program removed the finalizer"
		}
	}
	switch {
	case !last.due():
		return "the PV is gone, and was: " + last.String()
	case last.has(j.Finalizer):
		return "the PV is gone, and its finalizer was on it"
	}
	window.From = later(window.From, end.commit.From)
	return j.objectionClaim(last, window)
}

// reads returns the sidecar's reads of an object that were answered within the span.
func (j *judge) reads(resource, namespace, name string, within Span) []Request {
	var reads []Request
	for _, r := range j.gets[object{resource, namespace, name}] {
		if !r.From.Before(within.From) && !r.From.After(within.To) {
			reads = append(reads, r)
		}
	}
	return reads
}

// judgeUse checks that neither an attachment nor another PV that needs the volume has been known for long.
func (j *judge) judgeUse(pv timeline, c ledger.Call) {
	recent := Span{c.Received.Add(-lagFor), c.Received}
	if j.lagged(c.Received) {
		return
	}
	for _, other := range j.pvs {
		needs := func(m moment) bool { return !m.gone && !m.due() }
		if other[0].UID != pv[0].UID && other.living().Handle == c.Volume && other.surely(recent, needs) {
			j.found(InUse, pv[0].Object, "DeleteVolume(%s) at %s while PV %s needed the volume", c.Volume, clock(c.Received),
				other[0].Name)
		}
	}
	for _, a := range of(j.lives, Attachment, func(l timeline) bool { return l[0].Volume == pv[0].Name }) {
		if a.surely(recent, func(m moment) bool { return !m.gone }) {
			j.found(InUse, pv[0].Object, "DeleteVolume(%s) at %s while attachment %s was there", c.Volume, clock(c.Received),
				a[0].Name)
		}
	}
}

func clock(t time.Time) string { return fmt.Sprint(t.Format("15:04:05.000000")) }
