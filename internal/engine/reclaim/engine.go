package reclaim

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// PVs is the watch cache of PVs.
type PVs interface {
	Get(name string) (*volume.PV, bool)
	Each(visit func(*volume.PV))
}

// Engine holds all observations and records of one process about the PVs of its driver. It is not safe for concurrent
// use: its caller holds a lock, also while PVs is read, so that a PV and its record are read together.
type Engine struct {
	Rules Rules
	// DryRun ends sessions before the first step that writes.
	DryRun bool
	// PVs is the watch cache, which may be ahead of the events that the engine has received but never behind them.
	PVs     PVs
	Tracker Tracker
	Handles Handles
	// Attached counts the VolumeAttachments by the name of their PV.
	Attached map[string]int
	// Deleting are the keys of the handles whose DeleteVolume is not answered yet: it is never called twice at once for
	// one volume.
	Deleting map[string]struct{}
	Breaker  Breaker
	// Leading is true if this replica acts, so that the end of a PV concerns it.
	Leading bool
}

// New returns an Engine without observations.
func New(rules Rules, breaker Breaker, pvs PVs) *Engine {
	return &Engine{
		Rules: rules, PVs: pvs, Tracker: NewTracker(rules), Handles: NewHandles(), Attached: map[string]int{},
		Deleting: map[string]struct{}{}, Breaker: breaker,
	}
}

// Effects are the consequences of an event.
type Effects struct {
	// Keys are the names of the PVs to decide on.
	Keys []string
	// Due is true if the event showed the PV's volume become deletable.
	Due bool
	// Forgotten is the UID of a PV that is gone and leaves no work, empty for none.
	Forgotten types.UID
	// Tripped is true if the brake turned on, and its Lease needs the annotation.
	Tripped bool
}

// Owns reports whether the driver is responsible for the PV's volume.
func (e *Engine) Owns(pv *volume.PV) bool { return pv.OwnedBy(e.Rules.Driver) }

// PVAdded handles the event that shows a PV for the first time.
func (e *Engine) PVAdded(pv *volume.PV, now time.Time) (fx Effects) {
	e.Place(pv)
	if handle := e.handle(pv); handle != "" {
		fx.Keys = e.Tracker.share(handle)
	}
	if e.Owns(pv) {
		fx.Keys = append(fx.Keys, pv.Name)
		e.Tracker.see(pv)
		if e.Rules.due(*pv) {
			fx.Tripped = e.Breaker.Count(pv.UID, now)
		}
	}
	return fx
}

// PVUpdated handles the event of a PV's change. If before has another UID, that PV is gone, and its last state is
// unknown.
func (e *Engine) PVUpdated(before, pv *volume.PV, now time.Time) (fx Effects) {
	if before.UID != pv.UID {
		ended, fx := e.PVDeleted(before, false, now), e.PVAdded(pv, now)
		fx.Keys, fx.Forgotten = append(ended.Keys, fx.Keys...), ended.Forgotten
		return fx
	}
	fx.Keys = e.placeAgain(before, pv)
	if e.Owns(pv) {
		fx.Keys = append(fx.Keys, pv.Name)
		if e.Tracker.changed(before, pv, now) {
			fx.Keys = append(fx.Keys, e.Names()...)
		}
		if e.Rules.due(*pv) && !e.Rules.due(*before) {
			fx.Due, fx.Tripped = true, e.Breaker.Count(pv.UID, now)
		}
	}
	return fx
}

// PVDeleted handles the event of a PV's end, whose last state is last if final is set.
func (e *Engine) PVDeleted(last *volume.PV, final bool, now time.Time) (fx Effects) {
	fx.Keys = e.displace(last)
	if e.Owns(last) {
		fx.Keys = append(fx.Keys, last.Name)
	}
	left := e.Owns(last) && e.Leading && last.Policy == volume.PolicyDelete && last.Claimed()
	end := End{Gone: true, Final: final, Shared: e.Handles.Shared(e.handle(last), "")}
	history, left := e.Tracker.bury(last, end, left)
	switch {
	case !left:
		fx.Forgotten = last.UID
	case e.Rules.ReclaimUnprotected && final && history.SeenAlive && !history.SeenProtected && last.Deletable() &&
		!last.Held:
		fx.Tripped = e.Breaker.Count(last.UID, now)
	}
	return fx
}

// AttachmentAdded handles the event that shows a VolumeAttachment of the PV with this name.
func (e *Engine) AttachmentAdded(pv string) {
	if pv != "" {
		e.Attached[pv]++
	}
}

// AttachmentDeleted handles the event of the end of a VolumeAttachment.
func (e *Engine) AttachmentDeleted(pv string) (fx Effects) {
	if e.Attached[pv]--; e.Attached[pv] <= 0 {
		delete(e.Attached, pv)
	}
	if known, found := e.PVs.Get(pv); found {
		if e.Owns(known) {
			fx.Keys = append(fx.Keys, pv)
		}
		if e.Attached[pv] == 0 {
			fx.Keys = append(fx.Keys, e.detached(known)...)
		}
	}
	if len(e.Tracker.Tombstones[pv]) > 0 {
		fx.Keys = append(fx.Keys, pv)
	}
	return fx
}

// ClaimShown handles an event or a list of the watch of claims that shows a claim whose spec.volumeName is pv.
func (e *Engine) ClaimShown(pv string) {
	if known, found := e.PVs.Get(pv); found {
		e.Tracker.claimShown(known.UID)
	}
}

// ClaimDeleted handles the DELETED event of a claim whose spec.volumeName was pv. A list without the claim is no such
// event, because the list may be older than the claim. The event counts for the PV that has the name now. It does not
// count for a PV that a backup restores later and that names the same claim: whether its claim returns must be read.
func (e *Engine) ClaimDeleted(claim types.UID, pv string, now time.Time) (fx Effects) {
	known, found := e.PVs.Get(pv)
	if !found {
		return fx
	}
	e.Tracker.claimEnded(known.UID, claim, now)
	if e.Owns(known) && known.Deletable() {
		fx.Keys = append(fx.Keys, known.Name)
	}
	return fx
}

// Names returns the names of all PVs, existing or gone, that may need a decision.
func (e *Engine) Names() []string {
	names := make([]string, 0, len(e.Tracker.Tombstones))
	for name := range e.Tracker.Tombstones {
		names = append(names, name)
	}
	e.PVs.Each(func(pv *volume.PV) {
		if e.Owns(pv) {
			names = append(names, pv.Name)
		}
	})
	return names
}

// Lead begins and ends this replica's term as leader.
func (e *Engine) Lead(leading bool) {
	if !leading {
		e.Tracker.ForgetTombstones()
	}
	e.Breaker.Lead(leading)
	e.Leading = leading
}

// LearnBrake records whether the brake's Lease has its annotation, as [Breaker.Learn] does. The first read of a term
// that finds none counts all volumes that are deletable now. An earlier leader may have stopped their deletion without
// being able to write to the Lease, and this replica may have seen them become deletable long ago.
func (e *Engine) LearnBrake(lease types.UID, on bool, now time.Time) (write, changed bool) {
	if e.Breaker.State == BrakeUnknown && !on {
		var due []types.UID
		e.PVs.Each(func(pv *volume.PV) {
			if e.Owns(pv) && e.Rules.due(*pv) {
				due = append(due, pv.UID)
			}
		})
		e.Breaker.recount(due, now)
	}
	return e.Breaker.Learn(lease, on, now)
}

// Item is the subject of a decision: the PV that has a name, or the end of a PV that had it.
type Item struct {
	Name string
	// Gone is the UID of the PV that is gone, empty for the existing PV.
	Gone types.UID
}

// Items returns the items with this name, the ends first.
func (e *Engine) Items(name string) []Item {
	gone := e.Tracker.Tombstones[name]
	items := make([]Item, 0, len(gone)+1)
	for _, uid := range gone {
		items = append(items, Item{name, uid})
	}
	return append(items, Item{Name: name})
}

// Moment holds the inputs of a decision that an engine does not know by itself.
type Moment struct {
	Now time.Time
	// Leading is true if this replica may act now, by its Lease.
	Leading bool
	// TookOver is true if this replica began to lead a moment ago, so that the previous leader's last writes may still
	// appear. It is for reports, and no decision depends on it.
	TookOver bool
	// Log is the in-flight log's state for the volume of the PV in question, and LogProblem names the unreadable part.
	Log        volume.InFlight
	LogProblem string
}

// Facts returns the facts about an item without a read from the API server.
func (e *Engine) Facts(item Item, at Moment) (f Facts, found bool) {
	if item.Gone != "" {
		return e.factsOfEnd(item.Gone, at)
	}
	pv, found := e.PVs.Get(item.Name)
	if !found || !e.Owns(pv) {
		return Facts{}, false
	}
	memory, known := e.Tracker.Of(*pv)
	if !known {
		// The cache is ahead of its events, and the pending event enqueues the PV.
		return Facts{}, false
	}
	f = e.facts(*pv, memory, at)
	f.Siblings = e.siblings(*pv, pv.Name)
	f.Attachments = f.count(e.Attached)
	return f, true
}

func (e *Engine) factsOfEnd(uid types.UID, at Moment) (f Facts, found bool) {
	memory, tombstone, known := e.Tracker.ofEnd(uid)
	if !known {
		return Facts{}, false
	}
	f = e.facts(tombstone.PV, memory, at)
	f.End = tombstone.End
	// The name may belong to another PV by now.
	f.Siblings = e.siblings(f.PV, "")
	f.Attachments = f.count(e.Attached)
	return f, true
}

func (e *Engine) facts(pv volume.PV, m Memory, at Moment) Facts {
	return Facts{
		Rules: e.Rules, Leading: at.Leading, PV: pv, Memory: m, Brake: e.Breaker.State, Log: at.Log,
		LogProblem: at.LogProblem,
	}
}

// count returns the number of VolumeAttachments of the volume, given the VolumeAttachments by PV name. Another PV of
// the volume may have the name of a PV that is gone.
func (f Facts) count(attached map[string]int) int {
	n := attached[f.PV.Name]
	for _, other := range f.Siblings {
		if other.Name != f.PV.Name {
			n += attached[other.Name]
		}
	}
	return n
}

// observe adds newer state from the watches and keeps the results of this session's live reads. It returns false if
// the watches showed the PV's end, because the work left after that is another item with the same record.
func (e *Engine) observe(s *Session, at Moment) (exists bool) {
	f := &s.Facts
	f.Brake, f.Leading = e.Breaker.State, at.Leading
	if at.Log != volume.InFlightUnknown {
		// A log that is closed while the program stops does not invalidate its last state.
		f.Log, f.LogProblem = at.Log, at.LogProblem
	}
	if f.End.Gone {
		e.observeEnd(s)
	} else if !e.observePV(s) {
		return false
	}
	f.Attachments = max(f.count(e.Attached), f.count(s.Listed))
	return true
}

// observePV updates the facts about an existing PV.
func (e *Engine) observePV(s *Session) (known bool) {
	f := &s.Facts
	f.Memory, known = e.Tracker.Of(f.PV)
	if f.SiblingsRead == (session.Read{}) || hasUnread(e.allSiblings(f.PV, f.PV.Name, s.Absent), f.Siblings) {
		f.Siblings, f.SiblingsRead = e.siblings(f.PV, f.PV.Name, s.Absent...), session.Read{}
	}
	return known
}

// observeEnd updates the facts about a PV that is gone.
func (e *Engine) observeEnd(s *Session) {
	f := &s.Facts
	f.Siblings = e.siblings(f.PV, "")
	memory, tombstone, known := e.Tracker.ofEnd(f.PV.UID)
	if !known {
		memory.Done, memory.History = f.Done, f.History
	}
	f.Memory = memory
	// An untracked PV concerns another leader now.
	f.End.Shared = f.End.Shared || tombstone.End.Shared || !known
}

// hasUnread reports whether the cache shows a PV of the volume that was not read live, or a later state than the read.
func hasUnread(cached, read []volume.PV) bool {
	versions := make(map[types.UID]string, len(read))
	for _, r := range read {
		versions[r.UID] = r.ResourceVersion
	}
	return slices.ContainsFunc(cached, func(now volume.PV) bool {
		version, known := versions[now.UID]
		return !known || session.Newer(now.ResourceVersion, version)
	})
}
