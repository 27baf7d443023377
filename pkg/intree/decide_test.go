package intree

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func now() time.Time { return time.Unix(1_800_000_000, 0) }

// read is a live read that was made so long ago.
func read(order int, ago time.Duration) Read { return Read{Sent: now().Add(-ago), Order: order} }

var source = Source{1}

func claimRef() volume.ClaimRef {
	return volume.ClaimRef{Namespace: "ns", Name: "claim", UID: "claim-uid"}
}

// bound is a PV in use, as an in-tree plugin provisioned it.
func bound() PV {
	return PV{
		Name: "pv", UID: "pv-uid", ResourceVersion: "10", ProvisionedBy: "kubernetes.io/host-path", Claim: claimRef(), Source: source,
		Policy: volume.PolicyDelete, Phase: volume.PhaseBound, Guard: WriterUs,
	}
}

// due is a PV that was deleted before its claim, which is gone by now.
func due() PV {
	pv := bound()
	pv.Terminating, pv.Phase = true, volume.PhaseReleased
	return pv
}

// made is the twin of due, as it is created.
func made() PV {
	pv := due()
	return PV{
		Name: TwinName(pv.Name), UID: "twin-uid", ResourceVersion: "20", ProvisionedBy: pv.ProvisionedBy, Claim: pv.Claim, Source: pv.Source,
		Policy: volume.PolicyRetain, Phase: volume.PhasePending, Guard: WriterNone, TwinOf: pv.UID, Original: pv.Name,
	}
}

// sibling is another PV of the volume, whose volume is to be deleted too.
func sibling() PV {
	pv := due()
	pv.Name, pv.UID, pv.Claim = "other", "other-uid", volume.ClaimRef{Namespace: "ns", Name: "others", UID: "others-uid"}
	return pv
}

// proven is what is known of a PV when nothing is left to be read.
func proven() Snapshot {
	pv := due()
	return Snapshot{
		Manages: ManagesNobody, PV: pv,
		Claim:        ClaimFacts{Read: read(1, 3*time.Second), Of: pv.Claim},
		Attachments:  AttachmentFacts{Read: read(2, 2*time.Second)},
		SiblingsRead: read(3, time.Second),
		PVRead:       read(4, 0),
	}
}

// with is a proven snapshot that differs.
func with(alter ...func(*Snapshot)) Snapshot {
	s := proven()
	for _, a := range alter {
		a(&s)
	}
	return s
}

// twinIs puts the twin into a snapshot, altered.
func twinIs(alter ...func(*PV)) func(*Snapshot) {
	return func(s *Snapshot) {
		s.Twin, s.TwinFound = made(), true
		for _, a := range alter {
			a(&s.Twin)
		}
	}
}

func in(phase volume.Phase) func(*PV)     { return func(pv *PV) { pv.Phase = phase } }
func of(policy volume.Policy) func(*PV)   { return func(pv *PV) { pv.Policy = policy } }
func going(pv *PV)                        { pv.Terminating = true }
func guarded(w Writer) func(*PV)          { return func(pv *PV) { pv.Guard = w } }
func migrate(pv *PV)                      { pv.MigratedTo = "disk.csi.example.com" }
func alive(pv *PV)                        { pv.Terminating = false }
func pvIs(a ...func(*PV)) func(*Snapshot) { return func(s *Snapshot) { each(&s.PV, a) } }

// leftFor has another program manage the finalizer, and do nothing about the PV for so long.
func leftFor(long time.Duration) func(*Snapshot) {
	return func(s *Snapshot) { s.Manages, s.LeftSince = ManagesOther, now().Add(-long) }
}

func each(pv *PV, alter []func(*PV)) {
	for _, a := range alter {
		a(pv)
	}
}

type want struct {
	Action Action
	Reason Reason
}

func (d Decision) want() want { return want{d.Action, d.Reason} }

func TestDecide(t *testing.T) {
	armed := []func(*PV){in(volume.PhaseReleased), of(volume.PolicyDelete)}
	claimLives := func(s *Snapshot) { s.Claim.Found, s.Claim.UID = true, s.PV.Claim.UID }
	restored := func(s *Snapshot) { s.Claim.Found, s.Claim.UID, s.Claim.VolumeName = true, "newer", s.PV.Name }
	keeper := func(s *Snapshot) {
		other := sibling()
		other.Phase = volume.PhaseBound
		s.Siblings = []PV{other}
	}
	cases := map[string]struct {
		s    Snapshot
		want want
	}{
		// Whose business it is.
		"nothing is known":                                      {Snapshot{}, want{Wait, ReasonNotOurs}},
		"no provisioner of the PV is known":                     {with(pvIs(func(pv *PV) { pv.ProvisionedBy = "" })), want{Wait, ReasonNotOurs}},
		"an external provisioner made it":                       {with(pvIs(func(pv *PV) { pv.ProvisionedBy = "nfs.example.com" })), want{Wait, ReasonNotOurs}},
		"it is not known which volume it is":                    {with(pvIs(func(pv *PV) { pv.Source = Source{} })), want{Wait, ReasonNotOurs}},
		"a twin is no PV to be protected":                       {with(pvIs(func(pv *PV) { pv.TwinOf = "another" })), want{Wait, ReasonNotOurs}},
		"it is not known who manages the finalizer":             {with(func(s *Snapshot) { s.Manages = ManagesUnknown }), want{Wait, ReasonNotSynced}},
		"another manages the finalizer: its business":           {with(func(s *Snapshot) { s.Manages = ManagesOther }), want{Wait, ReasonControllerDeletes}},
		"another put it on this PV: its business":               {with(pvIs(guarded(WriterOther))), want{Wait, ReasonControllerDeletes}},
		"another manages it, the PV is not deleted":             {with(pvIs(alive, guarded(WriterNone)), func(s *Snapshot) { s.Manages = ManagesOther }), want{Wait, ReasonLeftToController}},
		"another manages it, and has no plugin":                 {with(pvIs(guarded(WriterOther), func(pv *PV) { pv.PluginGone = true })), want{Wait, ReasonPluginGone}},
		"another manages it since: an armed twin is disarmed":   {with(twinIs(armed...), func(s *Snapshot) { s.Manages = ManagesOther }), want{DisarmTwin, ReasonControllerDeletes}},
		"another manages it since: a twin is deleted":           {with(twinIs(), func(s *Snapshot) { s.Manages = ManagesOther }), want{DeleteTwin, ReasonControllerDeletes}},
		"another manages it, and has not put it on for a while": {with(pvIs(alive, guarded(WriterNone)), leftFor(119*time.Second)), want{Wait, ReasonLeftToController}},
		"another manages it, and does not put it on":            {with(pvIs(alive, guarded(WriterNone)), leftFor(2*time.Minute)), want{Protect, ReasonProtect}},
		"another manages it, and did not delete for a while":    {with(leftFor(119 * time.Second)), want{Wait, ReasonControllerDeletes}},
		"another manages it, and does not delete":               {with(leftFor(2 * time.Minute)), want{MakeTwin, ReasonReclaim}},
		"another manages it, and does not delete: armed":        {with(leftFor(2*time.Minute), twinIs(armed...)), want{Wait, ReasonTwinArmed}},
		"another put it on this PV, and does not delete":        {with(pvIs(guarded(WriterOther)), leftFor(2*time.Minute)), want{Wait, ReasonControllerIdle}},
		"another manages it, the policy is Retain: its matter":  {with(pvIs(of(volume.PolicyRetain)), func(s *Snapshot) { s.Manages = ManagesOther }), want{Wait, ReasonControllerDeletes}},

		// The finalizer, on and off.
		"Delete, in use, no finalizer: put on":           {with(pvIs(alive, in(volume.PhaseBound), guarded(WriterNone))), want{Protect, ReasonProtect}},
		"Delete, not claimed yet, no finalizer: put on":  {with(pvIs(alive, in(volume.PhaseAvailable), guarded(WriterNone), func(pv *PV) { pv.Claim = volume.ClaimRef{} })), want{Protect, ReasonProtect}},
		"Delete, in use, protected":                      {with(pvIs(alive, in(volume.PhaseBound))), want{Wait, ReasonProtected}},
		"Delete, protected, nobody knows by whom":        {with(pvIs(alive, in(volume.PhaseBound), guarded(WriterUnknown))), want{Wait, ReasonProtected}},
		"Delete, released: the PV controller deletes it": {with(pvIs(alive)), want{Wait, ReasonLeftToController}},
		"migration was taken back: F goes":               {with(pvIs(alive, in(volume.PhaseBound), func(pv *PV) { pv.HasFinalizer = true })), want{Protect, ReasonProtect}},
		"migration was taken back: the companion's goes": {with(pvIs(alive, in(volume.PhaseBound), func(pv *PV) { pv.HasCompanionFinalizer = true })), want{Protect, ReasonProtect}},
		"Retain: off":                                       {with(pvIs(alive, in(volume.PhaseBound), of(volume.PolicyRetain))), want{DropGuard, ReasonPolicyKeepsVolume}},
		"Recycle: off":                                      {with(pvIs(alive, in(volume.PhaseBound), of(volume.PolicyRecycle))), want{DropGuard, ReasonPolicyKeepsVolume}},
		"Retain, F from before: off":                        {with(pvIs(alive, of(volume.PolicyRetain), guarded(WriterNone), func(pv *PV) { pv.HasFinalizer = true })), want{DropGuard, ReasonPolicyKeepsVolume}},
		"Retain without finalizer":                          {with(pvIs(alive, of(volume.PolicyRetain), guarded(WriterNone))), want{Wait, ReasonPolicyKeepsVolume}},
		"Retain, terminating, claim lives: stays":           {with(pvIs(in(volume.PhaseBound), of(volume.PolicyRetain))), want{Wait, ReasonRetainBound}},
		"Retain, terminating, released: off":                {with(pvIs(of(volume.PolicyRetain))), want{DropGuard, ReasonPolicyKeepsVolume}},
		"Retain, terminating, nobody knows by whom it is":   {with(pvIs(of(volume.PolicyRetain), guarded(WriterUnknown))), want{Wait, ReasonWriterUnknown}},
		"Retain, nobody knows by whom it is":                {with(pvIs(alive, of(volume.PolicyRetain), guarded(WriterUnknown))), want{Wait, ReasonPolicyKeepsVolume}},
		"a policy that is not known: stays":                 {with(pvIs(of(volume.PolicyUnknown))), want{Wait, ReasonPolicyUnknown}},
		"migrated: off":                                     {with(pvIs(alive, in(volume.PhaseBound), migrate)), want{DropGuard, ReasonMigrated}},
		"migrated, F is left to the sidecar":                {with(pvIs(alive, guarded(WriterNone), migrate, func(pv *PV) { pv.HasFinalizer = true })), want{Wait, ReasonMigrated}},
		"migrated, nobody knows by whom it is":              {with(pvIs(alive, guarded(WriterUnknown), migrate)), want{Wait, ReasonMigrated}},
		"migrated, terminating, nobody knows by whom it is": {with(pvIs(guarded(WriterUnknown), migrate)), want{Wait, ReasonWriterUnknown}},
		"migrated while terminating, F is on: off":          {with(pvIs(migrate, func(pv *PV) { pv.HasFinalizer = true })), want{DropGuard, ReasonMigrated}},
		"migrated while terminating, F is not on: stays":    {with(pvIs(migrate)), want{Wait, ReasonMigratedUnprotected}},
		"migrated while terminating, Retain: off":           {with(pvIs(migrate, of(volume.PolicyRetain))), want{DropGuard, ReasonMigrated}},
		"migrated while terminating, policy not known":      {with(pvIs(migrate, of(volume.PolicyUnknown))), want{Wait, ReasonMigratedUnprotected}},

		// A PV that is being deleted, up to its twin.
		"terminating without finalizer":                         {with(pvIs(guarded(WriterNone))), want{Wait, ReasonDeletionUnprotected}},
		"terminating, nobody knows whose finalizer it is":       {with(pvIs(guarded(WriterUnknown))), want{Wait, ReasonWriterUnknown}},
		"terminating, held by F from before alone":              {with(pvIs(guarded(WriterNone), func(pv *PV) { pv.HasFinalizer = true })), want{MakeTwin, ReasonReclaim}},
		"terminating, in use":                                   {with(pvIs(in(volume.PhaseBound))), want{Wait, ReasonTerminatingBound}},
		"terminating, an administrator took it back":            {with(pvIs(func(pv *PV) { pv.Claim.UID = "" })), want{Wait, ReasonNotClaimed}},
		"terminating, not released":                             {with(pvIs(in(volume.PhaseAvailable))), want{Wait, ReasonNotReleased}},
		"terminating, phase not known":                          {with(pvIs(in(volume.PhaseUnknown))), want{Wait, ReasonNotReleased}},
		"held by a person":                                      {with(pvIs(func(pv *PV) { pv.Held = true })), want{Wait, ReasonHeld}},
		"all is proven: the twin is made":                       {with(), want{MakeTwin, ReasonReclaim}},
		"failed, all is proven: the twin is made":               {with(pvIs(in(volume.PhaseFailed))), want{MakeTwin, ReasonReclaim}},
		"the claim was not read":                                {with(func(s *Snapshot) { s.Claim = ClaimFacts{} }), want{ReadClaim, ReasonReclaim}},
		"the claim was read too long ago":                       {with(func(s *Snapshot) { s.Claim.Read = read(1, 6*time.Second) }), want{ReadClaim, ReasonReclaim}},
		"another claim was read":                                {with(func(s *Snapshot) { s.Claim.Of.Name = "another" }), want{ReadClaim, ReasonReclaim}},
		"the claim lives":                                       {with(claimLives), want{Wait, ReasonClaimAlive}},
		"a claim of that name is a newer one, and names the PV": {with(restored), want{Wait, ReasonClaimNamesPV}},
		"a claim of that name is a newer one":                   {with(func(s *Snapshot) { s.Claim.Found, s.Claim.UID = true, "newer" }), want{MakeTwin, ReasonReclaim}},
		"attachments were not counted":                          {with(func(s *Snapshot) { s.Attachments = AttachmentFacts{} }), want{ReadAttachments, ReasonReclaim}},
		"attachments were counted too long ago":                 {with(func(s *Snapshot) { s.Attachments.Read = read(2, 6*time.Second) }), want{ReadAttachments, ReasonReclaim}},
		"attached":                                              {with(func(s *Snapshot) { s.Attachments.Count = 1 }), want{Wait, ReasonAttached}},
		"another PV needs the volume":                           {with(keeper), want{Wait, ReasonSharedSource}},
		"another PV of the volume goes too":                     {with(func(s *Snapshot) { s.Siblings = []PV{sibling()} }), want{MakeTwin, ReasonReclaim}},
		"another PV of the volume was not read":                 {with(func(s *Snapshot) { s.Siblings, s.SiblingsRead = []PV{sibling()}, Read{} }), want{ReadSiblings, ReasonReclaim}},
		"another PV of the volume was read too long ago":        {with(func(s *Snapshot) { s.Siblings, s.SiblingsRead = []PV{sibling()}, read(3, 6*time.Second) }), want{ReadSiblings, ReasonReclaim}},
		"another PV that goes too has a twin":                   {with(func(s *Snapshot) { s.Siblings = []PV{sibling(), twinFor(sibling())} }), want{MakeTwin, ReasonReclaim}},
		"a PV that calls itself the twin of none that goes":     {with(func(s *Snapshot) { s.Siblings = []PV{twinFor(sibling())} }), want{Wait, ReasonSharedSource}},
		"the PV was not read":                                   {with(func(s *Snapshot) { s.PVRead = Read{} }), want{ReadPV, ReasonReclaim}},
		"the PV was read too long ago":                          {with(func(s *Snapshot) { s.PVRead = read(4, 6*time.Second) }), want{ReadPV, ReasonReclaim}},
		"the PV was read before the claim":                      {with(func(s *Snapshot) { s.PVRead, s.Claim.Read = read(1, 0), read(4, 0) }), want{ReadPV, ReasonReclaim}},
		"the PV was read before the attachments":                {with(func(s *Snapshot) { s.PVRead, s.Attachments.Read = read(2, 0), read(4, 0) }), want{ReadPV, ReasonReclaim}},
		"the PV was read before its siblings":                   {with(func(s *Snapshot) { s.PVRead, s.SiblingsRead = read(3, 0), read(4, 0) }), want{ReadPV, ReasonReclaim}},
		"a try failed a moment ago":                             {with(func(s *Snapshot) { s.Failure.Until = now().Add(time.Second) }), want{Wait, ReasonVolumeFailedDelete}},
		"a try failed, there is no plugin":                      {with(func(s *Snapshot) { s.Failure = Failure{Until: now().Add(time.Second), PluginGone: true} }), want{Wait, ReasonPluginGone}},
		"a try failed, and it is time for another":              {with(func(s *Snapshot) { s.Failure.Until = now() }), want{MakeTwin, ReasonReclaim}},
		"a PV that is no twin has the name":                     {with(twinIs(func(pv *PV) { pv.TwinOf = "" })), want{Wait, ReasonTwinNameTaken}},
		"the twin of a PV that had the name before":             {with(twinIs(func(pv *PV) { pv.TwinOf = "older" })), want{Wait, ReasonTwinNameTaken}},
		"the twin's name, of another volume":                    {with(twinIs(func(pv *PV) { pv.Source = Source{2} })), want{Wait, ReasonTwinNameTaken}},
		"the twin's name, of another provisioner":               {with(twinIs(func(pv *PV) { pv.ProvisionedBy = "kubernetes.io/rbd" })), want{Wait, ReasonTwinNameTaken}},
		"a twin's label under another name":                     {with(twinIs(func(pv *PV) { pv.Name = "another" })), want{Wait, ReasonTwinNameTaken}},
		"a twin's label that names another original":            {with(twinIs(func(pv *PV) { pv.Original = "another" })), want{Wait, ReasonTwinNameTaken}},
		"armed, and no twin of ours: not touched":               {with(twinIs(append(armed, func(pv *PV) { pv.TwinOf = "" })...), pvIs(of(volume.PolicyRetain))), want{DropGuard, ReasonPolicyKeepsVolume}},

		// The twin's life.
		"made, the PV controller has not looked":               {with(twinIs()), want{Wait, ReasonTwinMade}},
		"made, before it has a phase":                          {with(twinIs(in(volume.PhaseUnknown))), want{Wait, ReasonTwinMade}},
		"released, all is proven: armed":                       {with(twinIs(in(volume.PhaseReleased))), want{ArmTwin, ReasonReclaim}},
		"released, nothing was read a second time":             {with(twinIs(in(volume.PhaseReleased)), func(s *Snapshot) { s.Claim = ClaimFacts{} }), want{ReadClaim, ReasonReclaim}},
		"released, attachments were not counted again":         {with(twinIs(in(volume.PhaseReleased)), func(s *Snapshot) { s.Attachments = AttachmentFacts{} }), want{ReadAttachments, ReasonReclaim}},
		"released, attached":                                   {with(twinIs(in(volume.PhaseReleased)), func(s *Snapshot) { s.Attachments.Count = 1 }), want{Wait, ReasonAttached}},
		"released, another PV needs the volume":                {with(twinIs(in(volume.PhaseReleased)), keeper), want{Wait, ReasonSharedSource}},
		"released, the PV was not read again":                  {with(twinIs(in(volume.PhaseReleased)), func(s *Snapshot) { s.PVRead = Read{} }), want{ReadPV, ReasonReclaim}},
		"released, the claim lives: deleted":                   {with(twinIs(in(volume.PhaseReleased)), claimLives), want{DeleteTwin, ReasonClaimAlive}},
		"released, a newer claim names the PV: deleted":        {with(twinIs(in(volume.PhaseReleased)), restored), want{DeleteTwin, ReasonClaimNamesPV}},
		"the PV controller took the claim away: deleted":       {with(twinIs(in(volume.PhaseAvailable), func(pv *PV) { pv.Claim.UID = "" })), want{DeleteTwin, ReasonTwinChanged}},
		"available: deleted":                                   {with(twinIs(in(volume.PhaseAvailable))), want{DeleteTwin, ReasonTwinChanged}},
		"somebody uses the twin":                               {with(twinIs(in(volume.PhaseBound))), want{Wait, ReasonTwinChanged}},
		"somebody uses the twin, which is armed":               {with(twinIs(in(volume.PhaseBound), of(volume.PolicyDelete))), want{DisarmTwin, ReasonTwinChanged}},
		"migrated by itself":                                   {with(twinIs(in(volume.PhaseReleased), migrate)), want{DeleteTwin, ReasonTwinChanged}},
		"a policy that somebody gave it":                       {with(twinIs(in(volume.PhaseReleased), of(volume.PolicyRecycle))), want{DisarmTwin, ReasonTwinChanged}},
		"armed":                                                {with(twinIs(armed...)), want{Wait, ReasonTwinArmed}},
		"armed before it was released":                         {with(twinIs(of(volume.PolicyDelete))), want{Wait, ReasonTwinArmed}},
		"armed, another PV needs the volume: disarmed":         {with(twinIs(armed...), keeper), want{DisarmTwin, ReasonSharedSource}},
		"armed, turned to Retain: disarmed":                    {with(twinIs(armed...), pvIs(of(volume.PolicyRetain))), want{DisarmTwin, ReasonPolicyKeepsVolume}},
		"disarmed, turned to Retain: deleted":                  {with(twinIs(in(volume.PhaseReleased)), pvIs(of(volume.PolicyRetain))), want{DeleteTwin, ReasonPolicyKeepsVolume}},
		"going, turned to Retain: the finalizer goes":          {with(twinIs(in(volume.PhaseReleased), going), pvIs(of(volume.PolicyRetain))), want{DropGuard, ReasonPolicyKeepsVolume}},
		"armed and going, turned to Retain: its end tells":     {with(twinIs(append(armed, going)...), pvIs(of(volume.PolicyRetain))), want{Wait, ReasonTwinEnding}},
		"armed and going, another manages it: disarmed":        {with(twinIs(append(armed, going)...), func(s *Snapshot) { s.Manages = ManagesOther }), want{DisarmTwin, ReasonControllerDeletes}},
		"armed and going, another's finalizer on it: disarmed": {with(twinIs(append(armed, going, guarded(WriterOther))...)), want{DisarmTwin, ReasonTwinEnding}},
		"going, another's finalizer on it: freed":              {with(twinIs(in(volume.PhaseReleased), going, guarded(WriterOther))), want{FreeTwin, ReasonTwinEnding}},
		"going, another manages it, its finalizer on: freed":   {with(twinIs(in(volume.PhaseReleased), going, guarded(WriterOther)), func(s *Snapshot) { s.Manages = ManagesOther }), want{FreeTwin, ReasonControllerDeletes}},
		"armed and going, released: disarmed":                  {with(releasing, twinIs(append(armed, going)...)), want{DisarmTwin, ReasonReleased}},
		"armed, held by a person: disarmed":                    {with(twinIs(armed...), pvIs(func(pv *PV) { pv.Held = true })), want{DisarmTwin, ReasonHeld}},
		"armed, an administrator took it back: disarmed":       {with(twinIs(armed...), pvIs(func(pv *PV) { pv.Claim.UID = "" })), want{DisarmTwin, ReasonNotClaimed}},
		"armed, the PV was bound anew: disarmed":               {with(twinIs(armed...), pvIs(in(volume.PhaseBound), func(pv *PV) { pv.Claim.UID = "newer" })), want{DisarmTwin, ReasonTerminatingBound}},
		"armed, the PV was bound anew and released":            {with(twinIs(armed...), pvIs(func(pv *PV) { pv.Claim.UID = "newer" })), want{DisarmTwin, ReasonTwinChanged}},
		"armed, the finalizer was taken off by hand":           {with(twinIs(armed...), pvIs(guarded(WriterNone))), want{DisarmTwin, ReasonDeletionUnprotected}},
		"armed, migrated: disarmed":                            {with(twinIs(armed...), pvIs(migrate)), want{DisarmTwin, ReasonMigratedUnprotected}},
		"armed and going":                                      {with(twinIs(append(armed, going)...)), want{Wait, ReasonTwinEnding}},
		"failed: disarmed":                                     {with(twinIs(in(volume.PhaseFailed), of(volume.PolicyDelete))), want{DisarmTwin, ReasonVolumeFailedDelete}},
		"failed and disarmed: deleted":                         {with(twinIs(in(volume.PhaseFailed))), want{DeleteTwin, ReasonVolumeFailedDelete}},
		"failed, disarmed and going":                           {with(twinIs(in(volume.PhaseFailed), going)), want{Wait, ReasonTwinEnding}},
		"its end was seen: the finalizer goes":                 {with(deleted), want{ReleasePV, ReasonVolumeDeleted}},
		"its end was seen, and the finalizer gone":             {with(deleted, pvIs(guarded(WriterNone))), want{Wait, ReasonVolumeGone}},
		"its end was seen, F from before goes":                 {with(deleted, pvIs(guarded(WriterNone), func(pv *PV) { pv.HasFinalizer = true })), want{ReleasePV, ReasonVolumeDeleted}},
		"its end was seen, turned to Retain since":             {with(deleted, pvIs(of(volume.PolicyRetain))), want{ReleasePV, ReasonTooLateToKeep}},
		"its end was seen, bound anew since":                   {with(deleted, pvIs(in(volume.PhaseBound))), want{ReleasePV, ReasonTooLateToKeep}},
		"its end was seen, of another claim since":             {with(deleted, pvIs(func(pv *PV) { pv.Claim.UID = "newer" })), want{ReleasePV, ReasonTooLateToKeep}},
		"its end was seen, and there is one again: deleted":    {with(deleted, twinIs()), want{DeleteTwin, ReasonVolumeDeleted}},
		"its end was seen, another manages it since: it has":   {with(deleted, func(s *Snapshot) { s.Manages = ManagesOther }), want{ReleasePV, ReasonVolumeDeleted}},

		// Release.
		"released, ours: off":                               {with(releasing), want{DropGuard, ReasonReleased}},
		"released, ours, in use: off":                       {with(releasing, pvIs(alive, in(volume.PhaseBound))), want{DropGuard, ReasonReleased}},
		"released, another's: stays":                        {with(releasing, pvIs(guarded(WriterOther))), want{Wait, ReasonReleased}},
		"released, nobody knows whose: stays":               {with(releasing, pvIs(guarded(WriterUnknown))), want{Wait, ReasonReleased}},
		"released, nothing on":                              {with(releasing, pvIs(guarded(WriterNone), func(pv *PV) { pv.HasFinalizer = true })), want{Wait, ReasonReleased}},
		"released, another is deleting the volume: stays":   {with(releasing, func(s *Snapshot) { s.Manages = ManagesOther }), want{Wait, ReasonReleased}},
		"released, another manages it, not deleted: off":    {with(releasing, pvIs(alive), func(s *Snapshot) { s.Manages = ManagesOther }), want{DropGuard, ReasonReleased}},
		"released, an armed twin is disarmed first":         {with(releasing, twinIs(armed...)), want{DisarmTwin, ReasonReleased}},
		"released, a twin is deleted first":                 {with(releasing, twinIs()), want{DeleteTwin, ReasonReleased}},
		"released, an orphan is deleted":                    {orphaned(releasing), want{DeleteTwin, ReasonOrphan}},
		"an orphan, the original was not looked for":        {orphaned(func(s *Snapshot) { s.Original = OriginalFacts{} }), want{ReadOriginal, ReasonOrphan}},
		"an orphan, looked for too long ago":                {orphaned(func(s *Snapshot) { s.Original.Read = read(1, 6*time.Second) }), want{ReadOriginal, ReasonOrphan}},
		"no orphan: the original is there":                  {orphaned(func(s *Snapshot) { s.Original.Gone = false }), want{Wait, ReasonCatchingUp}},
		"an orphan: deleted":                                {orphaned(), want{DeleteTwin, ReasonOrphan}},
		"an armed orphan: disarmed":                         {orphaned(func(s *Snapshot) { s.Twin.Policy = volume.PolicyDelete }), want{DisarmTwin, ReasonOrphan}},
		"an orphan that goes":                               {orphaned(func(s *Snapshot) { s.Twin.Terminating = true }), want{Wait, ReasonOrphan}},
		"an orphan in use":                                  {orphaned(func(s *Snapshot) { s.Twin.Phase = volume.PhaseBound }), want{Wait, ReasonOrphan}},
		"a PV with a twin's label, under a name of its own": {orphaned(func(s *Snapshot) { s.Twin.Name = "mine" }), want{Wait, ReasonNotOurs}},
		"a PV with a twin's label, of no in-tree plugin":    {orphaned(func(s *Snapshot) { s.Twin.ProvisionedBy = "" }), want{Wait, ReasonNotOurs}},
		"a PV with a twin's label, of no in-tree volume":    {orphaned(func(s *Snapshot) { s.Twin.Source = Source{} }), want{Wait, ReasonNotOurs}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Decide(c.s, now()).want(); got != c.want {
				t.Errorf("Decide = %v %v, want %v %v", got.Action, got.Reason, c.want.Action, c.want.Reason)
			}
		})
	}
}

func deleted(s *Snapshot)   { s.Done = Done{VolumeDeleted: true, Claim: claimRef()} }
func releasing(s *Snapshot) { s.Releasing = true }

// twinFor is the twin of another PV.
func twinFor(pv PV) PV {
	twin := made()
	twin.Name, twin.UID, twin.Claim, twin.TwinOf, twin.Original = TwinName(pv.Name), "twin-"+pv.UID, pv.Claim, pv.UID, pv.Name
	return twin
}

// orphaned is a twin whose original was looked for and not found.
func orphaned(alter ...func(*Snapshot)) Snapshot {
	s := Snapshot{Manages: ManagesNobody, Twin: made(), TwinFound: true, Original: OriginalFacts{Read: read(1, 0), Gone: true}}
	for _, a := range alter {
		a(&s)
	}
	return s
}

func TestHowLongItIsWaited(t *testing.T) {
	attached := with(func(s *Snapshot) { s.Attachments.Count = 1 })
	if d := Decide(attached, now()); !d.Timed {
		t.Error("the end of an attachment is told by no event that is watched, so it is looked at by the clock")
	}
	failed := with(func(s *Snapshot) { s.Failure.Until = now().Add(7 * time.Second) })
	if d := Decide(failed, now()); d.After != 7*time.Second {
		t.Errorf("the next try comes after %v, want 7s", d.After)
	}
}

func TestEveryReasonSaysWhatItMeans(t *testing.T) {
	seen := map[Reason]bool{}
	for _, reason := range Reasons() {
		if reason.Sentence() == "" || seen[reason] {
			t.Errorf("%q says nothing, or is there twice", reason)
		}
		seen[reason] = true
	}
	if Reason("nothing").Sentence() != "" {
		t.Error("a reason that is none says something")
	}
	for a := Wait; a <= ReleasePV; a++ {
		if a.String() == "Unknown" {
			t.Errorf("action %d has no name", a)
		}
	}
}
