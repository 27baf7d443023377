package provision

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
)

// quiet is how long a call that ended may still arrive.
const quiet = time.Minute

var (
	uids  = [maxClaims]types.UID{"uid-0", "uid-1"}
	nodes = [...]string{"", "a", "b"}
	// handles are the volumes', by place, name and generation.
	handles [maxPlaces][maxNames][8]string
)

func init() {
	for p := range handles {
		for n := range handles[p] {
			for g := range handles[p][n] {
				handles[p][n][g] = string([]byte{'v', byte('0' + p), byte('0' + n), byte('0' + g)})
			}
		}
	}
}

func generationOf(handle string) uint8 {
	if handle == "" {
		return 0
	}
	return handle[3] - '0'
}

// facts are what the engine decides from when a replica reconciles a claim.
func (w *World) facts(s *state, i, c int) provision.Facts {
	n := w.name(c)
	l := &s.lines[i]
	m := &l.names[n]
	f := provision.Facts{MayAct: l.mayAct, Claim: w.claimOf(l, i, c), Log: provision.Log(m.log), First: !m.again,
		SecondFailed: m.secondFailed, Confirmed: m.confirmed && (!m.settled || m.record.made && !m.record.unfit)}
	switch {
	case f.Log == provision.LogOpen && int(m.entry.claim) == c+1:
		f.Record = w.record(m, w.place(i), n)
		noted := m.entry.requests[m.record.next].noted
		f.VersionNoted = noted == several || noted == s.version || w.forgetful
	case f.Log == provision.LogOpen:
		f.Log = provision.LogOthers
	}
	seen := l.claims[c]
	f.Wanted = seen.needy() && s.class != 0
	switch {
	case w.Local:
		f.Wanted = f.Wanted && int(seen.node) == i+1
	case w.Late:
		f.Wanted = f.Wanted && seen.node != 0
	}
	f.PV = w.seen(l, i, c, n, m.pv)
	if w.Local {
		f.Apart = w.seen(l, i, c, maxNames+i, m.apart)
	}
	return f
}

// seenClaim is what a replica knows of a claim: what it has read in this run, else what its cache shows.
func (w *World) seenClaim(l *line, c int) claim {
	if m := &l.names[w.name(c)]; int(m.of) == c+1 {
		return m.claim
	}
	return l.claims[c]
}

// claimOf is what is known about a claim. One that the cache does not show is gone.
func (w *World) claimOf(l *line, i, c int) provision.Claim {
	seen := w.seenClaim(l, c)
	claim := provision.Claim{
		Namespace: "ns", Name: w.Claims[c], UID: uids[c], Ours: true, PVName: "pvc-" + string(uids[c]),
		Terminating: seen.terminating, Gone: !seen.exists,
		SelectedNode: nodes[seen.node],
	}
	if w.Short {
		claim.PVName = "pvc-uid"
	}
	switch seen.bound {
	case boundOwn:
		claim.VolumeName = claim.PVName
	case boundElsewhere:
		claim.VolumeName = "another"
	}
	if m := &l.names[w.name(c)]; int(m.of) == c+1 {
		claim.Read = m.read.Time()
	}
	switch {
	case !w.Local:
	case seen.node == 0:
		claim.Node = provision.NodeNone
	case int(seen.node) == i+1:
		claim.Node = provision.NodeHere
	default:
		claim.Node = provision.NodeElsewhere
	}
	return claim
}

// seen is what a replica knows of a PersistentVolume: what it has learned in this run, else what its cache shows.
func (w *World) seen(l *line, i, c, slot int, known view) provision.PV {
	if known.claim != 0 && int(known.claim) == c+1 {
		return w.toFacts(known, i, nameOf(slot))
	}
	if p := l.pvs[slot]; p.exists() {
		return w.toFacts(w.viewOf(p, i, c), i, nameOf(slot))
	}
	return provision.PV{}
}

// viewOf is what a PersistentVolume is to a replica that reads it for a claim.
func (w *World) viewOf(p pv, i, c int) view {
	v := view{known: true, claim: uint8(c + 1)}
	if p.exists() {
		v.exists, v.ofClaim, v.ofDriver, v.terminating = true, p.belongs(c), p.claim != foreign, p.terminating
		v.elsewhere = v.ofDriver && int(p.place) != w.place(i)
		v.generation = p.generation
	}
	return v
}

func (w *World) toFacts(v view, i, name int) provision.PV {
	p := provision.PV{
		Known: v.known, Exists: v.exists, OfClaim: v.ofClaim, OfDriver: v.ofDriver, Terminating: v.terminating,
		Elsewhere: v.elsewhere, Read: v.read.Time(),
	}
	switch {
	case v.exists && v.ofDriver && v.elsewhere:
		p.Handle = handles[1-w.place(i)][name][v.generation]
	case v.exists && v.ofDriver:
		p.Handle = handles[w.place(i)][name][v.generation]
	}
	return p
}

func fromFacts(p provision.PV, c int) view {
	return view{
		known: p.Known, exists: p.Exists, ofClaim: p.OfClaim, ofDriver: p.OfDriver, terminating: p.Terminating,
		elsewhere: p.Elsewhere, generation: generationOf(p.Handle), read: clock.AgeOf(p.Read), claim: uint8(c + 1),
	}
}

func (w *World) record(m *memory, place, name int) provision.Record {
	r := provision.Record{
		Claim: uids[m.entry.claim-1], Count: int(m.entry.count), Next: int(m.record.next), By: int(m.record.by),
		Unanswered: m.record.unanswered.Time(), Unfit: m.record.unfit, Failed: m.record.failed,
		Discarding: m.entry.discarding,
	}
	for i := range r.Count {
		q := w.requestOf(m.entry.requests[i])
		q.Sent, q.Settled = m.record.sent[i], m.record.settled[i]
		r.Requests[i] = q
	}
	if m.record.made {
		r.Volume, r.Handle = provision.VolumeMade, handles[place][name][m.record.generation]
		r.InPVForm = true // no class of the worlds is an in-tree plugin's
	}
	return r
}

func (w *World) requestOf(q request) provision.Request {
	return provision.Request{Node: nodes[q.node], MayReschedule: w.Late || w.Local}
}

// remember keeps what a replica has learned.
func (m *memory) remember(f provision.Facts) {
	r := f.Record
	m.log = uint8(f.Log)
	m.record = record{
		next: uint8(r.Next), unanswered: clock.AgeOf(r.Unanswered), generation: generationOf(r.Handle), by: uint8(r.By),
		made: r.Volume == provision.VolumeMade, unfit: r.Unfit, failed: r.Failed,
	}
	for i := range r.Requests {
		m.record.sent[i], m.record.settled[i] = r.Requests[i].Sent, r.Requests[i].Settled
	}
}

// learn has the engine learn what became of a call.
func (c *transition) learn(i, name int) {
	l := &c.lines[i]
	done, m := l.calls[name], &l.names[name]
	l.calls[name] = call{}
	of := int(done.claim) - 1
	f := c.facts(&c.state, i, of)
	reply := provision.Reply{Class: errclass.Class(done.class), Unfit: done.unfit, PV: c.toFacts(done.found, i, name),
		Comparable: !done.bare && !done.changed || c.credulous}
	if done.got != 0 {
		reply.Handle, reply.InPVForm = handles[c.place(i)][name][done.got], true
	}
	began := clock.Now
	if !done.quiet {
		began = clock.Old.Time()
	}
	action := provision.Action(done.action)
	switch action {
	case provision.OpenEntry:
		reply.Request, reply.Log = c.requestOf(done.request), provision.LogFull
	case provision.ReadClaim:
		read := *l
		read.claims[of] = done.claimFound
		reply.Claim = c.claimOf(&read, i, of)
		reply.Claim.Read = clock.Now
	default:
	}
	asked := f.Record.Requests[f.Record.Next]
	f.Learn(action, reply, done.first, began, clock.Now, quiet)
	if f.Log != provision.LogOthers {
		m.remember(f)
	}
	known := f.Record
	m.learn(action, f, done, of, reply.Class)
	if action == provision.CreateVolume {
		// The entry may be of any age, and an old one permits more.
		m.leaves = c.Scheduled && f.Reschedules(asked, reply.Class, c.isGone(done.request.node), math.MaxInt64, quiet)
	}
	m.secondFailed = m.secondFailed && !c.insistent
	if provision.Log(m.log) == provision.LogOpen && int(m.entry.claim) == of+1 && c.record(m, c.place(i), name) != known {
		c.Violates("P1: what the engine knows about %s is not what is in its log: %+v", c.say(name), known)
	}
}

// learn brings in what a call shows, besides the engine's record: f are the facts after the call, of is the claim's
// index, class how the call ended.
func (m *memory) learn(action provision.Action, f provision.Facts, done call, of int, class errclass.Class) {
	m.confirmed = f.Confirmed && class == errclass.Done
	switch action {
	case provision.ReadPV, provision.StorePV:
		m.pv = fromFacts(f.PV, of)
	case provision.StoreApart:
		m.apart = fromFacts(f.Apart, of)
	case provision.OpenEntry:
		m.opened(f, done, class)
		m.pv, m.claim, m.of, m.read = view{}, claim{}, 0, never
	case provision.MarkDiscarding, provision.NoteVersion:
		m.entry = done.entry
	case provision.ReadClaim:
		m.claim, m.of, m.read = done.claimFound, done.claim, recently
	case provision.CloseEntry:
		// The answer has confirmed it.
		*m = memory{log: uint8(provision.LogAbsent), current: m.current, again: true, backsOff: m.backsOff}
	case provision.CreateVolume:
		m.backsOff = class != errclass.Done
		m.pv, m.apart, m.secondFailed = view{}, view{}, false
	default:
	}
}

// opened takes the outcome of OpenEntry. That the log has no room is known in this run alone.
func (m *memory) opened(f provision.Facts, done call, class errclass.Class) {
	switch {
	case class == errclass.Done:
		m.entry = done.entry
	case f.Log == provision.LogOpen:
		m.secondFailed = f.SecondFailed
	default:
		m.log, m.backsOff = uint8(provision.LogAbsent), true
	}
}

func indexOf(uid types.UID) int {
	if uid == uids[1] {
		return 1
	}
	return 0
}
