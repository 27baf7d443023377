package reclaim

import (
	"testing"
	"time"
)

// everySnapshot visits every combination of the values that a decision can depend on, for
// PVs with this provisioner.
func everySnapshot(provisionedBy string, visit func(Snapshot)) {
	claims := []ClaimFacts{
		{},                         // not read
		{Read: read(1, time.Hour)}, // not found, too long ago
		{Read: read(1, 0)},         // not found
		{Read: read(1, 0), Found: true, UID: "newer"},
		{Read: read(1, 0), Found: true, UID: "claim-uid", VolumeName: "pv"},
		{Read: read(1, 0), Found: true, UID: "claim-uid", VolumeName: "pv-2"},
	}
	reads := []Read{{}, read(3, time.Hour), read(3, 0), {Sent: now(), Order: 1}}
	keeper := sibling()
	keeper.Phase = PhaseBound
	families := []struct {
		pvs  []PV
		read Read
	}{{}, {[]PV{sibling()}, Read{}}, {[]PV{sibling()}, read(2, 0)}, {[]PV{sibling(), keeper}, read(2, 0)}}
	allDone := []Done{{}, {VolumeDeleted: true}, {VolumeDeleted: true, PVDeleted: true}, {true, true, true}}

	s := released()
	s.PV.ProvisionedBy = provisionedBy
	for bits := range 1 << 7 {
		bit := func(i int) bool { return bits&(1<<i) != 0 }
		s.PV.Terminating, s.PV.HasFinalizer, s.PV.HasCompanionFinalizer = bit(0), bit(1), bit(2)
		s.PV.WasAttached, s.AttachmentsCurrent, s.SecretsRead = bit(3), bit(4), bit(5)
		s.PV.Claim.UID = ""
		if bit(6) {
			s.PV.Claim.UID = "claim-uid"
		}
		for s.PV.Policy = PolicyUnknown; s.PV.Policy <= PolicyRecycle; s.PV.Policy++ {
			for s.PV.Phase = PhaseUnknown; s.PV.Phase <= PhaseFailed; s.PV.Phase++ {
				for _, s.Done = range allDone {
					for _, s.Claim = range claims {
						s.Claim.Of = s.PV.Claim
						for _, s.PVRead = range reads {
							for _, family := range families {
								s.Siblings, s.SiblingsRead = family.pvs, family.read
								for s.Attachments = range 2 {
									visit(s)
								}
							}
						}
					}
				}
			}
		}
	}
}

// provenDeletable is promise P2 with P2b, written as the contract has it and apart from
// the code that keeps it.
func provenDeletable(s Snapshot) bool {
	age := func(t time.Time) time.Duration { return now().Sub(t) }
	pv, claim := s.PV, s.Claim
	ours := pv.ProvisionedBy == driver || (pv.ProvisionedBy == "" && pv.Driver == driver)
	isDue := pv.Policy == PolicyDelete && (pv.Phase == PhaseReleased || pv.Phase == PhaseFailed) &&
		pv.Claim.UID != "" && (pv.HasFinalizer || pv.HasCompanionFinalizer)
	isLive := s.PVRead.Order > claim.Read.Order && age(s.PVRead.Sent) <= 5*time.Second &&
		claim.Read.Order > 0 && age(claim.Read.Sent) <= 5*time.Second
	claimIsGone := !claim.Found || claim.UID != pv.Claim.UID ||
		(pv.ProvisionedBy != "" && claim.VolumeName != "" && claim.VolumeName != pv.Name)
	isFree := s.Attachments == 0 && (s.AttachmentsCurrent || !pv.WasAttached)
	isAlone := true
	for _, other := range s.Siblings {
		isAlone = isAlone && other.Policy == PolicyDelete && other.Phase == PhaseReleased && other.Claim.UID != "" &&
			s.SiblingsRead.Order > 0 && s.PVRead.Order > s.SiblingsRead.Order
	}
	return ours && isDue && isLive && claimIsGone && isFree && isAlone && s.SecretsRead && pv.Handle != ""
}

func TestEveryCombinationOfFacts(t *testing.T) {
	for kind, provisionedBy := range map[string]string{"static": "", "dynamic": driver, "foreign": "other"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			checkEvery(t, provisionedBy)
		})
	}
}

func checkEvery(t *testing.T, provisionedBy string) {
	var visited, deletions, wrongs int
	everySnapshot(provisionedBy, func(s Snapshot) {
		visited++
		d := Decide(s, now())
		wrong := func(promise string) {
			t.Errorf("%s: Decide = %v %v\nfacts: %+v", promise, d.Action, d.Reason, s)
			if wrongs++; wrongs == 10 {
				t.FailNow()
			}
		}
		mustOutlive := s.PV.Policy == PolicyDelete && s.PV.Claim.UID != ""
		switch d.Action {
		case DeleteVolume:
			deletions++
			if !provenDeletable(s) {
				wrong("P2: deletes a volume without proof")
			}
			if s.Done.VolumeDeleted {
				wrong("P3: deletes a volume twice")
			}
		case DropFinalizer:
			if mustOutlive || s.PV.Policy == PolicyUnknown || s.Done.VolumeDeleted {
				wrong("P1: gives up the protection of a PV that must outlive its volume")
			}
		case ReleasePV, DeletePV:
			if !s.Done.VolumeDeleted {
				wrong("P1: lets a PV go before its volume")
			}
		case AddFinalizer:
			if !mustOutlive || s.PV.Terminating || s.PV.HasFinalizer || s.PV.HasCompanionFinalizer {
				wrong("rule 4: protects what needs or takes no protection")
			}
		case Wait, CatchUpAttachments, ReadSecrets, ReadClaim, ReadSiblings, ReadPV:
		default:
			wrong("an action that does not exist")
		}
		if d.Action != DeleteVolume && provenDeletable(s) && !s.Done.VolumeDeleted {
			wrong("P1: keeps a volume that is proven to be deletable")
		}
		if d.Reason.Sentence() == "" {
			wrong("P4: a decision without a reason that people can read")
		}
		if d.Timed && d.Action != Wait {
			wrong("only a wait is ended by the clock")
		}
	})
	if deletions == 0 && provisionedBy != "other" {
		t.Fatal("no combination led to a deletion: the product does not reach what it is to guard")
	}
	t.Logf("%d combinations, %d of them delete", visited, deletions)
}

func TestEveryReasonHasASentence(t *testing.T) {
	seen := map[Reason]bool{}
	for _, reason := range Reasons() {
		if reason.Sentence() == "" {
			t.Errorf("%s has no sentence", reason)
		}
		if seen[reason] {
			t.Errorf("%s is listed twice", reason)
		}
		seen[reason] = true
	}
}
