package intree

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
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

// made is the twin of due after its creation, altered.
func made(alter ...func(*PV)) PV {
	pv := due()
	return altered(PV{
		Name: volume.TwinName(pv.Name), UID: "twin-uid", ResourceVersion: "20", ProvisionedBy: pv.ProvisionedBy,
		Claim: pv.Claim, Source: pv.Source,
		Policy: volume.PolicyRetain, Phase: volume.PhasePending, Writer: WriterNone, TwinOf: pv.UID, Original: pv.Name,
	}, alter)
}

// sibling is another PV of the volume, which is to be deleted too, altered.
func sibling(alter ...func(*PV)) PV {
	pv := due()
	pv.Name, pv.UID, pv.Claim = "other", "other-uid", volume.ClaimRef{Namespace: "ns", Name: "others", UID: "others-uid"}
	return altered(pv, alter)
}

// proven returns the facts about a PV when every live read is done.
func proven() Facts {
	pv := due()
	return Facts{
		Other: OtherAbsent, PV: pv,
		Claim:           pvclaim.Result{Of: pv.Claim},
		ClaimRead:       read(1, 3*time.Second),
		AttachmentsRead: read(2, 2*time.Second),
		SiblingsRead:    read(3, time.Second),
		PVRead:          read(4, 0),
	}
}

// with returns proven, altered.
func with(alter ...func(*Facts)) Facts { return altered(proven(), alter) }

func altered[T any](of T, alter []func(*T)) T {
	for _, a := range alter {
		a(&of)
	}
	return of
}

// twinIs adds the twin to the facts, altered.
func twinIs(alter ...func(*PV)) func(*Facts) {
	return func(s *Facts) { s.Twin, s.TwinFound = made(alter...), true }
}

func in(phase volume.Phase) func(*PV)   { return func(pv *PV) { pv.Phase = phase } }
func of(policy volume.Policy) func(*PV) { return func(pv *PV) { pv.Policy = policy } }
func going(pv *PV)                      { pv.Terminating = true }
func guarded(w Writer) func(*PV)        { return func(pv *PV) { pv.Writer = w } }
func migrate(pv *PV)                    { pv.MigratedTo = "disk.csi.example.com" }
func alive(pv *PV)                      { pv.Terminating = false }
func hold(pv *PV)                       { pv.Held = true }
func sidecars(pv *PV)                   { pv.HasFinalizer = true }
func pluginGone(pv *PV)                 { pv.PluginGone = true }
func claimUID(uid types.UID) func(*PV)  { return func(pv *PV) { pv.Claim.UID = uid } }
func twinOf(uid types.UID) func(*PV)    { return func(pv *PV) { pv.TwinOf = uid } }
func by(plugin string) func(*PV)        { return func(pv *PV) { pv.ProvisionedBy = plugin } }
func sourceIs(of Source) func(*PV)      { return func(pv *PV) { pv.Source = of } }
func pvIs(a ...func(*PV)) func(*Facts)  { return func(s *Facts) { s.PV = altered(s.PV, a) } }
func siblings(pvs ...PV) func(*Facts)   { return func(s *Facts) { s.Siblings = pvs } }

func managedElsewhere(s *Facts)  { s.Other = OtherPresent }
func managerUnknown(s *Facts)    { s.Other = OtherUnknown }
func claimUnread(s *Facts)       { s.Claim, s.ClaimRead = pvclaim.Result{}, session.Read{} }
func pvUnread(s *Facts)          { s.PVRead = session.Read{} }
func attached(s *Facts)          { s.Attachments = 1 }
func failedJustNow(s *Facts)     { s.Failure.Until = now().Add(time.Second) }
func claimKeepsSibling(s *Facts) { s.Siblings, s.SiblingNeeded = []PV{sibling()}, "other" }

// leftFor has another program manage the finalizer, and ignore the PV for the given time.
func leftFor(long time.Duration) func(*Facts) {
	return func(s *Facts) { s.Other, s.YieldedSince = OtherPresent, now().Add(-long) }
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
	return altered(Facts{Other: OtherAbsent, Twin: made(), TwinFound: true,
		OriginalRead: read(1, 0), OriginalGone: true}, alter)
}
