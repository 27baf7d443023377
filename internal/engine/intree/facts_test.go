package intree

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func now() time.Time { return time.Unix(1_800_000_000, 0) }

// read is a live read of the given age.
func read(order int, ago time.Duration) session.Read {
	return session.Read{Sent: now().Add(-ago), Order: order}
}

var source = Source{1}

func claimRef() volume.ClaimRef {
	return volume.ClaimRef{Namespace: "ns", Name: "claim", UID: "claim-uid"}
}

// bound is a PV in use that an in-tree plugin provisioned.
func bound() PV {
	return PV{
		Name: "pv", UID: "pv-uid", ResourceVersion: "10", ProvisionedBy: "kubernetes.io/host-path", Claim: claimRef(),
		Source: source,
		Policy: volume.PolicyDelete, Phase: volume.PhaseBound, Writer: WriterSelf,
	}
}

// due is a PV that was deleted before its claim, which is gone now.
func due() PV {
	pv := bound()
	pv.Terminating, pv.Phase = true, volume.PhaseReleased
	return pv
}

// made is the twin of due after its creation.
func made() PV {
	pv := due()
	return PV{
		Name: volume.TwinName(pv.Name), UID: "twin-uid", ResourceVersion: "20", ProvisionedBy: pv.ProvisionedBy,
		Claim: pv.Claim, Source: pv.Source,
		Policy: volume.PolicyRetain, Phase: volume.PhasePending, Writer: WriterNone, TwinOf: pv.UID, Original: pv.Name,
	}
}

// sibling is another PV of the volume, which is to be deleted too.
func sibling() PV {
	pv := due()
	pv.Name, pv.UID, pv.Claim = "other", "other-uid", volume.ClaimRef{Namespace: "ns", Name: "others", UID: "others-uid"}
	return pv
}

// proven returns the facts about a PV when every live read is done.
func proven() Facts {
	pv := due()
	return Facts{
		Other: OtherAbsent, PV: pv,
		Claim:        ClaimFacts{Read: read(1, 3*time.Second), Of: pv.Claim},
		Attachments:  AttachmentFacts{Read: read(2, 2*time.Second)},
		SiblingsRead: read(3, time.Second),
		PVRead:       read(4, 0),
	}
}

// with returns proven, altered.
func with(alter ...func(*Facts)) Facts {
	s := proven()
	for _, a := range alter {
		a(&s)
	}
	return s
}

// twinIs adds the twin to the facts, altered.
func twinIs(alter ...func(*PV)) func(*Facts) {
	return func(s *Facts) {
		s.Twin, s.TwinFound = made(), true
		for _, a := range alter {
			a(&s.Twin)
		}
	}
}

func in(phase volume.Phase) func(*PV)   { return func(pv *PV) { pv.Phase = phase } }
func of(policy volume.Policy) func(*PV) { return func(pv *PV) { pv.Policy = policy } }
func going(pv *PV)                      { pv.Terminating = true }
func guarded(w Writer) func(*PV)        { return func(pv *PV) { pv.Writer = w } }
func migrate(pv *PV)                    { pv.MigratedTo = "disk.csi.example.com" }
func alive(pv *PV)                      { pv.Terminating = false }
func hold(pv *PV)                       { pv.Held = true }
func pvIs(a ...func(*PV)) func(*Facts)  { return func(s *Facts) { each(&s.PV, a) } }

// leftFor has another program manage the finalizer, and ignore the PV for the given time.
func leftFor(long time.Duration) func(*Facts) {
	return func(s *Facts) { s.Other, s.YieldedSince = OtherPresent, now().Add(-long) }
}

func each(pv *PV, alter []func(*PV)) {
	for _, a := range alter {
		a(pv)
	}
}

func deleted(s *Facts)   { s.Tombstone = Tombstone{VolumeDeleted: true, Claim: claimRef()} }
func releasing(s *Facts) { s.RemovingFinalizers = true }

// twinFor is the twin of another PV.
func twinFor(pv PV) PV {
	twin := made()
	twin.Name, twin.UID, twin.Claim = volume.TwinName(pv.Name), "twin-"+pv.UID, pv.Claim
	twin.TwinOf, twin.Original = pv.UID, pv.Name
	return twin
}

// orphaned is a twin whose original a live read did not find.
func orphaned(alter ...func(*Facts)) Facts {
	s := Facts{Other: OtherAbsent, Twin: made(), TwinFound: true, Original: OriginalFacts{Read: read(1, 0), Gone: true}}
	for _, a := range alter {
		a(&s)
	}
	return s
}
