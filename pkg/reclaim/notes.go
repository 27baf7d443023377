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
// handlers keep it, on replicas that do not lead too. An entry lives from the PV's first
// sight to its end, so that no lag of the cache makes it forget too early; nothing is noted
// for a PV that is not known. It is safe for concurrent use.
type notes struct {
	rules Rules

	mu   sync.Mutex
	seen map[types.UID]History
	done map[types.UID]Done
	// ours are the writes of this process that change whether a PV is protected, so that
	// their events are not taken for somebody else's.
	ours map[types.UID]ownWrite
	// strips are the times at which others took the finalizer off.
	strips    map[types.UID][]time.Time
	contested bool
}

// ownWrite is a write to a PV's finalizers.
type ownWrite struct {
	protects bool
	// version is the resourceVersion that the write made, empty until it is known.
	version string
	// protectedAt is the version of the last event that showed the PV protected meanwhile.
	protectedAt string
}

func newNotes(rules Rules) *notes {
	return &notes{
		rules: rules,
		seen:  map[types.UID]History{}, done: map[types.UID]Done{},
		ours: map[types.UID]ownWrite{}, strips: map[types.UID][]time.Time{},
	}
}

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
	history, known := n.seen[pv.UID]
	done, own := n.done[pv.UID], n.ours[pv.UID]
	done.Protected = own.protects && own.version != "" && kube.Newer(own.version, pv.ResourceVersion)
	return note{done, history, n.contested}, known
}

// inContest tells whether the finalizer is contested.
func (n *notes) inContest() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.contested
}

// record changes what was done for a PV. known is false if there was nowhere to note it.
func (n *notes) record(uid types.UID, change func(*Done)) (_ Done, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.done[uid]
	change(&d)
	if _, known = n.seen[uid]; known {
		n.done[uid] = d
	}
	return d, known
}

// forget ends the notes of a PV and returns the last of them.
func (n *notes) forget(uid types.UID) (Done, History) {
	n.mu.Lock()
	defer n.mu.Unlock()
	done, history := n.done[uid], n.seen[uid]
	delete(n.done, uid)
	delete(n.seen, uid)
	delete(n.ours, uid)
	delete(n.strips, uid)
	return done, history
}

// added notes a PV that is seen for the first time.
func (n *notes) added(pv *PV) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.see(pv)
}

func (n *notes) see(pv *PV) {
	h := n.seen[pv.UID]
	h.SeenAlive = h.SeenAlive || !pv.Terminating
	h.SeenReleased = h.SeenReleased || (!pv.Terminating && pv.deletable())
	if n.rules.protects(*pv) {
		own, ongoing := n.ours[pv.UID]
		switch {
		case !ongoing || own.protects:
			h.SeenProtected = true
		case own.version == "":
			// Our write that takes it off is under way: which came first is known when
			// it is answered.
			own.protectedAt = pv.ResourceVersion
			n.ours[pv.UID] = own
		default:
			h.SeenProtected = h.SeenProtected || kube.Newer(pv.ResourceVersion, own.version)
		}
	}
	n.seen[pv.UID] = h
}

// changed notes a PV's change. turned tells that the finalizer is contested now, or is not
// any more, which concerns all PVs.
func (n *notes) changed(before, pv *PV, now time.Time) (turned bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.see(pv)
	was, is := n.rules.protects(*before), n.rules.protects(*pv)
	switch {
	case !was && is:
		return n.gained(pv)
	case was && !is:
		return n.lost(before, pv, now)
	}
	return false
}

// gained: somebody else who puts the finalizer on ends the contest.
func (n *notes) gained(pv *PV) (turned bool) {
	if own, found := n.ours[pv.UID]; found && own.protects {
		delete(n.ours, pv.UID)
		return false
	}
	turned = n.contested
	n.contested = false
	clear(n.strips)
	return turned
}

func (n *notes) lost(before, pv *PV, now time.Time) (turned bool) {
	own, found := n.ours[pv.UID]
	byUs := found && !own.protects && (own.version == "" || !kube.Newer(before.ResourceVersion, own.version))
	switch {
	case !n.rules.guards(*pv) || n.done[pv.UID].VolumeDeleted || byUs || n.contested:
		return false
	case pv.Terminating:
		h := n.seen[pv.UID]
		h.LetGo = true
		n.seen[pv.UID] = h
		return false
	}
	recent := slices.DeleteFunc(n.strips[pv.UID], func(at time.Time) bool { return now.Sub(at) > contestWithin })
	n.strips[pv.UID] = append(recent, now)
	n.contested = len(n.strips[pv.UID]) >= contestAfter
	return n.contested
}

// writing notes that a write is about to be sent that puts our finalizer on or takes it off.
func (n *notes) writing(uid types.UID, protects bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.seen[uid]; known {
		n.ours[uid] = ownWrite{protects: protects}
	}
}

// wrote notes what became of it: the version it made, or that it was refused. A write
// whose answer is lost may have happened: one that protects still counts as ours; one that
// gives protection up does not, for what it would permit is a deletion.
func (n *notes) wrote(uid types.UID, version string, refused bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	own, found := n.ours[uid]
	switch {
	case !found:
	case version != "" && own.protects:
		own.version = version
		n.ours[uid] = own
	case version != "":
		h := n.seen[uid]
		h.SeenProtected = own.protectedAt != "" && kube.Newer(own.protectedAt, version)
		n.seen[uid] = h
		own.version = version
		n.ours[uid] = own
	case refused || !own.protects:
		delete(n.ours, uid)
	}
}
