package reclaim

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

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
	// Deleting are the handles whose DeleteVolume is not answered yet: it is never called twice at once for one volume.
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

// handle returns the volume handle under which a PV counts as a sibling, empty for another driver's volume. PVs that
// name our volumes count even if the driver does not own them.
func (e *Engine) handle(pv *volume.PV) string {
	if pv.Driver != e.Rules.Driver {
		return ""
	}
	return pv.Handle
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

// Place records the handle that a PV in the cache has, and reports in freed that the PV has ceased to keep the volume.
func (e *Engine) Place(pv *volume.PV) (freed bool) {
	return e.Handles.Set(e.handle(pv), pv.Name, func(name string) bool {
		known, found := e.PVs.Get(name)
		return found && !known.Deletable()
	})
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
	history, left := e.Tracker.bury(last, End{Gone: true, Final: final, Shared: e.Handles.Shared(e.handle(last), "")}, left)
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

// placeAgain records the handle of a PV that has changed, and returns the PVs of the volume that are due because of it.
func (e *Engine) placeAgain(before, pv *volume.PV) (due []string) {
	moved := e.handle(before) != e.handle(pv)
	if moved {
		due = e.displace(before)
	}
	freed := e.Place(pv)
	switch {
	case moved:
	case freed, before.TwinOf != "", pv.TwinOf != "":
		due = e.due(pv, all)
	case before.Claim != pv.Claim:
		due = e.due(pv, one)
	}
	return due
}

// displace removes a PV from its handle, and returns the PVs of the volume that are due because of it.
func (e *Engine) displace(last *volume.PV) (due []string) {
	switch freed := e.Handles.Remove(e.handle(last), last.Name); {
	case freed, last.TwinOf != "":
		return e.due(last, all)
	case e.Attached[last.Name] > 0:
		return e.detached(last)
	}
	return e.due(last, one)
}

// detached returns the other PVs of a PV's volume that are due because its last attachment may have ended.
func (e *Engine) detached(pv *volume.PV) []string {
	due := e.due(pv, all)
	if len(due) > 0 && slices.ContainsFunc(e.Handles.Names(e.handle(pv)), e.isAttached) {
		return nil
	}
	return due
}

func (e *Engine) isAttached(pv string) bool { return e.Attached[pv] > 0 }

// one and all limit the PVs that due returns. A PV makes the others wait for a time if its claim alone keeps the volume.
// Once it is gone, one of them continues at once, and its end wakes the next.
const all, one = 0, 1

// due returns the other PVs of a PV's volume that are to be deleted with it, up to a limit, and none while one keeps the
// volume: that one wakes them when it ceases to. A twin keeps it from all PVs but its original.
func (e *Engine) due(than *volume.PV, limit int) (names []string) {
	handle := e.handle(than)
	if keepers := e.Handles.Keepers(handle); len(keepers) > 1 || len(keepers) == 1 && !e.isTwin(keepers[0]) {
		return nil
	}
	for _, name := range e.Handles.Names(handle) {
		if pv, found := e.PVs.Get(name); found && name != than.Name && e.Owns(pv) && e.Rules.due(*pv) {
			if names = append(names, name); len(names) == limit {
				break
			}
		}
	}
	return names
}

func (e *Engine) isTwin(name string) bool {
	pv, found := e.PVs.Get(name)
	return found && pv.TwinOf != ""
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
	// Log is the in-flight log's state for the volume of the PV in question, and LogProblem names the unreadable part.
	Log        LogState
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
		Rules: e.Rules, Leading: at.Leading, PV: pv, Done: m.Done, History: m.History, Contested: m.Contested,
		DriverContested: m.DriverContested, ClaimEndedAt: m.ClaimEndedAt, Brake: e.Breaker.State,
		Log: at.Log, LogProblem: at.LogProblem,
	}
}

// someSiblings is the number of other PVs of a volume that a decision gets if one is enough.
const someSiblings = 3

// siblings returns other PVs of the volume from the cache, sorted by name, except one of this name and those with these
// UIDs: all of them, or only some that keep the volume, if any does.
func (e *Engine) siblings(pv volume.PV, except string, absent ...types.UID) []volume.PV {
	if kept := e.keepers(pv, except, absent); len(kept) > 0 {
		return kept
	}
	return e.allSiblings(pv, except, absent)
}

func (e *Engine) keepers(pv volume.PV, except string, absent []types.UID) []volume.PV {
	return e.cached(e.Handles.Keepers(e.handle(&pv)), someSiblings, func(other *volume.PV) bool {
		return other.Name != except && !slices.Contains(absent, other.UID) && keepsFrom(*other, pv)
	})
}

func (e *Engine) allSiblings(pv volume.PV, except string, absent []types.UID) []volume.PV {
	if !e.Handles.Shared(e.handle(&pv), except) {
		return nil
	}
	return e.cached(e.Handles.Names(e.handle(&pv)), all, func(other *volume.PV) bool {
		return other.Name != except && !slices.Contains(absent, other.UID)
	})
}

// cached returns the PVs of these names that are in the cache and wanted, up to a limit.
func (e *Engine) cached(names []string, limit int, wanted func(*volume.PV) bool) (pvs []volume.PV) {
	for _, name := range names {
		if pv, found := e.PVs.Get(name); found && wanted(pv) {
			if pvs = append(pvs, *pv); len(pvs) == limit {
				break
			}
		}
	}
	return pvs
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
