package intree

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/sessiontest"
)

// Each operand of a condition counts by itself.

func TestActions(t *testing.T) { sessiontest.Actions(t, RemoveFinalizerByUID) }

func TestShared(t *testing.T) {
	keeper, own, siblings := sibling(of(volume.PolicyRetain)), made(), twinFor(sibling())
	unclaimed := sibling(func(pv *PV) { pv.Claim = volume.ClaimRef{} })
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
		"one that never had a claim":             {[]PV{unclaimed}, true},
	} {
		f := Facts{PV: due(), Siblings: c.siblings}
		if got := f.shared(); got != c.shared || len(f.NeededBy()) > 0 != c.shared {
			t.Errorf("%s: shared %t, needed by %q", name, got, f.NeededBy())
		}
	}
	if (Facts{PV: due(), Twin: made()}).twin() {
		t.Error("a twin that was not found is one")
	}
	named := func(name string) func(*PV) { return func(pv *PV) { pv.Name, pv.UID = name, types.UID(name) } }
	f := Facts{PV: due(), Siblings: []PV{sibling(hold, named("keeper")), sibling(), sibling(named("restored"))},
		SiblingNeeded: "restored"}
	if got := f.NeededBy(); !slices.Equal(got, []string{"keeper", "restored"}) {
		t.Errorf("needed by %q", got)
	}
}

func TestRemovableFinalizers(t *testing.T) {
	pv := sibling(sidecars)
	migrated := sibling(sidecars, migrate)
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

func TestAttachmentNamesOfVolume(t *testing.T) {
	f := with(siblings(sibling()))
	if got, want := f.names(), []string{f.PV.Name, volume.TwinName(f.PV.Name), "other"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestTwinIdentity(t *testing.T) {
	for name, c := range map[string]struct {
		alter       func(*PV)
		looks, isIt bool
	}{
		"on creation":            {func(*PV) {}, true, true},
		"of another UID":         {twinOf("another"), true, false},
		"of another volume":      {sourceIs(Source{9}), true, false},
		"of an unknown volume":   {sourceIs(Source{}), false, false},
		"of another plugin":      {by("kubernetes.io/other"), true, false},
		"of no plugin":           {by("other"), false, false},
		"without the label":      {twinOf(""), false, false},
		"under another name":     {func(pv *PV) { pv.Name = "another" }, false, false},
		"without the annotation": {func(pv *PV) { pv.Name, pv.Original = volume.TwinName(""), "" }, false, false},
		"of another name": {func(pv *PV) { pv.Name, pv.Original = volume.TwinName("another"), "another" }, true,
			false},
	} {
		twin := made(c.alter)
		if looks, is := twin.LooksLikeTwin(), isTwinOf(twin, due()); looks != c.looks || is != c.isIt {
			t.Errorf("%s: looks like one %t, is one %t", name, looks, is)
		}
	}
}

func TestDecidedPVs(t *testing.T) {
	for name, pv := range map[string]PV{"provisioned": bound(), "a twin": made(), "static": sibling(by(""))} {
		if got := pv.Decided(); got != (name != "static") {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestReasons(t *testing.T) { sessiontest.Reasons(t, Reasons(), 1, ReasonProtect) }
