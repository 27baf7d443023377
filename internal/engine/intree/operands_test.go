package intree

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Each operand of a condition counts by itself.

func TestMigratedPVWithKeepingPolicyLosesFinalizer(t *testing.T) {
	for _, policy := range []volume.Policy{volume.PolicyRetain, volume.PolicyRecycle} {
		s := proven()
		pvIs(migrate, of(policy))(&s)
		if d := Decide(s, now()); d.Action != RemoveFinalizer || d.Reason != ReasonMigrated {
			t.Errorf("policy %v: %s because %s", policy, d.Action, d.Reason)
		}
	}
}

func TestNoWaitWithoutYieldedSince(t *testing.T) {
	s := proven()
	s.Other = OtherPresent
	if d := Decide(s, now()); d.After != 0 {
		t.Errorf("waits %s", d.After)
	}
}

func TestClaimState(t *testing.T) {
	pv, asked := due(), read(1, 0)
	for name, c := range map[string]struct {
		claim ClaimFacts
		want  claimState
	}{
		"not read":                  {ClaimFacts{Of: pv.Claim}, claimUnknown},
		"read for another":          {ClaimFacts{Read: asked, Of: sibling().Claim}, claimUnknown},
		"gone":                      {ClaimFacts{Read: asked, Of: pv.Claim}, claimGone},
		"gone, despite other reads": {ClaimFacts{Read: asked, Of: pv.Claim, UID: pv.Claim.UID}, claimGone},
		"gone, by another read":     {ClaimFacts{Read: asked, Of: pv.Claim, VolumeName: pv.Name}, claimGone},
		"exists":                    {ClaimFacts{Read: asked, Of: pv.Claim, Found: true, UID: pv.Claim.UID}, claimExists},
		"exists, bound to the PV": {
			ClaimFacts{Read: asked, Of: pv.Claim, Found: true, UID: pv.Claim.UID, VolumeName: pv.Name}, claimExists},
		"another of the name": {ClaimFacts{Read: asked, Of: pv.Claim, Found: true, UID: "new"}, claimGone},
		"another of the name, which names the PV": {
			ClaimFacts{Read: asked, Of: pv.Claim, Found: true, UID: "new", VolumeName: pv.Name}, claimNamesPV},
	} {
		if got := stateOf(c.claim, pv); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestKindsOfActions(t *testing.T) {
	for a := Wait; a <= RemoveFinalizerByUID+1; a++ {
		want := session.Writes
		switch {
		case a == Wait:
			want = session.Waits
		case strings.HasPrefix(a.String(), "Read"):
			want = session.Reads
		}
		if a.Kind() != want {
			t.Errorf("%s: kind %d, want %d", a, a.Kind(), want)
		}
	}
}

func TestShared(t *testing.T) {
	keeper, own, siblings := sibling(), made(), twinFor(sibling())
	keeper.Policy = volume.PolicyRetain
	for name, c := range map[string]struct {
		siblings []PV
		shared   bool
	}{
		"no other PV":                            {nil, false},
		"its own twin":                           {[]PV{own}, false},
		"one to be deleted, too":                 {[]PV{sibling()}, false},
		"one to be deleted, too, and its twin":   {[]PV{sibling(), siblings}, false},
		"the twin of an absent PV":               {[]PV{siblings}, true},
		"a kept PV":                              {[]PV{keeper}, true},
		"a kept PV and its twin":                 {[]PV{keeper, siblings}, true},
		"its own twin, and a kept PV":            {[]PV{own, keeper}, true},
		"a twin of a kept PV, own twins":         {[]PV{own, siblings}, true},
		"its own twin, and the twin of its twin": {[]PV{own, twinFor(own)}, true},
	} {
		f := Facts{PV: due(), Siblings: c.siblings}
		if got := f.shared(); got != c.shared || len(f.NeededBy()) > 0 != c.shared {
			t.Errorf("%s: shared %t, needed by %q", name, got, f.NeededBy())
		}
	}
	unclaimed := sibling()
	unclaimed.Claim = volume.ClaimRef{}
	if !(Facts{PV: due(), Siblings: []PV{unclaimed}}).shared() {
		t.Error("a PV without claim does not ask for the end of the volume")
	}
	if (Facts{PV: due(), Twin: made()}).twin() {
		t.Error("a twin that was not found is one")
	}
}

func TestNeededBy(t *testing.T) {
	keeper, restored := sibling(), sibling()
	keeper.Name, keeper.UID, keeper.Held = "keeper", "keeper-uid", true
	restored.Name, restored.UID = "restored", "restored-uid"
	f := Facts{PV: due(), Siblings: []PV{keeper, sibling(), restored}, SiblingNeeded: "restored"}
	if got := f.NeededBy(); !slices.Equal(got, []string{"keeper", "restored"}) {
		t.Errorf("%q", got)
	}
}

func TestRemovableFinalizers(t *testing.T) {
	pv := due()
	pv.HasFinalizer = true
	migrated := pv
	migrate(&migrated)
	for name, c := range map[string]struct {
		facts Facts
		want  []string
	}{
		"a PV of its plugin":         {Facts{PV: pv}, []string{Finalizer, volume.Finalizer}},
		"a PV that is migrated":      {Facts{PV: migrated}, []string{Finalizer}},
		"when this program is ended": {Facts{PV: pv, RemovingFinalizers: true}, []string{Finalizer}},
	} {
		if got := c.facts.removable(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The other program is given time for each step that this program would take if it were alone.
func TestOtherActs(t *testing.T) {
	for name, c := range map[string]struct {
		f    Facts
		acts bool
	}{
		"in use without the finalizer":        {with(pvIs(alive, guarded(WriterNone))), true},
		"in use with it":                      {with(pvIs(alive, guarded(WriterOther))), false},
		"kept, without the finalizer":         {with(pvIs(alive, of(volume.PolicyRetain), guarded(WriterNone))), false},
		"kept, with ours":                     {with(pvIs(of(volume.PolicyRetain))), true},
		"kept, with another's":                {with(pvIs(of(volume.PolicyRetain), guarded(WriterOther))), true},
		"migrated, without the finalizer":     {with(pvIs(alive, migrate, guarded(WriterNone))), false},
		"migrated, with ours":                 {with(pvIs(alive, migrate)), true},
		"migrated while terminating":          {with(pvIs(migrate)), true},
		"due":                                 {with(), true},
		"due, another's finalizer":            {with(pvIs(guarded(WriterOther))), true},
		"due, writer unknown":                 {with(pvIs(guarded(WriterUnknown))), true},
		"due, with a hold, which it ignores":  {with(pvIs(hold)), true},
		"due without the finalizer":           {with(pvIs(guarded(WriterNone))), false},
		"its deletion failed":                 {with(pvIs(in(volume.PhaseFailed))), true},
		"its deletion failed, another's":      {with(pvIs(in(volume.PhaseFailed), guarded(WriterOther))), false},
		"its deletion failed, writer unknown": {with(pvIs(in(volume.PhaseFailed), guarded(WriterUnknown))), false},
		"not claimed":                         {with(func(f *Facts) { f.PV.Claim = volume.ClaimRef{} }), false},
	} {
		if got := c.f.otherActs(now()); got != c.acts {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Decide is called again when the time of the other program is over.
func TestYieldedPVWaitsUntilIdleAfter(t *testing.T) {
	s := with(leftFor(IdleAfter - time.Second))
	if d := Decide(s, now()); d.Action != Wait || d.After != time.Second {
		t.Errorf("%s, waits %s", d.Action, d.After)
	}
	s = with(leftFor(2*IdleAfter), pvIs(alive, guarded(WriterOther)))
	if d := Decide(s, now()); d.Action != Wait || d.After != 0 {
		t.Errorf("%s, waits %s", d.Action, d.After)
	}
}

// Only a wait for the claim that has lasted a minute has an Event.
func TestTerminatingUnboundIsQuietAtFirst(t *testing.T) {
	for age, left := range map[time.Duration]time.Duration{20 * time.Second: 40 * time.Second, time.Minute: 0} {
		s := with(pvIs(in(volume.PhasePending), func(pv *PV) { pv.TerminatingSince = now().Add(-age).Unix() }))
		if d := Decide(s, now()); d.Reason != ReasonTerminatingUnbound || d.Quiet != (left > 0) || d.After != left {
			t.Errorf("after %s: %+v", age, d)
		}
	}
}

func TestAttachmentNamesOfVolume(t *testing.T) {
	f := with(func(f *Facts) { f.Siblings = []PV{sibling()} })
	if got, want := f.names(), []string{f.PV.Name, volume.TwinName(f.PV.Name), "other"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestNewerResourceVersion(t *testing.T) {
	for name, c := range map[string]struct {
		version, than string
		want          bool
	}{
		"later": {"10", "9", true}, "earlier": {"9", "10", false}, "the same": {"9", "9", false},
		"no number": {"x", "9", true},
	} {
		if got := newer(c.version, c.than); got != c.want {
			t.Errorf("%s: newer: %t", name, got)
		}
	}
}

func TestTwinIdentity(t *testing.T) {
	for name, c := range map[string]struct {
		alter       func(*PV)
		looks, isIt bool
	}{
		"on creation":            {func(*PV) {}, true, true},
		"of another UID":         {func(pv *PV) { pv.TwinOf = "another" }, true, false},
		"of another volume":      {func(pv *PV) { pv.Source = Source{9} }, true, false},
		"of an unknown volume":   {func(pv *PV) { pv.Source = Source{} }, false, false},
		"of another plugin":      {func(pv *PV) { pv.ProvisionedBy = "kubernetes.io/other" }, true, false},
		"of no plugin":           {func(pv *PV) { pv.ProvisionedBy = "other" }, false, false},
		"without the label":      {func(pv *PV) { pv.TwinOf = "" }, false, false},
		"under another name":     {func(pv *PV) { pv.Name = "another" }, false, false},
		"without the annotation": {func(pv *PV) { pv.Name, pv.Original = volume.TwinName(""), "" }, false, false},
		"of another name": {func(pv *PV) { pv.Name, pv.Original = volume.TwinName("another"), "another" }, true,
			false},
	} {
		twin := made()
		c.alter(&twin)
		if looks, is := twin.LooksLikeTwin(), isTwinOf(twin, due()); looks != c.looks || is != c.isIt {
			t.Errorf("%s: looks like one %t, is one %t", name, looks, is)
		}
	}
}

func TestDecidedPVs(t *testing.T) {
	static, twin := bound(), made()
	static.ProvisionedBy = ""
	for name, c := range map[string]struct {
		pv   PV
		want bool
	}{"provisioned": {bound(), true}, "a twin": {twin, true}, "neither": {static, false}} {
		if got := c.pv.Decided(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A twin on which the PV controller has not failed is deleted before another program's finalizer is removed from it.
func TestTwinDeletedBeforeFinalizerRemoval(t *testing.T) {
	s := with(twinIs(in(volume.PhaseReleased), guarded(WriterOther)), func(f *Facts) { f.Tombstone = Tombstone{} },
		pvIs(func(pv *PV) { pv.Policy = volume.PolicyRetain }))
	if d := Decide(s, now()); d.Action != DeleteTwin {
		t.Errorf("%s because %s", d.Action, d.Reason)
	}
	s = orphaned(func(f *Facts) { f.TwinFound = false })
	if d := Decide(s, now()); d.Action != Wait || d.Reason != ReasonNotOurs {
		t.Errorf("a twin that was not found: %s because %s", d.Action, d.Reason)
	}
}
