package provision

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

// Decide returns the next step for one volume name, and keeps the entry, the volume and the PersistentVolume while a
// fact is unknown. It is a pure function: a step adds to the facts, and Decide is called again with them.
//
// now is compared with the times of live reads and unanswered calls. quiet is the longest time that an unanswered call
// can take to arrive.
func Decide(f Facts, now time.Time, quiet time.Duration) Decision {
	switch {
	case !f.MayAct:
		return wait(ReasonNotLeading)
	case f.Log == LogUnknown:
		return wait(ReasonLogNotRead)
	case f.Log == LogChanging:
		return wait(ReasonLogChanging)
	case f.Log == LogOpen:
		return finish(f, now, quiet)
	}
	return begin(f, now)
}

// begin handles a name without an open entry; the driver is not called before an entry is open.
func begin(f Facts, now time.Time) Decision {
	c := f.Claim
	switch {
	case c.UID == "":
		return done(ReasonNotOurs)
	case !c.Ours:
		return done(ReasonNotOurs)
	case c.over(), c.Renamed:
		return done(ReasonNotNeeded)
	case c.Node == NodeElsewhere:
		return done(ReasonOtherNode)
	case f.PV.stored():
		return done(ReasonStored)
	case f.PV.Exists:
		return timed(ReasonNameTaken)
	}
	return open(f, now)
}

// open handles a name that is to get an entry. If an earlier entry of the name may have been closed, no cache shows
// whether its PersistentVolume has come and gone together with the claim, and an administrator may keep the volume.
// The claim is read last, because the PersistentVolume is deleted after the claim.
func open(f Facts, now time.Time) Decision {
	c := f.Claim
	switch {
	case f.Log == LogOthers:
		return timed(ReasonNameTaken)
	case f.Log == LogUnreadable:
		return timed(ReasonLogUnreadable)
	case f.Log == LogFull:
		return timed(ReasonLogFull)
	case !f.Wanted:
		return wait(ReasonNotWanted)
	case !f.Composed:
		return step(BuildRequest, ReasonProvision)
	case !f.Prepared:
		return step(Prepare, ReasonProvision)
	case (!f.First || c.Node != NodeAny) && !f.PV.Known:
		// Another node that was selected before may have stored the PersistentVolume, which no cache shows here.
		return step(ReadPV, ReasonProvision)
	case !f.First && !c.Fresh(now):
		return step(ReadClaim, ReasonProvision)
	}
	return step(OpenEntry, ReasonProvision)
}

// finish handles an open entry. A request that may have been sent is repeated until its outcome is known, even if the
// claim is gone, or until its PersistentVolume shows the outcome. An operator may have settled the entry since an
// earlier session, and done away with the volume.
func finish(f Facts, now time.Time, quiet time.Duration) Decision {
	r := f.Record
	switch {
	case !f.Confirmed:
		return step(ConfirmEntry, ReasonFinish)
	case r.Volume == VolumeMade && r.Unfit:
		return discard(f, now, quiet)
	case r.Volume == VolumeMade:
		return store(f, now, quiet)
	case r.nothingMade():
		return step(CloseEntry, ReasonNothingMade)
	case !r.Begun() && !f.Claim.needsVolume():
		return step(CloseEntry, ReasonNotBegun)
	case r.Discarding && !r.Quiet(now, quiet):
		// An unanswered DeleteVolume could delete the volume that CreateVolume creates now.
		return timed(ReasonNotQuiet)
	case f.storedBefore():
		return shown(f, now, quiet)
	case f.Wanted && !f.SecondFailed && r.takesNode(f.Claim.SelectedNode):
		return addRequest(f)
	case r.Begun():
		return send(f, now, ReasonFinish)
	}
	return send(f, now, ReasonProvision)
}

// shown handles an entry whose volume has its PersistentVolume, so that pods may use it. CreateVolume is not repeated,
// because not every driver is idempotent for such a volume: ceph-csi gives an encrypted image a new key, and drivers
// that clone by copying files copy them again.
func shown(f Facts, now time.Time, quiet time.Duration) Decision {
	switch {
	case !f.Record.Quiet(now, quiet):
		return timed(ReasonNotQuiet)
	case !f.PV.Fresh(now):
		return step(ReadPV, ReasonFinish)
	}
	return step(CloseEntry, ReasonStored)
}

// send calls the driver once the log has its version, because a later process must know whether several versions were
// called. Before a repetition, a live read shows that there is no PersistentVolume whose volume pods may use.
func send(f Facts, now time.Time, why Reason) Decision {
	switch r := f.Record; {
	case !f.VersionNoted:
		return step(NoteVersion, why)
	case r.hasOneVolume() && r.Requests[r.Next].Sent && !f.PV.Fresh(now):
		return step(ReadPV, why)
	}
	return step(CreateVolume, why)
}

// addRequest adds a request for the node that is selected now, or repeats the open one if that fails.
func addRequest(f Facts) Decision {
	switch {
	case !f.Composed:
		return step(BuildRequest, ReasonFinish)
	case !f.Prepared:
		return step(Prepare, ReasonFinish)
	}
	return step(OpenEntry, ReasonFinish)
}

// Adds reports whether a failure of this step only leaves an open entry without a second request.
func (f Facts) Adds(a Action) bool {
	return f.Log == LogOpen && (a == BuildRequest || a == Prepare || a == OpenEntry)
}

// movesAfter is the number of quiet periods for which a request in doubt is repeated before another node is selected. A
// driver whose volume names are unique only within a zone would make a second volume for a node in another zone. Given
// the time, it answers with the first one.
const movesAfter = 5

// Reschedules reports whether another node is to be selected for the claim after CreateVolume did not name a volume:
// the driver has no room on this node, or the node is gone, so that no pod returns to it. f are the facts after the
// answer, and age is the age of the entry.
func (f Facts) Reschedules(asked Request, class errclass.Class, nodeGone bool, age, quiet time.Duration) bool {
	settled := f.Record.Requests[f.Record.By].Settled
	return f.Claim.needsVolume() && asked.MayReschedule && asked.Node != "" && f.Claim.SelectedNode == asked.Node &&
		class != errclass.Done && (class == errclass.Exhausted || nodeGone) && (settled || age >= movesAfter*quiet)
}

// store handles a volume that the driver named. A PersistentVolume that names it settles the entry once no late call
// can change that. A watch cache is no proof, because it may show a PersistentVolume of the same name and handle that
// is gone.
func store(f Facts, now time.Time, quiet time.Duration) Decision {
	r := f.Record
	switch {
	case f.named() && !r.Quiet(now, quiet):
		return timed(ReasonNotQuiet)
	case f.named() && f.namedLive(now):
		return step(CloseEntry, ReasonStored)
	case f.PV.Names(r.Handle):
		return step(ReadPV, ReasonFinish)
	case f.apart():
		return step(StoreApart, ReasonFinish)
	case f.PV.Exists:
		return timed(ReasonNameTaken)
	}
	return step(StorePV, ReasonProvision)
}

// discard handles a volume that differs from the request and gets no PersistentVolume. It is kept while another
// PersistentVolume names it, or another claim may have the same volume name. The PersistentVolume with its name settles
// the entry as in store: an earlier process may have stored it, and the driver may answer a repeated call incompletely.
func discard(f Facts, now time.Time, quiet time.Duration) Decision {
	handle := f.Record.Handle
	switch {
	case f.mayBeStored() || f.Apart.Names(handle):
		return timed(ReasonHasAnother)
	case f.PV.Names(handle) && !f.Record.Quiet(now, quiet):
		return timed(ReasonNotQuiet)
	case f.PV.Names(handle) && f.PV.Fresh(now):
		return step(CloseEntry, ReasonStored)
	case f.PV.Names(handle):
		return step(ReadPV, ReasonFinish)
	case f.Shared || !f.Claim.namedAlone():
		return timed(ReasonHasAnother)
	case !f.Record.Discarding:
		return step(MarkDiscarding, ReasonDiscard)
	case !f.PV.Fresh(now):
		return step(ReadPV, ReasonDiscard)
	}
	return step(DeleteVolume, ReasonDiscard)
}
