package reclaim

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const (
	// ContestAfter removals of the finalizer within ContestWithin, from a PV that is not terminating, are a loop and not
	// a mistake: the PV is contested.
	ContestAfter  = 3
	ContestWithin = 10 * time.Minute
	// ContestedPVs is the number of PVs that must become contested within ContestWithin before the driver is contested. A
	// loop on one PV concerns that PV, while a program that works on all PVs meets several at once. Single removals do
	// not count here, however many PVs they hit.
	ContestedPVs = 3
)

// Tracker records facts about tracked PVs that their objects do not show. The event handlers keep it, also on replicas
// that do not lead. It tracks a PV from its first observation to its end, and longer if its volume may be left
// ([Tombstone]), so that no lag of the cache drops a record too early.
type Tracker struct {
	Rules   Rules
	Records map[types.UID]*Record
	// Tombstones are the tracked PVs that are gone, by their former names.
	Tombstones map[string][]types.UID
	// Contested is true if the driver is contested, so that none of its PVs gets a finalizer.
	Contested bool
}

// Record is the record of one PV.
type Record struct {
	History History
	// Activity is nil for most PVs, which were only observed.
	Activity *Activity
}

// Activity records events of a PV beyond its observation.
type Activity struct {
	Done Done
	// Adding and Removing are the last writes of this process that add and remove a finalizer, so that their events are
	// not attributed to others. Two loops write, so one write of each kind may be under way. A write is nil if none was
	// sent, and Adding also once its event was observed.
	Adding, Removing *Expectation
	// Removals are the times when others removed the finalizer. ContestedAt is the time when they became too many, zero
	// if they did not.
	Removals    []time.Time
	ContestedAt time.Time
	// ClaimEnded is the UID of a claim of the PV whose end the watch of claims has shown, at ClaimEndedAt. It is empty
	// for none, or once the watch has shown a claim since that names the PV.
	ClaimEnded   types.UID
	ClaimEndedAt time.Time
	// Tombstone is the PV's end, nil while it exists.
	Tombstone *Tombstone
}

// Expectation is a write of this process to a PV's finalizers.
type Expectation struct {
	// Version is the resourceVersion that the write produced, empty until it is known.
	Version string
	// ProtectedAt is the version of the last event that showed the PV protected before Version was known.
	ProtectedAt string
}

func NewTracker(rules Rules) Tracker {
	return Tracker{Rules: rules, Records: map[types.UID]*Record{}, Tombstones: map[string][]types.UID{}}
}

// read returns a copy of the activity, the zero value for none.
func (r *Record) read() Activity {
	if r.Activity == nil {
		return Activity{}
	}
	return *r.Activity
}

// edit returns the activity for changes.
func (r *Record) edit() *Activity {
	if r.Activity == nil {
		r.Activity = &Activity{}
	}
	return r.Activity
}

// endContest forgets the removals once another program or a person has added the finalizer.
func (r *Record) endContest() {
	if r.Activity != nil {
		r.Activity.Removals, r.Activity.ContestedAt = nil, time.Time{}
	}
}

// after reports whether the write is known to have produced a later version than this one.
func (x *Expectation) after(version string) bool {
	return x != nil && x.Version != "" && session.Newer(x.Version, version)
}

// Of returns the memory of an existing PV, as of the version that was read. known is false before its first
// observation and after its end.
func (t *Tracker) Of(pv volume.PV) (_ Memory, known bool) {
	r, known := t.Records[pv.UID]
	if !known || r.read().Tombstone != nil {
		return Memory{Contested: t.Contested, DriverContested: t.Contested}, false
	}
	activity := r.read()
	done := activity.Done
	done.Protected = activity.Adding.after(pv.ResourceVersion)
	done.Removed = activity.Removing.after(pv.ResourceVersion)
	if done.Protected && done.Removed {
		done.Protected = activity.Adding.after(activity.Removing.Version)
		done.Removed = !done.Protected
	}
	m := t.memory(r.History, activity, done)
	if pv.Claimed() && activity.ClaimEnded == pv.Claim.UID {
		m.ClaimEndedAt = activity.ClaimEndedAt
	}
	return m, true
}

func (t *Tracker) memory(history History, activity Activity, done Done) Memory {
	return Memory{
		Done: done, History: history, Contested: t.Contested || !activity.ContestedAt.IsZero(), DriverContested: t.Contested,
	}
}

// claimShown records that the watch of claims shows a claim that names a PV.
func (t *Tracker) claimShown(pv types.UID) {
	if r, known := t.Records[pv]; known && r.Activity != nil {
		r.Activity.ClaimEnded, r.Activity.ClaimEndedAt = "", time.Time{}
	}
}

// claimEnded records that the watch of claims showed the end of the PV's claim.
func (t *Tracker) claimEnded(pv, claim types.UID, now time.Time) {
	if r, known := t.Records[pv]; known {
		activity := r.edit()
		activity.ClaimEnded, activity.ClaimEndedAt = claim, now
	}
}

// Tracks reports whether a PV was observed and its end, if any, is not settled.
func (t *Tracker) Tracks(uid types.UID) bool {
	_, known := t.Records[uid]
	return known
}

// done changes and returns the record of work done for a PV, which is not kept for an untracked PV.
func (t *Tracker) done(uid types.UID, change func(*Done)) Done {
	r, known := t.Records[uid]
	if !known {
		r = &Record{}
	}
	change(&r.edit().Done)
	return r.Activity.Done
}

// see records that an event shows a PV. One that only a list lacked, such as that of a proxy, has not ended.
func (t *Tracker) see(pv *volume.PV) *Record {
	r, known := t.Records[pv.UID]
	if !known {
		r = &Record{}
		t.Records[pv.UID] = r
	}
	if r.read().Tombstone != nil {
		r.Activity.Tombstone = nil
		t.unbury(pv)
	}
	h := &r.History
	h.SeenAlive = h.SeenAlive || !pv.Terminating
	h.SeenReleased = h.SeenReleased || (!pv.Terminating && pv.Deletable())
	if !t.Rules.Protects(*pv) {
		return r
	}
	switch removing := r.read().Removing; {
	case removing == nil:
		h.SeenProtected = true
	case removing.Version == "":
		// Our write that removes it is under way: its answer shows which came first.
		removing.ProtectedAt = pv.ResourceVersion
	default:
		h.SeenProtected = h.SeenProtected || session.Newer(pv.ResourceVersion, removing.Version)
	}
	return r
}

// changed records a PV's change, and reports in turned that the driver became contested or ceased to be, which
// concerns all PVs.
func (t *Tracker) changed(before, pv *volume.PV, now time.Time) (turned bool) {
	r := t.see(pv)
	was, is := t.Rules.Protects(*before), t.Rules.Protects(*pv)
	switch {
	case !was && is:
		return t.gained(r)
	case was && !is:
		return t.lost(r, before, pv, now)
	}
	return false
}

// gained records that the finalizer was added, which ends the PV's contest if others added it, or the contest of all
// PVs if the driver is contested.
func (t *Tracker) gained(r *Record) (turned bool) {
	switch {
	case r.read().Adding != nil:
		r.Activity.Adding = nil
		return false
	case !t.Contested:
		r.endContest()
		return false
	}
	t.Contested = false
	for _, other := range t.Records {
		other.endContest()
	}
	return true
}

// lost records that the finalizer was removed.
func (t *Tracker) lost(r *Record, before, pv *volume.PV, now time.Time) (turned bool) {
	activity := r.read()
	removing := activity.Removing
	byUs := removing != nil && (removing.Version == "" || !session.Newer(before.ResourceVersion, removing.Version))
	switch {
	case !t.Rules.guards(*pv) || activity.Done.VolumeDeleted || byUs || t.Contested || !activity.ContestedAt.IsZero():
		return false
	case pv.Terminating:
		r.History.Stripped = true
		return false
	}
	recent := slices.DeleteFunc(activity.Removals, func(at time.Time) bool { return now.Sub(at) > ContestWithin })
	r.edit().Removals = append(recent, now)
	if len(r.Activity.Removals) < ContestAfter {
		return false
	}
	r.Activity.ContestedAt = now
	t.Contested = t.contestedSince(now.Add(-ContestWithin)) >= ContestedPVs
	return t.Contested
}

// contestedSince counts the PVs that became contested after a time.
func (t *Tracker) contestedSince(since time.Time) (pvs int) {
	for _, r := range t.Records {
		if r.read().ContestedAt.After(since) {
			pvs++
		}
	}
	return pvs
}

// expect records that a write to a PV's finalizers is about to be sent.
func (t *Tracker) expect(a Ask) {
	r, known := t.Records[a.PV.UID]
	switch {
	case !known || !a.writesFinalizers():
	case a.protects():
		r.edit().Adding = &Expectation{}
	default:
		r.edit().Removing = &Expectation{}
	}
}

// Answered records the outcome of the write: its resourceVersion, or that it was refused. A write without an answer
// may have happened. If it protects, it still counts as ours; if it removes protection it does not, because it would
// permit a deletion.
func (t *Tracker) Answered(a Ask, reply Reply) {
	r, known := t.Records[a.PV.UID]
	if !known || !a.writesFinalizers() {
		return
	}
	adding, removing := r.read().Adding, r.read().Removing
	ok := reply.Outcome == OK
	switch {
	case a.protects() && adding == nil: // its event was observed
	case a.protects() && ok:
		adding.Version = reply.Version
	case a.protects() && reply.Outcome.refused():
		r.Activity.Adding = nil
	case a.protects():
	case removing == nil: // the record was dropped, and this is a new one
	case ok:
		r.History.SeenProtected = removing.ProtectedAt != "" && session.Newer(removing.ProtectedAt, reply.Version)
		removing.Version = reply.Version
	default:
		r.Activity.Removing = nil
	}
}

// Tombstone is the end of a PV whose volume may be left. The PV's Record is kept with it, so that a late answer still
// finds it.
type Tombstone struct {
	PV  volume.PV
	End End
}

// bury records that a PV is gone, and keeps tracking it until [Tracker.Forget] if its volume may be left (left) and is
// not known to be deleted.
func (t *Tracker) bury(pv *volume.PV, end End, left bool) (_ History, tracked bool) {
	r, known := t.Records[pv.UID]
	if !known {
		r = &Record{}
	}
	if !left || r.read().Done.VolumeDeleted {
		t.Forget(pv)
		return r.History, false
	}
	if r.read().Tombstone == nil {
		t.Tombstones[pv.Name] = append(t.Tombstones[pv.Name], pv.UID)
	}
	r.edit().Tombstone = &Tombstone{*pv, end}
	t.Records[pv.UID] = r
	return r.History, true
}

// Forget drops the record of a PV that is gone.
func (t *Tracker) Forget(pv *volume.PV) {
	delete(t.Records, pv.UID)
	t.unbury(pv)
}

func (t *Tracker) unbury(pv *volume.PV) {
	left := slices.DeleteFunc(t.Tombstones[pv.Name], func(uid types.UID) bool { return uid == pv.UID })
	if len(left) == 0 {
		delete(t.Tombstones, pv.Name)
		return
	}
	t.Tombstones[pv.Name] = left
}

// ofEnd returns the record of a PV that is gone. known is false for a PV that exists or has no record.
func (t *Tracker) ofEnd(uid types.UID) (_ Memory, _ Tombstone, known bool) {
	r, known := t.Records[uid]
	if !known || r.read().Tombstone == nil {
		return Memory{Contested: t.Contested, DriverContested: t.Contested}, Tombstone{}, false
	}
	return t.memory(r.History, *r.Activity, r.Activity.Done), *r.Activity.Tombstone, true
}

// share records that another PV names the volume of this key now, and returns the names of the gone PVs that this
// concerns.
func (t *Tracker) share(handle string) (names []string) {
	for name, uids := range t.Tombstones {
		for _, uid := range uids {
			if tombstone := t.Records[uid].Activity.Tombstone; volume.HandleKey(tombstone.PV.Handle) == handle {
				tombstone.End.Shared = true
				names = append(names, name)
			}
		}
	}
	return names
}

// ForgetTombstones drops the records of all PVs that are gone, when another replica takes over.
func (t *Tracker) ForgetTombstones() {
	for _, uids := range t.Tombstones {
		for _, uid := range uids {
			delete(t.Records, uid)
		}
	}
	clear(t.Tombstones)
}
