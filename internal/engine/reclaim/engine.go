package reclaim

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// PVs is what the watch cache of PVs shows.
type PVs interface {
	Get(name string) (*volume.PV, bool)
	Each(visit func(*volume.PV))
}

// Engine is all that one process has seen and records about the PVs of its driver. It is not safe for concurrent
// use: its caller holds a lock, also while PVs is read, so that a PV and its record are read as one.
type Engine struct {
	Rules Rules
	// DryRun: sessions end before the first step that writes.
	DryRun bool
	// PVs is the watch cache. It may be ahead of the events that the engine has taken, never behind them.
	PVs     PVs
	Tracker Tracker
	Handles Handles
	// Attached counts the VolumeAttachments by the name of their PV.
	Attached map[string]int
	// Deleting are the handles whose DeleteVolume is not answered yet: for one volume it is never called twice at once.
	Deleting map[string]struct{}
	Breaker  Breaker
	// Leading: this replica acts, so that the end of a PV concerns it.
	Leading bool
}

// New returns an Engine that has seen nothing.
func New(rules Rules, breaker Breaker, pvs PVs) *Engine {
	return &Engine{
		Rules: rules, PVs: pvs, Tracker: NewTracker(rules), Handles: NewHandles(), Attached: map[string]int{},
		Deleting: map[string]struct{}{}, Breaker: breaker,
	}
}

// Effects is what follows from an event.
type Effects struct {
	// Keys are the names of the PVs to decide on.
	Keys []string
	// Due: the event showed how the PV's volume became deletable.
	Due bool
	// Forgotten is the UID of a PV that is gone and for which nothing is left to do, empty for none.
	Forgotten types.UID
	// Tripped: the brake turned on, and its Lease needs the annotation.
	Tripped bool
}

// handle returns the volume that a PV keeps from being deleted under another PV, empty if it is none of this driver's.
// PVs that name our volumes count even when we do not own them.
func (e *Engine) handle(pv *volume.PV) string {
	if pv.Driver != e.Rules.Driver {
		return ""
	}
	return pv.Handle
}

// Owns reports whether the driver is responsible for the PV's volume.
func (e *Engine) Owns(pv *volume.PV) bool { return pv.OwnedBy(e.Rules.Driver) }

// PVAdded takes the event that shows a PV for the first time.
func (e *Engine) PVAdded(pv *volume.PV, now time.Time) (fx Effects) {
	if handle := e.handle(pv); handle != "" {
		e.Handles.Add(handle, pv.Name)
		fx.Keys = e.Tracker.share(handle)
	}
	if e.Owns(pv) {
		e.Tracker.see(pv)
		if e.Rules.due(*pv) {
			fx.Tripped = e.Breaker.Count(pv.UID, now)
		}
	}
	fx.Keys = e.withSiblings(fx.Keys, pv)
	return fx
}

// PVUpdated takes the event that shows a PV's change. before may have another UID: then that PV is gone, and its last
// state is not known.
func (e *Engine) PVUpdated(before, pv *volume.PV, now time.Time) (fx Effects) {
	if before.UID != pv.UID {
		ended, fx := e.PVDeleted(before, false, now), e.PVAdded(pv, now)
		fx.Keys, fx.Forgotten = append(ended.Keys, fx.Keys...), ended.Forgotten
		return fx
	}
	if was, is := e.handle(before), e.handle(pv); was != is {
		e.removeHandle(was, before.Name)
		if is != "" {
			e.Handles.Add(is, pv.Name)
		}
	}
	if e.Owns(pv) {
		if e.Tracker.changed(before, pv, now) {
			fx.Keys = e.Names()
		}
		if e.Rules.due(*pv) && !e.Rules.due(*before) {
			fx.Due, fx.Tripped = true, e.Breaker.Count(pv.UID, now)
		}
	}
	fx.Keys = e.withSiblings(fx.Keys, pv)
	return fx
}

// PVDeleted takes the event that shows a PV's end. final: last is its last state.
func (e *Engine) PVDeleted(last *volume.PV, final bool, now time.Time) (fx Effects) {
	handle := e.handle(last)
	e.removeHandle(handle, last.Name)
	left := e.Owns(last) && e.Leading && last.Policy == volume.PolicyDelete && last.Claimed()
	history, left := e.Tracker.bury(last, End{Gone: true, Final: final, Shared: len(e.Handles.Others(handle, "")) > 0},
		left)
	switch {
	case !left:
		fx.Forgotten = last.UID
	case e.Rules.ReclaimUnprotected && final && history.SeenAlive && !history.SeenProtected && last.Deletable() &&
		!last.Held:
		fx.Tripped = e.Breaker.Count(last.UID, now)
	}
	fx.Keys = e.withSiblings(nil, last)
	return fx
}

// AttachmentAdded takes the event that shows a VolumeAttachment of the PV with this name.
func (e *Engine) AttachmentAdded(pv string) {
	if pv != "" {
		e.Attached[pv]++
	}
}

// AttachmentDeleted takes the event that shows the end of a VolumeAttachment.
func (e *Engine) AttachmentDeleted(pv string) (fx Effects) {
	if e.Attached[pv]--; e.Attached[pv] <= 0 {
		delete(e.Attached, pv)
	}
	if known, found := e.PVs.Get(pv); found {
		fx.Keys = e.withSiblings(nil, known)
	}
	if len(e.Tracker.Tombstones[pv]) > 0 {
		fx.Keys = append(fx.Keys, pv)
	}
	return fx
}

// ClaimShown takes an event of the watch of claims, or a list, that shows a claim whose spec.volumeName is pv.
func (e *Engine) ClaimShown(pv string) {
	if known, found := e.PVs.Get(pv); found {
		e.Tracker.claimShown(known.UID)
	}
}

// ClaimDeleted takes the event of that watch that shows the end of a claim whose spec.volumeName was pv. A list that
// does not have the claim is none: it may be older than the claim. It counts for the PV that has the name now, not for
// one that a backup brings back later and that names the claim too: whether its claim comes back has to be read.
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

func (e *Engine) removeHandle(handle, pv string) {
	if handle != "" {
		e.Handles.Remove(handle, pv)
	}
}

// withSiblings adds a PV and those that may wait for it because they name the same volume.
func (e *Engine) withSiblings(keys []string, pv *volume.PV) []string {
	if e.Owns(pv) {
		keys = append(keys, pv.Name)
	}
	return append(keys, e.Handles.Others(e.handle(pv), pv.Name)...)
}

// Names returns the names under which there may be something to decide on.
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

// Lead begins and ends the time in which this replica acts.
func (e *Engine) Lead(leading bool) {
	if !leading {
		e.Tracker.ForgetTombstones()
	}
	e.Breaker.Lead(leading)
	e.Leading = leading
}

// Item is one thing to decide on under a name: the PV that has it, or the end of one that had it.
type Item struct {
	Name string
	// Gone is the UID of the PV that is gone, empty for the one that exists.
	Gone types.UID
}

// Items returns what there is to decide on under a name, the ends first.
func (e *Engine) Items(name string) []Item {
	gone := e.Tracker.Tombstones[name]
	items := make([]Item, 0, len(gone)+1)
	for _, uid := range gone {
		items = append(items, Item{name, uid})
	}
	return append(items, Item{Name: name})
}

// Moment is what an engine does not know by itself, at the time of a decision.
type Moment struct {
	Now time.Time
	// Leading: this replica may act now, by its Lease.
	Leading bool
	// Log is what the in-flight log has for the volume of the PV in question, and LogProblem what cannot be read.
	Log        LogState
	LogProblem string
}

// Facts returns what is known about an item without a read from the API server.
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
		// The cache is a moment ahead of its events; the one that is due enqueues the PV.
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
		Rules: e.Rules, Leading: at.Leading, PV: pv, Done: m.Done, History: m.History, Contested: m.Contested,
		DriverContested: m.DriverContested, ClaimEndedAt: m.ClaimEndedAt, Brake: e.Breaker.State,
		Log: at.Log, LogProblem: at.LogProblem,
	}
}

// siblings returns the other PVs of the volume as the cache shows them, sorted by name.
func (e *Engine) siblings(pv volume.PV, except string) []volume.PV {
	names := e.Handles.Others(e.handle(&pv), except)
	if len(names) == 0 {
		return nil
	}
	siblings := make([]volume.PV, 0, len(names))
	for _, name := range names {
		if other, found := e.PVs.Get(name); found {
			siblings = append(siblings, *other)
		}
	}
	slices.SortFunc(siblings, func(a, b volume.PV) int { return cmp.Compare(a.Name, b.Name) })
	return siblings
}

// count counts the VolumeAttachments of the volume, of those that there are by the name of their PV. Another PV of the
// volume may have the name of one that is gone.
func (f Facts) count(attached map[string]int) int {
	n := attached[f.PV.Name]
	for _, other := range f.Siblings {
		if other.Name != f.PV.Name {
			n += attached[other.Name]
		}
	}
	return n
}
