package reclaim

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// everySnapshot visits every combination of the values that a decision can depend on.
func everySnapshot(visit func(Snapshot)) {
	bools := []bool{false, true}
	type claimCase struct {
		found  bool
		uid    string
		volume string
		age    time.Duration // negative: not read
	}
	claims := []claimCase{
		{age: -1}, {age: time.Minute}, {age: 2 * time.Second},
		{found: true, uid: "newer", age: 2 * time.Second},
		{found: true, uid: "claim-uid", volume: "pv", age: 2 * time.Second},
		{found: true, uid: "claim-uid", volume: "pv-2", age: 2 * time.Second},
	}
	reads := []time.Duration{-1, time.Minute, 3 * time.Second, time.Second} // of the PV
	keeper := sibling()
	keeper.Phase = PhaseBound
	siblings := []struct {
		pvs  []PV
		read bool
	}{{}, {[]PV{sibling()}, false}, {[]PV{sibling()}, true}, {[]PV{sibling(), keeper}, true}}

	at := func(age time.Duration) time.Time {
		if age < 0 {
			return time.Time{}
		}
		return now().Add(-age)
	}

	for _, provisionedBy := range []string{"", driver, "other"} {
		for policy := PolicyUnknown; policy <= PolicyRecycle; policy++ {
			for phase := PhaseUnknown; phase <= PhaseFailed; phase++ {
				for bits := range 1 << 8 {
					bit := func(i int) bool { return bits&(1<<i) != 0 }
					for _, done := range []Done{{}, {VolumeDeleted: true}, {VolumeDeleted: true, PVDeleted: true}, {true, true, true}} {
						for _, claim := range claims {
							for _, read := range reads {
								for _, family := range siblings {
									for _, attached := range bools {
										s := released()
										s.PV.ProvisionedBy, s.PV.Policy, s.PV.Phase = provisionedBy, policy, phase
										s.PV.Terminating, s.PV.HasFinalizer, s.PV.HasCompanionFinalizer = bit(0), bit(1), bit(2)
										s.PV.WasAttached, s.AttachmentsCurrent, s.SecretsRead = bit(3), bit(4), bit(5)
										if bit(6) {
											s.PV.Claim.UID = ""
										}
										if bit(7) {
											s.PV.Handle = ""
										}
										s.Done = done
										s.Claim = ClaimFacts{ReadAt: at(claim.age), Of: s.PV.Claim, Found: claim.found, VolumeName: claim.volume}
										if claim.found {
											s.Claim.UID = types.UID(claim.uid)
										}
										s.PVReadAt = at(read)
										s.Siblings = family.pvs
										if family.read {
											s.SiblingsReadAt = at(2 * time.Second)
										}
										if attached {
											s.Attachments = 1
										}
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
}

// provenDeletable is promise P2 with P2b, written as the contract has it and apart from
// the code that keeps it.
func provenDeletable(s Snapshot) bool {
	age := func(t time.Time) time.Duration { return now().Sub(t) }
	pv, claim := s.PV, s.Claim
	ours := pv.ProvisionedBy == driver || (pv.ProvisionedBy == "" && pv.Driver == driver)
	isDue := pv.Policy == PolicyDelete && (pv.Phase == PhaseReleased || pv.Phase == PhaseFailed) &&
		pv.Claim.UID != "" && (pv.HasFinalizer || pv.HasCompanionFinalizer)
	isLive := !s.PVReadAt.IsZero() && age(s.PVReadAt) <= 5*time.Second &&
		!claim.ReadAt.IsZero() && age(claim.ReadAt) <= 5*time.Second && !s.PVReadAt.Before(claim.ReadAt)
	claimIsGone := !claim.Found || claim.UID != pv.Claim.UID ||
		(pv.ProvisionedBy != "" && claim.VolumeName != "" && claim.VolumeName != pv.Name)
	isFree := s.Attachments == 0 && (s.AttachmentsCurrent || !pv.WasAttached)
	isAlone := true
	for _, other := range s.Siblings {
		isAlone = isAlone && other.Policy == PolicyDelete && other.Phase == PhaseReleased && other.Claim.UID != "" &&
			!s.SiblingsReadAt.IsZero() && !s.PVReadAt.Before(s.SiblingsReadAt)
	}
	return ours && isDue && isLive && claimIsGone && isFree && isAlone && s.SecretsRead && pv.Handle != ""
}

func TestEveryCombinationOfFacts(t *testing.T) {
	t.Parallel()
	var visited, deletions int
	everySnapshot(func(s Snapshot) {
		visited++
		d := Decide(s, now())
		wrong := func(promise string) {
			t.Errorf("%s: Decide = %v %v\nfacts: %+v", promise, d.Action, d.Reason, s)
			if t.Failed() && visited%1000 == 0 {
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
	if deletions == 0 {
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
