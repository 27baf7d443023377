package reclaim

import "time"

// Action is one step. The zero value is to do nothing.
type Action uint8

const (
	// Wait: nothing is to be done now.
	Wait Action = iota
	// AddFinalizer puts our finalizer on the PV.
	AddFinalizer
	// DropFinalizer takes our finalizers off the PV, which gives up its protection: only
	// if it still is as it was read.
	DropFinalizer
	// CatchUpAttachments makes sure that no VolumeAttachment is overlooked.
	CatchUpAttachments
	// ReadSecrets reads the Secret for the deletion.
	ReadSecrets
	// ReadClaim reads the claim from the API server.
	ReadClaim
	// ReadSiblings reads the other PVs of the handle from the API server.
	ReadSiblings
	// ReadPV reads the PV from the API server.
	ReadPV
	// DeleteVolume has the storage system delete the volume.
	DeleteVolume
	// DeletePV asks the API server to delete the PV.
	DeletePV
	// ReleasePV takes our finalizers off a PV whose volume is deleted, whatever else
	// changed on it.
	ReleasePV
)

// String returns the action as used in logs.
func (a Action) String() string {
	switch a {
	case Wait:
		return "Wait"
	case AddFinalizer:
		return "AddFinalizer"
	case DropFinalizer:
		return "DropFinalizer"
	case CatchUpAttachments:
		return "CatchUpAttachments"
	case ReadSecrets:
		return "ReadSecrets"
	case ReadClaim:
		return "ReadClaim"
	case ReadSiblings:
		return "ReadSiblings"
	case ReadPV:
		return "ReadPV"
	case DeleteVolume:
		return "DeleteVolume"
	case DeletePV:
		return "DeletePV"
	case ReleasePV:
		return "ReleasePV"
	}
	return "Unknown"
}

// Decision is the next step for one PV, and why.
type Decision struct {
	Action Action
	Reason Reason
	// Timed: no event is sure to end this wait, so it is looked at again by the clock.
	Timed bool
}

func wait(why Reason) Decision           { return Decision{Action: Wait, Reason: why} }
func step(a Action, why Reason) Decision { return Decision{Action: a, Reason: why} }

// Decide says what to do next about one PV. It is a pure function: carrying out a step
// adds to what is known, and Decide is asked again with that. It keeps the volume whenever
// a fact is unknown.
//
// now is the time by which reads are judged too old.
func Decide(s Snapshot, now time.Time) Decision {
	pv := s.PV
	switch {
	case !pv.ownedBy(s.Driver):
		return wait(ReasonNotOurs)
	case s.Done.VolumeDeleted:
		return letGo(s)
	case pv.Policy == PolicyUnknown:
		return wait(ReasonPolicyUnknown)
	case pv.Policy != PolicyDelete:
		return keep(pv)
	case !pv.claimed():
		return unclaimed(pv)
	case pv.Phase != PhaseBound && !pv.released():
		return wait(ReasonNotYetBound)
	case !pv.Protected() && pv.Terminating:
		return wait(ReasonDeletionUnprotected)
	case !pv.Protected():
		return step(AddFinalizer, ReasonProtect)
	case pv.Phase == PhaseBound && pv.Terminating:
		return wait(ReasonTerminatingBound)
	case pv.Phase == PhaseBound:
		return wait(ReasonBound)
	}
	return reclaim(s, now)
}

// letGo does what remains once the volume is deleted. The PV is deleted only now, so that
// up to here an administrator could rescue a volume by turning its policy.
func letGo(s Snapshot) Decision {
	switch {
	case !s.PV.Terminating && !s.Done.PVDeleted:
		return step(DeletePV, ReasonVolumeDeleted)
	case s.PV.Protected() && !s.Done.Released:
		return step(ReleasePV, ReasonVolumeDeleted)
	}
	return wait(ReasonVolumeGone)
}

// keep handles a PV whose policy is to keep its volume: our finalizer has no business
// there, save on one that was deleted while in use. Without it that PV would go at once,
// and a policy turned back to Delete would come too late.
func keep(pv PV) Decision {
	switch {
	case !pv.Protected():
		return wait(ReasonPolicyKeepsVolume)
	case pv.Terminating && pv.Phase == PhaseBound:
		return wait(ReasonRetainBound)
	}
	return step(DropFinalizer, ReasonPolicyKeepsVolume)
}

// unclaimed handles a PV without claim. One that is not terminating may be claimed at any
// time, so a finalizer that is there already stays.
func unclaimed(pv PV) Decision {
	if pv.Terminating && pv.Protected() {
		return step(DropFinalizer, ReasonNotClaimed)
	}
	return wait(ReasonNotClaimed)
}

// reclaim is the order in which one volume is deleted. What costs nothing to know comes
// first; the live reads come last and close together, the PV's after all others, so that
// the time in which something can change unseen is as short as can be.
func reclaim(s Snapshot, now time.Time) Decision {
	pv := s.PV
	switch {
	case pv.Driver != s.Driver || pv.Handle == "":
		return wait(ReasonHandleUnknown)
	case s.Attachments > 0:
		// The watch tells of the end of an attachment that it has seen; of one that only
		// a list showed it may not.
		return Decision{Action: Wait, Reason: ReasonAttached, Timed: s.AttachmentsCurrent}
	case pv.WasAttached && !s.AttachmentsCurrent:
		return step(CatchUpAttachments, ReasonReclaim)
	case s.shared():
		return wait(ReasonSharedHandle)
	case !s.SecretsRead:
		return step(ReadSecrets, ReasonReclaim)
	}
	switch s.claimState(now) {
	case claimExists:
		return Decision{Action: Wait, Reason: ReasonClaimAlive, Timed: true}
	case claimUnknown:
		return step(ReadClaim, ReasonReclaim)
	case claimGone:
	}
	switch {
	case len(s.Siblings) > 0 && !s.SiblingsRead.fresh(now):
		return step(ReadSiblings, ReasonReclaim)
	case !s.pvReadLast(now):
		return step(ReadPV, ReasonReclaim)
	}
	return step(DeleteVolume, ReasonReclaim)
}
