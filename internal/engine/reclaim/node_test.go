package reclaim

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// onNode are the facts of a node's own process.
func onNode(s *Facts) {
	s.Rules.Local, s.PV.Reach = true, volume.ReachHere
	s.NodesListed, s.OnlyNode = read(1, 2*time.Second), true
	s.ClaimRead, s.PVRead = read(2, time.Second), read(3, 0)
}

func TestDecideOnNode(t *testing.T) {
	elsewhere, unclear := pvIs(reach(volume.ReachElsewhere)), pvIs(reach(volume.ReachUnclear))
	bound, unprotected := pvIs(in(volume.PhaseBound)), pvIs(unguarded)
	listed := func(read session.Read) func(*Facts) { return func(s *Facts) { s.NodesListed = read } }
	notAlone := func(s *Facts) { s.OnlyNode = false }
	check(t, decisions{
		{"its own volume: deleted", with(onNode), do(DeleteVolume, ReasonReclaim)},
		{"its own volume: protected", with(onNode, bound, unprotected), do(AddFinalizer, ReasonProtect)},
		{"another node's: not deleted", with(onNode, elsewhere), waiting(ReasonOtherNode)},
		{"another node's: not protected", with(onNode, elsewhere, bound, unprotected), waiting(ReasonOtherNode)},
		{"another node's, to be kept: not let go", with(onNode, elsewhere, pvIs(of(volume.PolicyRetain))),
			waiting(ReasonOtherNode)},
		{"not clear whose: not deleted, and told of", with(onNode, unclear), waiting(ReasonNodeUnclear)},
		{"not clear whose, PV first: told of", with(onNode, unclear, bound, pvIs(terminating)), waiting(ReasonNodeUnclear)},
		{"not clear whose, terminating, to be kept: told of",
			with(onNode, unclear, pvIs(terminating, of(volume.PolicyRetain))), waiting(ReasonNodeUnclear)},
		{"not clear whose, terminating, to be kept, without our finalizer: left in peace",
			with(onNode, unclear, pvIs(terminating, unguarded, of(volume.PolicyRetain))), waiting(ReasonNoNode)},
		{"not clear whose, terminating, without a claim: told of", with(onNode, unclear, pvIs(terminating, unclaimedPV)),
			waiting(ReasonNodeUnclear)},
		{"not clear whose, to be kept, gone: settled",
			with(onNode, unclear, goneFinally, pvIs(terminating, of(volume.PolicyRetain))), ended(ReasonNoNode)},
		{"another node's, terminating, to be kept: left to it",
			with(onNode, elsewhere, pvIs(terminating, of(volume.PolicyRetain))), waiting(ReasonOtherNode)},
		{"not clear whose, in use: left in peace", with(onNode, unclear, bound, unprotected), waiting(ReasonNoNode)},
		{"not clear whose, gone: told of once", with(onNode, unclear, unprotected, goneFinally), ended(ReasonNodeUnclear)},
		{"release: the finalizers of its own PVs go", with(onNode, mode(ModeRelease)),
			do(RemoveFinalizer, ReasonFinalizersRemoved)},
		{"release: the finalizers of other PVs stay", with(onNode, elsewhere, mode(ModeRelease)), waiting(ReasonOtherNode)},
		{"the nodes were not looked at: looks", with(onNode, listed(session.Read{})),
			do(ListNodes, ReasonReclaim)},
		{"looked at too long ago: looks again", with(onNode, listed(read(1, session.LiveFor+1))),
			do(ListNodes, ReasonReclaim)},
		{"another node in its place: not deleted", with(onNode, notAlone),
			looking(ReasonTopologyNotUnique)},
		{"the nodes were looked at after the PV: again", with(onNode, func(s *Facts) { s.NodesListed.Order = 4 }),
			do(ReadPV, ReasonReclaim)},
		{"a volume that it deleted: despite its present answer", with(onNode, unclear, volumeGone(false, false)),
			do(DeletePV, ReasonVolumeDeleted)},
		{"gone before it was protected, another node in its place",
			with(onNode, notAlone, unprotected, goneFinally, current, func(s *Facts) { s.History.SeenAlive = true }),
			looking(ReasonTopologyNotUnique)},
	})
}

// The way out of a PV that no node decides on is a command, unless the PV has no finalizer of this role.
func TestNodeUnclearNamesCommand(t *testing.T) {
	unclear := func(changes ...func(*volume.PV)) Facts {
		return with(onNode, pvIs(reach(volume.ReachUnclear)), pvIs(changes...))
	}
	for name, c := range map[string]struct {
		facts Facts
		want  string
	}{
		"terminating": {unclear(terminating), `kubectl patch pv pv -p ` +
			`'{"metadata":{"$deleteFromPrimitiveList/finalizers":["` + volume.Finalizer + `"]}}'`},
		"with both finalizers": {unclear(terminating, guardedByCompanion),
			`["` + volume.Finalizer + `","` + volume.CompanionFinalizer + `"]`},
		"without": {unclear(terminating, unguarded), ""},
		"gone":    {with(onNode, goneFinally, pvIs(reach(volume.ReachUnclear), terminating)), ""},
	} {
		words := detail(c.facts, ReasonNodeUnclear)
		if !strings.Contains(words, c.want) || strings.Contains(words, "kubectl") == (c.want == "") {
			t.Errorf("%s: %q, want %q", name, words, c.want)
		}
	}
}

// The volume of a PV that no node decides on stays, unless the PV asks for its deletion and nothing is known to use it.
func TestNodeUnclearKeepsVolume(t *testing.T) {
	bound, retain := pvIs(in(volume.PhaseBound)), pvIs(of(volume.PolicyRetain))
	claimIs := func(uid types.UID) func(*Facts) {
		return func(s *Facts) {
			s.ClaimRead = read(1, 0)
			s.Claim = pvclaim.Result{Of: s.PV.Claim, Found: true, UID: uid, VolumeName: s.PV.Name}
		}
	}
	for name, c := range map[string]struct {
		change func(*Facts)
		keep   string
	}{
		"released, to be deleted":           {func(*Facts) {}, ""},
		"the same, and gone":                {goneFinally, ""},
		"bound, to be kept":                 {func(s *Facts) { bound(s); retain(s) }, "claim ns/claim may use it"},
		"bound, to be deleted":              {bound, "claim ns/claim may use it"},
		"bound and gone":                    {func(s *Facts) { bound(s); goneFinally(s) }, "claim ns/claim may use it"},
		"its claim exists, by a read":       {claimIs("claim-uid"), "claim ns/claim may use it"},
		"another claim names it, by a read": {claimIs("new"), "claim ns/claim may use it"},
		"released, to be kept":              {retain, "the reclaim policy keeps it"},
		"held":                              {pvIs(held), "the PV is held"},
		"not claimed":                       {pvIs(unclaimedPV), "the PV belongs to no claim"},
		"with another PV": {func(s *Facts) { s.Siblings = []volume.PV{{Name: "other"}} },
			"PV other names it, too"},
	} {
		s := with(onNode, pvIs(reach(volume.ReachUnclear), terminating))
		s.ClaimRead = session.Read{}
		c.change(&s)
		words := detail(s, ReasonNodeUnclear)
		kept, deleted := strings.Contains(words, "Keep volume"), strings.Contains(words, "delete volume")
		if !strings.Contains(words, c.keep) || kept != (c.keep != "") || deleted == kept {
			t.Errorf("%s: %q, want %q", name, words, c.keep)
		}
	}
}
