package reclaim

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const (
	// contestAfter times within contestWithin somebody removes our finalizer from a PV that is
	// not terminating: then it is no mistake any more but a loop, and the PV is contested.
	contestAfter  = 3
	contestWithin = 10 * time.Minute
	// contestedPVs are how many PVs become contested within contestWithin until it is the driver that is
	// contested: a loop on one PV is that PV's, and a program that works on all PVs meets several at once.
	// Single removals count for nothing here, however many PVs they befall.
	contestedPVs = 3
)

// notes is what a process remembers about PVs beyond what their objects show. The event
// handlers keep it, on replicas that do not lead too. A PV is remembered from its first sight
// to its end, and longer if its volume may be left (endings.go), so that no lag of the cache
// makes it forgotten too early; nothing is noted for one that is not known. It is safe for
// concurrent use.
type notes struct {
	rules Rules

	mu    sync.Mutex
	known map[types.UID]*memory
	// ended are the known PVs that are gone, by the names they had.
	ended map[string][]types.UID
	// contested: the driver is, so that none of its PVs is protected.
	contested bool
}

// memory is what is remembered of one PV.
type memory struct {
	history History
	// acts is nil for most PVs, which were seen and no more.
	acts *acts
}

// acts is what happened to a PV besides being seen.
type acts struct {
	done Done
	// put and took are the last writes of this process that put a finalizer on and took it
	// off, so that their events are not taken for somebody else's. Two loops write, so one
	// of each kind may be under way. Nil: none; or put's event was seen.
	put  *ownWrite
	took *ownWrite
	// strips are the times at which others took the finalizer off. contestedAt is when they became too many, zero
	// for not.
	strips      []time.Time
	contestedAt time.Time
	// over is the PV's end, nil while it is there.
	over *ending
}

// past returns the acts to look at.
func (m *memory) past() acts {
	if m.acts == nil {
		return acts{}
	}
	return *m.acts
}

// present returns the acts to change.
func (m *memory) present() *acts {
	if m.acts == nil {
		m.acts = &acts{}
	}
	return m.acts
}

// endContest: somebody else adds the finalizer to the PV.
func (m *memory) endContest() {
	if m.acts != nil {
		m.acts.strips, m.acts.contestedAt = nil, time.Time{}
	}
}

// ownWrite is a write to a PV's finalizers.
type ownWrite struct {
	// version is the resourceVersion that the write made, empty until it is known.
	version string
	// protectedAt is the version of the last event that showed the PV protected before that.
	protectedAt string
}

// later tells whether the write is known to have changed the PV since it had this version.
func (o *ownWrite) later(version string) bool {
	return o != nil && o.version != "" && kube.Newer(o.version, version)
}

func newNotes(rules Rules) *notes {
	return &notes{rules: rules, known: map[types.UID]*memory{}, ended: map[string][]types.UID{}}
}

// note is what is remembered that bears on one PV.
type note struct {
	done    Done
	history History
	// contested: the PV is, or the driver. driver: it is the driver.
	contested, driver bool
}

// of returns what is remembered of a PV that is there, as it was read. known is false before
// its first sight and after its end.
func (n *notes) of(pv volume.PV) (_ note, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, known := n.known[pv.UID]
	if !known || m.past().over != nil {
		return note{contested: n.contested, driver: n.contested}, false
	}
	past := m.past()
	done := past.done
	done.Protected = past.put.later(pv.ResourceVersion)
	done.Dropped = past.took.later(pv.ResourceVersion)
	if done.Protected && done.Dropped {
		done.Protected = past.put.later(past.took.version)
		done.Dropped = !done.Protected
	}
	return n.noteOf(past, m.history, done), true
}

func (n *notes) noteOf(past acts, history History, done Done) note {
	return note{done, history, n.contested || !past.contestedAt.IsZero(), n.contested}
}

// forgotten tells whether nothing is remembered of a PV: it was never seen, or its end is settled.
func (n *notes) forgotten(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, known := n.known[uid]
	return !known
}

// inContest tells whether the driver is contested.
func (n *notes) inContest() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.contested
}

// record changes what was done for a PV, if it is known, and returns all that was.
func (n *notes) record(uid types.UID, change func(*Done)) Done {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, known := n.known[uid]
	if !known {
		m = &memory{}
	}
	change(&m.present().done)
	return m.acts.done
}

// added notes a PV that is seen for the first time.
func (n *notes) added(pv *volume.PV) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.see(pv)
}

func (n *notes) see(pv *volume.PV) *memory {
	m, known := n.known[pv.UID]
	if !known {
		m = &memory{}
		n.known[pv.UID] = m
	}
	h := &m.history
	h.SeenAlive = h.SeenAlive || !pv.Terminating
	h.SeenReleased = h.SeenReleased || (!pv.Terminating && pv.Deletable())
	if !n.rules.protects(*pv) {
		return m
	}
	switch took := m.past().took; {
	case took == nil:
		h.SeenProtected = true
	case took.version == "":
		// Our write that takes it off is under way: which came first is known when it is
		// answered.
		took.protectedAt = pv.ResourceVersion
	default:
		h.SeenProtected = h.SeenProtected || kube.Newer(pv.ResourceVersion, took.version)
	}
	return m
}

// changed notes a PV's change. turned tells that the driver is contested now, or is not
// any more, which concerns all PVs.
func (n *notes) changed(before, pv *volume.PV, now time.Time) (turned bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.see(pv)
	was, is := n.rules.protects(*before), n.rules.protects(*pv)
	switch {
	case !was && is:
		return n.gained(m)
	case was && !is:
		return n.lost(m, before, pv, now)
	}
	return false
}

// gained: somebody else who adds the finalizer ends the PV's contest, or that of all PVs where the driver is
// contested.
func (n *notes) gained(m *memory) (turned bool) {
	switch {
	case m.past().put != nil:
		m.acts.put = nil
		return false
	case !n.contested:
		m.endContest()
		return false
	}
	n.contested = false
	for _, other := range n.known {
		other.endContest()
	}
	return true
}

func (n *notes) lost(m *memory, before, pv *volume.PV, now time.Time) (turned bool) {
	past := m.past()
	byUs := past.took != nil && (past.took.version == "" || !kube.Newer(before.ResourceVersion, past.took.version))
	switch {
	case !n.rules.guards(*pv) || past.done.VolumeDeleted || byUs || n.contested || !past.contestedAt.IsZero():
		return false
	case pv.Terminating:
		m.history.LetGo = true
		return false
	}
	recent := slices.DeleteFunc(past.strips, func(at time.Time) bool { return now.Sub(at) > contestWithin })
	m.present().strips = append(recent, now)
	if len(m.acts.strips) < contestAfter {
		return false
	}
	m.acts.contestedAt = now
	n.contested = n.contestedSince(now.Add(-contestWithin)) >= contestedPVs
	return n.contested
}

// contestedSince counts the PVs that became contested after a time.
func (n *notes) contestedSince(since time.Time) (pvs int) {
	for _, m := range n.known {
		if m.past().contestedAt.After(since) {
			pvs++
		}
	}
	return pvs
}

// begin notes that a call is about to be sent that changes a PV's finalizers.
func (n *notes) begin(c call) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, known := n.known[c.pv.UID]
	switch {
	case !known || !c.writesFinalizers():
	case c.protects():
		m.present().put = &ownWrite{}
	default:
		m.present().took = &ownWrite{}
	}
}

// end notes what became of it: the version it made, or that it was refused. A write whose
// answer is lost may have happened: one that protects still counts as ours; one that gives
// protection up does not, for what it would permit is a deletion.
func (n *notes) end(c call, a answer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, known := n.known[c.pv.UID]
	if !known || !c.writesFinalizers() {
		return
	}
	put, took := m.past().put, m.past().took
	switch {
	case c.protects() && put == nil: // its event was seen
	case c.protects() && a.err == nil:
		put.version = a.version
	case c.protects() && a.refused():
		m.acts.put = nil
	case c.protects():
	case took == nil: // the PV was forgotten and seen anew meanwhile
	case a.err == nil:
		m.history.SeenProtected = took.protectedAt != "" && kube.Newer(took.protectedAt, a.version)
		took.version = a.version
	default:
		m.acts.took = nil
	}
}
