package reclaim

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/sessiontest"
	"k8s.io/apimachinery/pkg/types"
)

// The facts of a decision are two groups. The PV, the rules and the past determine whether a volume may be deleted at
// all, and the proofs whether it may be deleted now. Each group is visited in every combination of its values: the
// first with every proof given, the second for every kind of PV that the first found deletable. Random draws mix both
// groups.

// everyPV visits every PV with this provisioner and terminating state.
func everyPV(provisionedBy string, terminating bool, visit func(volume.PV)) {
	pv := released().PV
	pv.ProvisionedBy, pv.Terminating = provisionedBy, terminating
	for bits := range 1 << 4 {
		bit := func(i int) bool { return bits&(1<<i) != 0 }
		pv.HasFinalizer, pv.HasCompanionFinalizer, pv.Held = bit(0), bit(1), bit(2)
		pv.Claim.UID = ""
		if bit(3) {
			pv.Claim.UID = "claim-uid"
		}
		for pv.Policy = volume.PolicyUnknown; pv.Policy <= volume.PolicyRecycle; pv.Policy++ {
			for _, pv.Phase = range []volume.Phase{volume.PhaseUnknown, volume.PhaseAvailable, volume.PhaseBound,
				volume.PhaseReleased, volume.PhaseFailed} {
				visit(pv)
			}
		}
	}
}

// everyRules visits every combination of settings in a role.
func everyRules(role volume.Role, visit func(Rules)) {
	for bits := range 1 << 3 {
		bit := func(i int) bool { return bits&(1<<i) != 0 }
		r := Rules{Driver: driver, Role: role, IgnoreStatic: bit(0), ReclaimUnprotected: bit(1)}
		if bit(2) {
			r.Scope = ScopeBoundAny
		}
		for r.Mode = ModeHonor; r.Mode <= ModeRelease; r.Mode++ {
			visit(r)
		}
	}
}

// everyPast visits every history of a PV.
func everyPast(pv volume.PV, visit func(End, History, Done)) {
	dones := []Done{{}, {Protected: true}, done(pv, false, false), done(pv, true, false), done(pv, true, true)}
	for _, d := range dones {
		for _, letGo := range []bool{false, true} {
			visit(End{}, History{SeenAlive: true, Stripped: letGo}, d)
		}
	}
	for bits := range 1 << 5 {
		bit := func(i int) bool { return bits&(1<<i) != 0 }
		for _, d := range []Done{{}, done(pv, false, false)} {
			visit(End{Gone: true, Final: bit(0), Shared: bit(1)}, History{SeenAlive: bit(2), SeenProtected: bit(3),
				Stripped: bit(4)}, d)
		}
	}
}

// proven returns facts with every proof that a deletion needs.
func proven() Facts {
	s := released()
	s.PVsListed = read(1, 2*time.Second)
	s.ClaimRead = read(2, time.Second)
	s.AttachmentsCurrent = true
	return s
}

// everyProof visits every combination of the proofs of a deletion.
func everyProof(s Facts, visit func(Facts)) {
	claims := []struct {
		claim pvclaim.Result
		read  session.Read
	}{
		{},                                     // not read
		{pvclaim.Result{}, read(2, time.Hour)}, // not found, too long ago
		{pvclaim.Result{}, read(2, 0)},         // not found
		{pvclaim.Result{Found: true, UID: "newer"}, read(2, 0)},
		{pvclaim.Result{Found: true, UID: "newer", VolumeName: "pv"}, read(2, 0)},
		{pvclaim.Result{Found: true, UID: "claim-uid", VolumeName: "pv"}, read(2, 0)},
		{pvclaim.Result{Found: true, UID: "claim-uid", VolumeName: "pv-2"}, read(2, 0)},
	}
	reads := []session.Read{{}, read(4, time.Hour), read(4, 0), read(1, 0)}
	keeper, held, used, twin, copied := sibling(), sibling(), sibling(), sibling(), sibling()
	keeper.Phase, held.Held, used.WasAttached = volume.PhaseBound, true, true
	twin.Phase, twin.TwinOf, twin.Name, twin.Claim = volume.PhasePending, s.PV.UID, s.PV.Name+"-reclaim", s.PV.Claim
	copied.Phase, copied.TwinOf = volume.PhaseBound, s.PV.UID
	families := []struct {
		pvs    []volume.PV
		read   session.Read
		needed string
	}{
		{}, {[]volume.PV{sibling()}, session.Read{}, ""}, {[]volume.PV{sibling()}, read(3, 0), ""},
		{[]volume.PV{sibling()}, read(3, 0), "other"},
		{[]volume.PV{sibling(), keeper}, read(3, 0), ""}, {[]volume.PV{twin}, read(3, 0), ""},
		{[]volume.PV{copied}, read(3, 0), ""}, {[]volume.PV{held}, read(3, 0), ""},
		{[]volume.PV{used}, read(3, 0), ""},
	}
	handle := s.PV.Handle
	for bits := range 1 << 6 {
		bit := func(i int) bool { return bits&(1<<i) != 0 }
		s.PV.WasAttached, s.AttachmentsCurrent, s.SecretsRead, s.Rules.NeverAttached = bit(0), bit(1), bit(2), bit(3)
		s.Attachments, s.PV.Handle = 0, handle
		if bit(4) {
			s.Attachments = 1
		}
		if bit(5) {
			s.PV.Handle = ""
		}
		for _, of := range claims {
			s.Claim, s.ClaimRead = of.claim, of.read
			s.Claim.Of = s.PV.Claim
			for _, s.PVRead = range reads {
				for _, family := range families {
					s.Siblings, s.SiblingsRead, s.SiblingNeeded = family.pvs, family.read, family.needed
					for _, s.PVsListed = range []session.Read{{}, read(1, 0), read(1, time.Hour), read(3, 0)} {
						for _, n := range everyNodes(s) {
							s.OnlyNode, s.NodesListed = n.alone, n.read
							visit(s)
						}
					}
				}
			}
		}
	}
}

// looked is the result of a list of nodes.
type looked struct {
	alone bool
	read  session.Read
}

// everyNodes returns the possible results of a list of nodes, where it matters.
func everyNodes(s Facts) []looked {
	switch {
	case !s.Rules.Local:
		return []looked{{}}
	case s.Attachments > 0 || s.PV.Handle == "" || s.Rules.NeverAttached:
		return []looked{{true, read(1, 0)}}
	}
	return []looked{{true, read(1, 0)}, {false, read(1, 0)}, {true, session.Read{}}, {true, read(1, time.Hour)},
		{true, read(5, 0)}}
}

// onNodes visits the facts of a process for the whole cluster and, unless node deployment makes no difference, of
// processes on nodes.
func onNodes(s Facts, visit func(Facts)) {
	visit(s)
	if s.Contested || s.Brake != BrakeOff || s.Rules.Scope != ScopeBoundDelete || s.Rules.Role == volume.RoleUnknown {
		return
	}
	s.Rules.Local, s.OnlyNode, s.NodesListed = true, true, read(1, 0)
	for s.PV.Reach = volume.ReachUnclear; s.PV.Reach <= volume.ReachHere; s.PV.Reach++ {
		visit(s)
	}
}

// mayGo reports whether the PV, the rules and the past permit the deletion of the volume: promise P2 as the contract
// states it, written independently of the code that keeps it.
func mayGo(s Facts) bool {
	pv, r := s.PV, s.Rules
	static := pv.ProvisionedBy == ""
	ours := (static && pv.Driver == driver && !r.IgnoreStatic) || pv.ProvisionedBy == driver
	due := pv.Policy == volume.PolicyDelete && (pv.Phase == volume.PhaseReleased || pv.Phase == volume.PhaseFailed) &&
		pv.Claim.UID != ""
	if r.Local && pv.Reach != volume.ReachHere {
		return false // another node's, or unclear
	}
	if !ours || !due || pv.Held || s.Brake != BrakeOff || s.Done.VolumeDeleted {
		return false
	}
	if s.End.Gone {
		return r.Mode == ModeHonor && r.ReclaimUnprotected && r.Role != volume.RoleUnknown &&
			s.End.Final && !s.End.Shared && s.History.SeenAlive && !s.History.SeenProtected && !s.History.Stripped &&
			!pv.HasCompanionFinalizer && (r.Role == volume.RoleCompanion || !pv.HasFinalizer)
	}
	switch {
	case r.Role == volume.RoleOwner && r.Mode == ModeHonor:
		return pv.HasFinalizer || pv.HasCompanionFinalizer || (s.Contested && !pv.Terminating)
	case r.Role == volume.RoleOwner && r.Mode == ModeRollback:
		return pv.HasFinalizer || pv.HasCompanionFinalizer || !pv.Terminating
	case r.Role == volume.RoleCompanion && r.Mode != ModeRelease:
		return pv.HasCompanionFinalizer && pv.Terminating
	}
	return false
}

// isProven reports whether the proofs are given: P2 and P2b.
func isProven(s Facts) bool {
	age := func(t time.Time) time.Duration { return now().Sub(t) }
	live := func(r session.Read) bool { return r.Order > 0 && age(r.Sent) <= 5*time.Second }
	pv, claim := s.PV, s.Claim
	claimGone := live(s.ClaimRead) && (!claim.Found || (claim.UID != pv.Claim.UID && claim.VolumeName != pv.Name) ||
		(pv.ProvisionedBy != "" && claim.VolumeName != "" && claim.VolumeName != pv.Name))
	attached := pv.WasAttached
	for _, other := range s.Siblings {
		attached = attached || other.WasAttached
	}
	free := s.Attachments == 0 && (s.AttachmentsCurrent || s.Rules.NeverAttached || (!attached && !s.End.Gone))
	own := !s.Rules.Local || (s.OnlyNode && live(s.NodesListed))
	common := own && claimGone && free && s.SecretsRead && pv.Handle != ""
	if s.End.Gone {
		return common && len(s.Siblings) == 0 && live(s.PVsListed) && s.PVsListed.Order < s.ClaimRead.Order
	}
	alone := true
	for _, other := range s.Siblings {
		goes := other.Policy == volume.PolicyDelete && other.Phase == volume.PhaseReleased && other.Claim.UID != ""
		goes = goes && s.SiblingNeeded != other.Name || other.TwinOf == pv.UID && other.Name == pv.Name+"-reclaim"
		alone = alone && goes && !other.Held && live(s.SiblingsRead) && s.PVRead.Order > s.SiblingsRead.Order
	}
	return common && alone && live(s.PVRead) && s.PVRead.Order > s.ClaimRead.Order && s.PVRead.Order > s.NodesListed.Order
}

// broken returns the promise that a decision breaks, empty for none.
func broken(s Facts, d Decision) string {
	pv, r := s.PV, s.Rules
	mustOutlive := pv.Policy == volume.PolicyDelete && pv.Claim.UID != ""
	ignored := r.IgnoreStatic && pv.ProvisionedBy == ""
	deletable := mayGo(s) && isProven(s)
	if !s.Leading {
		if d.Action != Wait || d.Reason.Waits() {
			return "acts or reports without the lease"
		}
		return ""
	}
	switch {
	case d.Action.writes() && r.Local && pv.Reach != volume.ReachHere && !s.Done.VolumeDeleted:
		return "acts on a PV that is not its node's alone"
	case d.Action == DeleteVolume && !deletable:
		return "P2: deletes a volume without proof"
	case d.Action != DeleteVolume && deletable:
		return "P1: keeps a volume that is proven to be deletable"
	case d.Action == RemoveFinalizer && mustOutlive && r.Mode == ModeHonor && !ignored:
		return "P1: gives up the protection of a PV that must outlive its volume"
	case d.Action == RemoveFinalizer && mayGo(s):
		return "P1: gives up the protection of a PV whose volume it is to delete"
	case d.Action == RemoveFinalizer && pv.Policy == volume.PolicyUnknown && r.Mode != ModeRelease && !ignored:
		return "P1: gives up the protection of a PV whose policy it does not know"
	case (d.Action == FinalizePV || d.Action == DeletePV) && !s.Done.VolumeDeleted:
		return "P1: lets a PV go before its volume"
	case d.Action.Protects() && (pv.Terminating || s.Done.Protected || s.Contested || r.Mode != ModeHonor ||
		pv.Claim.UID == "" || ignored):
		return "rule 4: protects a PV that needs or takes no protection"
	case d.Action.Protects() && !mustOutlive && (r.Scope != ScopeBoundAny || pv.Policy == volume.PolicyUnknown):
		return "rule 4: protects a PV of another policy"
	case d.Action.writes() && d.Action != DeleteVolume && (r.Role == volume.RoleObserver || s.End.Gone):
		return "writes where it must not write"
	case r.Role == volume.RoleCompanion && d.Action == DeletePV && !s.Done.VolumeDeleted:
		return "a companion leaves PVs that are not terminating to its peer"
	case d.Action == Wait && !d.Reason.Waits() && pv.Terminating && !s.End.Gone && mustOutlive && !ignored &&
		pv.ProvisionedBy != "other" && (r.Role == volume.RoleOwner || r.Role == volume.RoleCompanion) &&
		r.Mode == ModeHonor && pv.Phase != volume.PhaseUnknown && (!r.Local || pv.Reach == volume.ReachHere):
		return "P4: says nothing of a PV that is terminating and waits"
	case d.Action == Wait && !d.Reason.Waits() && pv.Terminating && !s.End.Gone && r.Local &&
		pv.ProvisionedBy != "other" && pv.Reach == volume.ReachUnclear && (pv.HasFinalizer && r.Role == volume.RoleOwner ||
		pv.HasCompanionFinalizer && (r.Role == volume.RoleOwner || r.Role == volume.RoleCompanion)):
		return "P4: says nothing of a PV that no node lets go"
	case d.Reason.Sentence() == "":
		return "P4: a decision without a reason that people can read"
	case d.Timed && d.Action != Wait, d.Over && (d.Action != Wait || !s.End.Gone):
		return "only a wait is ended by the clock, only a PV that is gone is over"
	case d.Quiet > 0 && (d.Action != Wait || !d.Reason.Waits() || now().Unix()-pv.TerminatingSince >= 60 ||
		d.Quiet > time.Minute):
		return "P4: keeps the Event of a wait back for over a minute"
	case d.Action > FinalizePV:
		return "an action that does not exist"
	}
	return ""
}

// judge decides and reports a broken promise, ten times at most.
func judge(t *testing.T, s Facts, wrongs *int) Decision {
	d := Decide(s, now())
	if promise := broken(s, d); promise != "" {
		t.Errorf("%s: Decide = %v %v\nfacts: %+v", promise, d.Action, d.Reason, s)
		if *wrongs++; *wrongs == 10 {
			t.FailNow()
		}
	}
	return d
}

func TestEveryCombinationOfPVRulesAndPast(t *testing.T) {
	for _, role := range []volume.Role{volume.RoleUnknown, volume.RoleOwner, volume.RoleCompanion, volume.RoleObserver} {
		for kind, provisionedBy := range map[string]string{"static": "", "dynamic": driver, "foreign": "other"} {
			t.Run(role.String()+", "+kind, func(t *testing.T) {
				t.Parallel()
				checkEvery(t, role, provisionedBy)
			})
		}
	}
}

// kind distinguishes the ways to a deletion.
type kind struct {
	mode                                                Mode
	ended, contested, terminating, owns, follows, local bool
}

func checkEvery(t *testing.T, role volume.Role, provisionedBy string) {
	var visited, wrongs int
	kinds := map[kind]Facts{}
	want := role != volume.RoleUnknown && provisionedBy != "other"
	circumstances, brakes := []bool{false}, []Brake{BrakeOff}
	if want { // for the others, the decision never depends on the circumstances
		circumstances, brakes = []bool{false, true}, []Brake{BrakeUnknown, BrakeOff, BrakeOn}
	}
	everyRules(role, func(r Rules) {
		for _, terminating := range []bool{false, true} {
			everyPV(provisionedBy, terminating, func(pv volume.PV) {
				everyPast(pv, func(end End, history History, done Done) {
					for _, contested := range circumstances {
						for _, brake := range brakes {
							s := proven()
							s.Rules, s.PV, s.End, s.History, s.Done, s.Contested, s.Brake = r, pv, end, history, done, contested, brake
							s.Claim.Of = pv.Claim
							onNodes(s, func(s Facts) {
								visited++
								if judge(t, s, &wrongs).Action == DeleteVolume {
									kinds[kind{r.Mode, end.Gone, contested, pv.Terminating, pv.HasFinalizer, pv.HasCompanionFinalizer,
										s.Rules.Local}] = s
								}
							})
						}
					}
				})
			})
		}
	})
	if want != (len(kinds) > 0) {
		t.Fatalf("%d kinds of PVs whose volume is deleted: the product does not reach what it is to guard", len(kinds))
	}
	proofs, deletions := 0, 0
	for _, s := range kinds {
		everyProof(s, func(s Facts) {
			proofs++
			if judge(t, s, &wrongs).Action == DeleteVolume {
				deletions++
			}
		})
	}
	t.Logf("%d combinations of PV, rules and past; %d kinds of deletion with %d combinations of proofs, %d of them delete",
		visited, len(kinds), proofs, deletions)
}

// TestRandomFacts mixes both groups. SEED repeats a run.
func TestRandomFacts(t *testing.T) {
	dice := rand.New(rand.NewPCG(seed(t), 0))
	coin := func() bool { return dice.IntN(2) == 0 }
	// Reads and other facts mostly speak for the deletion, or hardly any draw would delete.
	mostly := func() bool { return dice.IntN(6) > 0 }
	aRead := func() session.Read {
		if !mostly() {
			return session.Read{}
		}
		return read(1+dice.IntN(4), time.Duration(dice.IntN(7))*time.Second)
	}
	var wrongs, deletions int
	for range 400_000 {
		s := proven()
		s.Rules = Rules{Driver: driver, Role: volume.Role(dice.IntN(4)), Mode: Mode(dice.IntN(3)), Scope: Scope(dice.IntN(2)),
			IgnoreStatic: !mostly(), ReclaimUnprotected: mostly(), NeverAttached: coin(), Local: coin()}
		pv := &s.PV
		pv.ProvisionedBy = []string{"", driver, "other"}[dice.IntN(3)]
		pv.Reach, s.OnlyNode, s.NodesListed = volume.ReachHere, mostly(), aRead()
		if !mostly() {
			pv.Reach = volume.Reach(dice.IntN(3))
		}
		pv.Policy, pv.Phase = volume.Policy(dice.IntN(4)), volume.Phase(dice.IntN(6))
		if mostly() {
			pv.Policy, pv.Phase = volume.PolicyDelete, volume.PhaseReleased
		}
		if !mostly() {
			pv.Claim.UID = ""
		}
		pv.Terminating, pv.HasFinalizer, pv.HasCompanionFinalizer, pv.Held, pv.WasAttached = coin(), coin(), coin(),
			!mostly(), coin()
		if pv.Terminating {
			pv.TerminatingSince = now().Unix() - int64(dice.IntN(120))
		}
		s.End = End{Gone: coin(), Final: mostly(), Shared: !mostly()}
		s.History = History{SeenAlive: mostly(), SeenProtected: !mostly(), Stripped: !mostly()}
		if !mostly() {
			s.Done = done(*pv, coin(), coin())
		}
		s.Contested, s.SecretsRead, s.AttachmentsCurrent = coin(), mostly(), mostly()
		s.Leading = mostly()
		if !mostly() {
			s.Brake, s.Attachments = Brake(dice.IntN(3)), dice.IntN(2)
		}
		s.ClaimRead = aRead()
		s.Claim = pvclaim.Result{Of: pv.Claim, Found: !mostly(), UID: []types.UID{"claim-uid",
			"newer"}[dice.IntN(2)], VolumeName: []string{"", "pv", "pv-2"}[dice.IntN(3)]}
		s.PVRead, s.PVsListed = aRead(), aRead()
		if !mostly() {
			s.Siblings, s.SiblingsRead = []volume.PV{sibling()}, aRead()
		}
		if judge(t, s, &wrongs).Action == DeleteVolume {
			deletions++
		}
	}
	if deletions < 100 {
		t.Errorf("only %d draws led to a deletion", deletions)
	}
}

func TestReasons(t *testing.T) { sessiontest.Reasons(t, Reasons(), 1) }
