package reclaim

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
)

const (
	// contestAfter times within contestWithin somebody takes our finalizer off a PV that is
	// not terminating: then it is no mistake any more but a program.
	contestAfter  = 3
	contestWithin = 10 * time.Minute
)

// notes is what a process remembers about PVs beyond what their objects show. The event
// handlers keep it, on replicas that do not lead too. A PV is remembered from its first sight
// to its end, so that no lag of the cache makes it forgotten too early; nothing is noted for
// one that is not known. It is safe for concurrent use.
type notes struct {
	rules Rules

	mu        sync.Mutex
	known     map[types.UID]*memory
	contested bool
}

// memory is what is remembered of one PV.
type memory struct {
	history History
	done    Done
	// own is the last write of this process that changes whether the PV is protected, so
	// that its event is not taken for somebody else's. Nil: none, or its event was seen.
	own *ownWrite
	// strips are the times at which others took the finalizer off.
	strips []time.Time
}

// ownWrite is a write to a PV's finalizers.
type ownWrite struct {
	protects bool
	// version is the resourceVersion that the write made, empty until it is known.
	version string
	// protectedAt is the version of the last event that showed the PV protected meanwhile.
	protectedAt string
}

func newNotes(rules Rules) *notes { return &notes{rules: rules, known: map[types.UID]*memory{}} }

// note is what is remembered that bears on one PV.
type note struct {
	done      Done
	history   History
	contested bool
}

// of returns what is remembered of a PV as it was read. known is false before its first
// sight and after its end.
func (n *notes) of(pv PV) (_ note, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, known := n.known[pv.UID]
	if !known {
		return note{contested: n.contested}, false
	}
	done := m.done
	done.Protected = m.own != nil && m.own.protects && m.own.version != "" && kube.Newer(m.own.version, pv.ResourceVersion)
	return note{done, m.history, n.contested}, true
}

// inContest tells whether the finalizer is contested.
func (n *notes) inContest() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.contested
}

// record changes what was done for a PV. known is false if there was nowhere to note it.
func (n *notes) record(uid types.UID, change func(*Done)) (done Done, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, known := n.known[uid]
	if !known {
		m = &memory{}
	}
	change(&m.done)
	return m.done, known
}

// forget ends what is remembered of a PV and returns the last of it.
func (n *notes) forget(uid types.UID) (Done, History) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, known := n.known[uid]
	if !known {
		return Done{}, History{}
	}
	delete(n.known, uid)
	return m.done, m.history
}

// added notes a PV that is seen for the first time.
func (n *notes) added(pv *PV) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.see(pv)
}

func (n *notes) see(pv *PV) *memory {
	m, known := n.known[pv.UID]
	if !known {
		m = &memory{}
		n.known[pv.UID] = m
	}
	h := &m.history
	h.SeenAlive = h.SeenAlive || !pv.Terminating
	h.SeenReleased = h.SeenReleased || (!pv.Terminating && pv.deletable())
	if !n.rules.protects(*pv) {
		return m
	}
	switch {
	case m.own == nil || m.own.protects:
		h.SeenProtected = true
	case m.own.version == "":
		// Our write that takes it off is under way: which came first is known when it is
		// answered.
		m.own.protectedAt = pv.ResourceVersion
	default:
		h.SeenProtected = h.SeenProtected || kube.Newer(pv.ResourceVersion, m.own.version)
	}
	return m
}

// changed notes a PV's change. turned tells that the finalizer is contested now, or is not
// any more, which concerns all PVs.
func (n *notes) changed(before, pv *PV, now time.Time) (turned bool) {
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

// gained: somebody else who puts the finalizer on ends the contest.
func (n *notes) gained(m *memory) (turned bool) {
	if m.own != nil && m.own.protects {
		m.own = nil
		return false
	}
	turned = n.contested
	n.contested = false
	for _, other := range n.known {
		other.strips = nil
	}
	return turned
}

func (n *notes) lost(m *memory, before, pv *PV, now time.Time) (turned bool) {
	byUs := m.own != nil && !m.own.protects && (m.own.version == "" || !kube.Newer(before.ResourceVersion, m.own.version))
	switch {
	case !n.rules.guards(*pv) || m.done.VolumeDeleted || byUs || n.contested:
		return false
	case pv.Terminating:
		m.history.LetGo = true
		return false
	}
	recent := slices.DeleteFunc(m.strips, func(at time.Time) bool { return now.Sub(at) > contestWithin })
	m.strips = append(recent, now)
	n.contested = len(m.strips) >= contestAfter
	return n.contested
}

// begin notes that a call is about to be sent that changes a PV's finalizers.
func (n *notes) begin(c call) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if m, known := n.known[c.pv.UID]; known && c.writesFinalizers() {
		m.own = &ownWrite{protects: len(c.add) > 0}
	}
}

// end notes what became of it: the version it made, or that it was refused. A write whose
// answer is lost may have happened: one that protects still counts as ours; one that gives
// protection up does not, for what it would permit is a deletion.
func (n *notes) end(c call, a answer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, known := n.known[c.pv.UID]
	if !known || m.own == nil || !c.writesFinalizers() {
		return
	}
	switch {
	case a.err == nil && m.own.protects:
		m.own.version = a.version
	case a.err == nil:
		m.history.SeenProtected = m.own.protectedAt != "" && kube.Newer(m.own.protectedAt, a.version)
		m.own.version = a.version
	case a.refused() || !m.own.protects:
		m.own = nil
	}
}
