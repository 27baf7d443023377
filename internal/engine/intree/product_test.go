package intree

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// The facts of a decision form two groups. The PV, its twin and the cluster decide whether a volume may be deleted at
// all; the live reads prove that it may be deleted now. The first group is visited in every combination of its values
// with every proof given, and the second for each state of a twin.

// everyPV visits every state of a PV that an in-tree plugin provisioned.
func everyPV(visit func(PV)) {
	pv := due()
	for bits := range 1 << 5 {
		bit := func(i int) bool { return bits&(1<<i) != 0 }
		pv.Terminating, pv.Held, pv.HasFinalizer = bit(0), bit(1), bit(2)
		pv.Claim.UID, pv.MigratedTo = "", ""
		if bit(3) {
			pv.Claim.UID = claimRef().UID
		}
		if bit(4) {
			migrate(&pv)
		}
		for pv.Writer = WriterUnknown; pv.Writer <= WriterOther; pv.Writer++ {
			for pv.Policy = volume.PolicyUnknown; pv.Policy <= volume.PolicyRecycle; pv.Policy++ {
				for _, pv.Phase = range []volume.Phase{volume.PhaseUnknown, volume.PhaseBound, volume.PhaseReleased,
					volume.PhaseFailed} {
					visit(pv)
				}
			}
		}
	}
}

// everyTwin visits every state of the PV under the twin's name.
func everyTwin(visit func(twin PV, found bool)) {
	visit(PV{}, false)
	twin := made()
	for bits := range 1 << 4 {
		bit := func(i int) bool { return bits&(1<<i) != 0 }
		twin.Terminating, twin.Writer = bit(0), WriterNone
		if bit(3) {
			twin.Writer = WriterOther
		}
		twin.Claim, twin.TwinOf = claimRef(), "pv-uid"
		if bit(1) {
			twin.Claim.UID = ""
		}
		if bit(2) {
			twin.TwinOf = "another"
		}
		for twin.Policy = volume.PolicyUnknown; twin.Policy <= volume.PolicyRetain; twin.Policy++ {
			for twin.Phase = volume.PhasePending; twin.Phase <= volume.PhaseFailed; twin.Phase++ {
				visit(twin, true)
			}
		}
	}
}

// everyProof visits every combination of the proofs of a deletion.
func everyProof(s Facts, visit func(Facts)) {
	reads := []session.Read{{}, read(2, time.Hour), read(2, 0), read(5, 0)}
	claims := []Facts{
		{}, {ClaimRead: read(1, time.Hour)}, {ClaimRead: read(1, 0)}, {ClaimRead: read(6, 0)},
		{ClaimRead: read(1, 0), Claim: pvclaim.Result{Found: true, UID: "newer"}},
		{ClaimRead: read(1, 0), Claim: pvclaim.Result{Found: true, UID: "newer", VolumeName: s.PV.Name}},
		{ClaimRead: read(1, 0), Claim: pvclaim.Result{Found: true, UID: claimRef().UID}},
	}
	sharer, held := sibling(in(volume.PhaseBound)), sibling(hold)
	families := []Facts{
		{}, {Siblings: []PV{sibling()}}, {Siblings: []PV{sibling(), sharer}},
		{Siblings: []PV{sibling(), twinFor(sibling())}}, {Siblings: []PV{twinFor(sibling())}},
		{Siblings: []PV{sibling()}, SiblingNeeded: "other"}, {Siblings: []PV{held}},
	}
	for _, of := range claims {
		s.Claim, s.ClaimRead = of.Claim, of.ClaimRead
		for _, s.Claim.Of = range []volume.ClaimRef{s.PV.Claim, {}} {
			for _, s.AttachmentsRead = range reads {
				for s.Attachments = range 2 {
					for _, family := range families {
						s.Siblings, s.SiblingNeeded = family.Siblings, family.SiblingNeeded
						for _, s.SiblingsRead = range reads {
							for _, s.PVRead = range []session.Read{{}, read(4, time.Hour), read(4, 0), read(9, 0)} {
								visit(s)
							}
						}
					}
				}
			}
		}
	}
}

// isTwin reports whether the twin's name belongs to our twin. It is written independently of isTwinOf.
func isTwin(s Facts) bool { return s.TwinFound && s.Twin.TwinOf == s.PV.UID }

// mayGo reports whether the PV and the cluster permit the deletion of the volume. It states the promise independently
// of the code that keeps it.
func mayGo(s Facts) bool {
	pv := s.PV
	return acts(s) && !s.RemovingFinalizers && !s.Tombstone.VolumeDeleted &&
		pv.Policy == volume.PolicyDelete && pv.Terminating && (pv.Phase == volume.PhaseReleased ||
		pv.Phase == volume.PhaseFailed) &&
		pv.Claim.UID != "" && !pv.Held && pv.MigratedTo == "" &&
		(pv.Writer == WriterSelf || pv.Writer == WriterNone && pv.HasFinalizer)
}

// acts reports whether no other program manages the finalizer, or that program has ignored this PV for IdleAfter.
func acts(s Facts) bool {
	return s.Other == OtherAbsent || s.Other == OtherPresent && !s.YieldedSince.IsZero() &&
		now().Sub(s.YieldedSince) >= 2*time.Minute
}

// shown reports whether live reads, in the right order and recent enough, prove that no claim, attachment or PV needs
// the volume.
func shown(s Facts) bool {
	live := func(r session.Read) bool { return r.Order > 0 && now().Sub(r.Sent) <= 5*time.Second }
	last := func(r session.Read) bool { return s.PVRead.Order > r.Order }
	claim := live(s.ClaimRead) && last(s.ClaimRead) && s.Claim.Of == s.PV.Claim &&
		(!s.Claim.Found || s.Claim.UID != s.PV.Claim.UID && s.Claim.VolumeName != s.PV.Name)
	attached := live(s.AttachmentsRead) && last(s.AttachmentsRead) && s.Attachments == 0
	alone := len(s.Siblings) == 0 || live(s.SiblingsRead) && s.SiblingNeeded == ""
	goes := map[string]bool{}
	for _, other := range s.Siblings {
		goes[string(other.UID)] = other.Phase == volume.PhaseReleased && other.Policy == volume.PolicyDelete
	}
	for _, other := range s.Siblings {
		alone = alone && !other.Held && (goes[string(other.UID)] || goes[string(other.TwinOf)])
	}
	return claim && attached && alone && last(s.SiblingsRead) && live(s.PVRead)
}

// brokenPromise returns the promise that a decision breaks, empty for none.
func brokenPromise(s Facts, d Decision) string {
	pv, twin := s.PV, s.Twin
	inUse := isTwin(s) && twin.Policy != volume.PolicyRetain
	switch d.Action {
	case CreateTwin, SetTwinDelete:
		switch {
		case !mayGo(s):
			return "the volume may not go"
		case !shown(s):
			return "the volume is not proven unneeded"
		case d.Action == CreateTwin && s.TwinFound:
			return "there is a PV of that name"
		case d.Action == SetTwinDelete && (!isTwin(s) || twin.Policy != volume.PolicyRetain ||
			twin.Phase != volume.PhaseReleased || twin.Terminating || twin.Claim != pv.Claim):
			return "it is not a twin whose claim the PV controller has seen gone"
		}
	case SetTwinRetain:
		if !isTwin(s) || twin.Policy == volume.PolicyRetain {
			return "there is nothing to disarm, or it is not ours"
		}
	case DeleteTwin:
		if !isTwin(s) || twin.Policy != volume.PolicyRetain || twin.Phase == volume.PhaseBound || twin.Terminating {
			return "a twin is deleted that is set to Delete, in use, going or not ours"
		}
	case RemoveTwinFinalizer:
		if !isTwin(s) || twin.Policy != volume.PolicyRetain || !twin.Terminating || twin.Writer == WriterNone {
			return "a finalizer is removed from a PV that is no twin which goes and keeps its volume"
		}
	case RemoveFinalizer, RemoveFinalizerByUID:
		keeps := pv.Policy == volume.PolicyRetain || pv.Policy == volume.PolicyRecycle
		handedOver := pv.MigratedTo != "" && (!pv.Terminating || pv.HasFinalizer || keeps)
		switch {
		case inUse:
			return "the PV loses its finalizer while its twin is set to Delete"
		case d.Action == RemoveFinalizerByUID && !s.Tombstone.VolumeDeleted:
			return "the PV loses its finalizer before its volume is deleted"
		case d.Action == RemoveFinalizer && !keeps && !handedOver && !s.RemovingFinalizers:
			return "the finalizer goes although the volume may be there and the policy is Delete"
		case s.RemovingFinalizers && d.Action == RemoveFinalizer && pv.Writer != WriterSelf:
			return "a finalizer is removed that we did not add"
		}
	case AddFinalizer:
		if !acts(s) || pv.Terminating || pv.Policy != volume.PolicyDelete || pv.MigratedTo != "" || s.RemovingFinalizers ||
			pv.Writer == WriterOther {
			return "a PV is protected that is none of ours to protect"
		}
	case Wait, ReadClaim, ReadAttachments, ReadSiblings, ReadPV, ReadOriginal, ReadTwin:
	}
	// kube-controller-manager ignores annotations. It deletes the PVs that it manages, and PVs that no user has deleted.
	exposed := pv.Policy == volume.PolicyDelete && pv.MigratedTo == "" &&
		(!pv.Terminating || pv.Writer == WriterOther || s.Other == OtherPresent)
	switch {
	case d.Reason == ReasonHoldNotObeyed && (!pv.Held || !exposed):
		return "a person is warned of a hold that is obeyed, or that is not there"
	case d.Action == Wait && pv.Held && exposed && (d.Reason == ReasonHeld || d.Reason == ReasonProtected ||
		d.Reason == ReasonManagedByController || d.Reason == ReasonControllerDeletes):
		return "a person is not warned that a hold keeps nothing"
	case inUse && d.Action != SetTwinRetain && !mayGo(s) && s.Other != OtherUnknown &&
		(!twin.Terminating || twin.Writer != WriterNone || s.Other != OtherAbsent || s.RemovingFinalizers):
		return "a twin stays set to Delete although the volume may not go"
	case s.Other == OtherUnknown && d.Action != Wait:
		return "something is done before it is known who manages the finalizer"
	case s.Other == OtherPresent && !acts(s) && (d.Action == AddFinalizer || d.Action == RemoveFinalizer &&
		!s.RemovingFinalizers):
		return "an object of another program is written"
	}
	return ""
}

// stalled returns why a decision waits although a step is due, empty if it does not.
func stalled(s Facts, d Decision) string {
	switch {
	case mayGo(s) && shown(s) && !s.TwinFound && d.Action != CreateTwin:
		return "nothing is done for a volume that may go"
	case mayGo(s) && shown(s) && isTwin(s) && s.Twin.Policy == volume.PolicyRetain &&
		s.Twin.Phase == volume.PhaseReleased &&
		!s.Twin.Terminating && s.Twin.Claim == s.PV.Claim && d.Action != SetTwinDelete:
		return "a twin that may do its work is not set to Delete"
	case s.Tombstone.VolumeDeleted && s.Other == OtherAbsent && s.PV.Writer == WriterSelf && !s.TwinFound &&
		d.Action != RemoveFinalizerByUID:
		return "a PV whose volume is deleted is not let go"
	}
	return ""
}

func judge(t *testing.T, s Facts) {
	d := Decide(s, now())
	if broken := brokenPromise(s, d) + stalled(s, d); broken != "" {
		t.Helper() // here, since it costs as much as a decision
		t.Fatalf("%v (%v): %s\n%+v", d.Action, d.Reason, broken, s)
	}
}

func TestPromisesInEveryCombinationOfStates(t *testing.T) {
	t.Parallel()
	visited := 0
	everyPV(func(pv PV) {
		everyTwin(func(twin PV, found bool) {
			for bits := range 1 << 3 {
				for manages := OtherUnknown; manages <= OtherPresent; manages++ {
					if bits&4 != 0 && manages != OtherPresent {
						continue // no PV is left to another program
					}
					s := proven()
					s.PV, s.Twin, s.TwinFound, s.Other = pv, twin, found, manages
					s.Claim.Of = pv.Claim
					s.RemovingFinalizers = bits&1 != 0
					if bits&2 != 0 {
						s.Tombstone = Tombstone{VolumeDeleted: true, Claim: pv.Claim}
					}
					if bits&4 != 0 {
						s.YieldedSince = now().Add(-2 * time.Minute)
					}
					judge(t, s)
					visited++
				}
			}
		})
	})
	if want := 2048 * 241 * 16; visited != want {
		t.Errorf("visited %d combinations, want %d", visited, want)
	}
}

func TestPromisesInEveryCombinationOfReads(t *testing.T) {
	t.Parallel()
	visited := 0
	for _, twin := range []func(*Facts){
		func(*Facts) {}, twinIs(), twinIs(in(volume.PhaseReleased)), twinIs(in(volume.PhaseReleased),
			of(volume.PolicyDelete)),
		twinIs(in(volume.PhaseFailed)), twinIs(twinOf("another")),
	} {
		everyProof(with(twin), func(s Facts) { judge(t, s); visited++ })
	}
	if want := 6 * 7 * 2 * 4 * 2 * 7 * 4 * 4; visited != want {
		t.Errorf("visited %d combinations, want %d", visited, want)
	}
}
