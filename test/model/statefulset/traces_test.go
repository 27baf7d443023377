package statefulset

import (
	"slices"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// script plays moves, one after the other.
type script struct {
	*worker
	modeltest.Script[state, move, *transition]
}

// begin returns a script of a world that has come to rest.
func begin(t *testing.T, w World) *script {
	w.Ordinals, w.Size, w.Settled, w.Counts = max(w.Ordinals, 1), max(w.Size, 1), true, true
	w.Ways, w.Turns = all, []policy{none, retain, whenScaled, whenDeleted, both}
	w.Budget = Budget{Scale: 9, Turn: 9, Delete: 1, Recreate: 1, Pod: 9, Claim: 1, Restore: 9, Hold: 1, Unhold: 1, Gate: 9,
		Foreign: 1, Crash: 1, Sync: 1, Stale: 1, Strip: 9}
	k := newWorker(&w)
	return &script{k, modeltest.NewScript(t, &k.Plain)}
}

// guarded returns a world with volume-guard, and alone a world without it.
func guarded(w World) World { w.Replicas = 1; return w }
func alone(w World) World   { w.Replicas = 0; return w }

func byField(p policy) World      { return World{Gate: true, Policy: p} }
func byAnnotation(p policy) World { return World{Policy: p} }
func parallel(w World) World      { w.Parallel = true; return w }

// then makes moves. Each must be possible.
func (s *script) then(moves ...move) *script {
	s.T.Helper()
	for _, m := range moves {
		s.Then(m.verb, func(other move) bool { return other == m })
	}
	return s
}

// rest makes moves of all but some verbs until none of them changes the state.
func (s *script) rest(except ...verb) *script {
	s.T.Helper()
	s.AllOptions(func(o search.Option[state, move]) bool {
		return o.Step && *o.To != s.Now && !slices.Contains(except, o.Move.verb)
	})
	return s
}

// finds checks the broken promise at rest, empty for none.
func (s *script) finds(wrong string) *script {
	s.T.Helper()
	if got, _, _ := strings.Cut(s.unsettled(&s.Now), ":"); got != wrong {
		s.T.Errorf("at rest it finds %q, want %q\n%s", s.unsettled(&s.Now), wrong, &s.Script)
	}
	return s
}

// hasClaim checks that the claim of ordinal 0 has this number, 0 for none, and is not being deleted.
func (s *script) hasClaim(uid uint8) *script {
	s.T.Helper()
	if c := s.Now.claims[0]; c.uid != uid || c.terminating {
		s.T.Errorf("claim %+v, want number %d\n%s", c, uid, &s.Script)
	}
	return s
}

// runs checks that the pod of ordinal 0 runs.
func (s *script) runs() *script {
	s.T.Helper()
	if p := s.Now.pods[0][0]; !p.ready || p.terminating {
		s.T.Errorf("pod %+v\n%s", p, &s.Script)
	}
	return s
}

func scale(to int) move { return move{userScales, to, 0} }
func turn(field bool, to policy) move {
	if field {
		return move{userTurnsField, int(to), 0}
	}
	return move{userTurnsAnnotation, int(to), 0}
}
func remove(how cascade) move { return move{userDeletesSet, int(how), 0} }

var (
	podIsDeleted = move{userDeletesPod, 0, 0}
	podEnds      = move{kubeletEnds, 0, 0}
	syncs        = move{managerSyncs, 0, 0}
	claimGoes    = move{collectorDeletesClaim, 0, 0}
	claimIsGone  = move{claimIsRemoved, 0, 0}
)

// Observations of Kubernetes 1.36.3, without volume-guard.

func TestKubernetesKeepsClaimsWithoutPod(t *testing.T) {
	for name, moves := range map[string][]move{
		"pod deleted by hand, then scaled down": {podIsDeleted, podEnds, scale(0)},
	} {
		t.Run(name, func(t *testing.T) {
			begin(t, alone(byField(whenScaled))).then(moves...).rest().hasClaim(1).finds("L1")
			begin(t, guarded(byField(whenScaled))).then(moves...).rest().hasClaim(0).finds("")
		})
	}
	t.Run("turned after the scale-down", func(t *testing.T) {
		begin(t, alone(byField(retain))).then(scale(0)).rest().then(turn(true, whenScaled)).rest().hasClaim(1)
	})
	t.Run("made again smaller", func(t *testing.T) {
		s := begin(t, alone(byField(whenScaled))).then(remove(background)).rest()
		s.then(move{userCreatesSet, 0, 1}).rest().hasClaim(1)
	})
}

// The deletion of a claim wakes no set, and the sync that begins with the pod's end finds the old claim.
func TestKubernetesForgetsPodAfterScaleUp(t *testing.T) {
	stays := []move{scale(0), syncs, scale(1), syncs, podEnds, syncs, claimGoes, claimIsGone}
	begin(t, alone(byField(whenScaled))).then(stays...).rest().hasClaim(0).finds("L2")
	begin(t, guarded(byField(whenScaled))).then(stays...).rest().hasClaim(2).runs().finds("")
	comes := []move{scale(0), syncs, scale(1), syncs, podEnds, claimGoes, claimIsGone, syncs}
	begin(t, alone(byField(whenScaled))).then(comes...).rest().hasClaim(2).runs().finds("")
}

// The scheduler binds a pod whose claim is gone, and the sync after this finds the old claim. The kubelet then waits
// for a claim that no controller creates.
func TestKubernetesForgetsClaimOfBoundPod(t *testing.T) {
	stays := []move{{userDeletesClaim, 0, 0}, claimIsGone, {podIsBoundLate, 0, 0}, {managerSeesPod, 0, 0}, syncs}
	for _, w := range []World{byField(whenScaled), parallel(byField(whenScaled)), byAnnotation(whenScaled)} {
		w.ManagerLag = true
		begin(t, alone(w)).then(podIsDeleted).rest(podIsBound).then(stays...).rest().hasClaim(0).finds("L2")
		begin(t, guarded(w)).then(podIsDeleted).rest(podIsBound).then(stays...).rest().hasClaim(2).runs().finds("")
	}
}

func TestKubernetesKeepsClaimOfParallelSet(t *testing.T) {
	begin(t, alone(parallel(byField(whenScaled)))).then(scale(0), syncs, scale(1), syncs, podEnds).rest().
		hasClaim(1).runs().finds("")
}

func TestKubernetesScrubsReferences(t *testing.T) {
	s := begin(t, alone(byField(retain)))
	s.Now.claims[0].sets[0], s.Now.claims[0].foreign = plain, plain
	s.Now.manager.seen = s.Now.objects
	s.then(move{managerSyncsAgain, 0, 0}).rest()
	if c := s.Now.claims[0]; c.sets[0] != noRef || c.foreign != plain {
		t.Errorf("claim %+v", c)
	}
	s = begin(t, alone(byAnnotation(both)))
	s.Now.claims[0].sets[0] = plain
	s.then(move{managerSyncsAgain, 0, 0}).rest()
	if c := s.Now.claims[0]; c.sets[0] != plain {
		t.Errorf("without the gate, claim %+v", c)
	}
}

func TestClaimStaysWhileOtherOwnerLives(t *testing.T) {
	for _, how := range all {
		for _, w := range []World{alone(byField(both)), guarded(byField(both)), guarded(byAnnotation(both))} {
			w.Foreign = plain
			s := begin(t, w).then(remove(how)).rest().hasClaim(1).finds("")
			if how != orphan {
				s.then(move{foreignOwnerIsDeleted, 0, 0}).rest().hasClaim(0).finds("")
			}
		}
	}
}

// The same situations with volume-guard.

func TestScaleUpWhilePodTerminates(t *testing.T) {
	for name, tc := range map[string]struct {
		w     World
		moves []move
		claim uint8
	}{
		"field, before the pod ends":     {byField(whenScaled), []move{scale(0), syncs, scale(1), syncs, podEnds}, 2},
		"field, after the pod has ended": {byField(whenScaled), []move{scale(0), syncs, podEnds, syncs, scale(1)}, 2},
		"field, before the deletion":     {byField(whenScaled), []move{scale(0), scale(1), syncs}, 1},
		"field, parallel, before the pod ends": {
			parallel(byField(whenScaled)), []move{scale(0), syncs, scale(1), syncs, podEnds}, 1},
		"field, parallel, after the pod has ended": {
			parallel(byField(whenScaled)), []move{scale(0), syncs, podEnds, syncs, scale(1)}, 2},
		"annotation, before volume-guard sees it": {
			byAnnotation(both), []move{scale(0), syncs, scale(1), syncs, podEnds}, 1},
		"annotation, before the deletion": {byAnnotation(both), []move{scale(0), scale(1), syncs}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			begin(t, guarded(tc.w)).then(tc.moves...).rest().hasClaim(tc.claim).runs().finds("")
		})
	}
	for name, w := range map[string]World{
		"annotation": byAnnotation(whenScaled), "annotation, parallel": parallel(byAnnotation(whenScaled)),
	} {
		t.Run(name+", the claim goes with its pod", func(t *testing.T) {
			s := begin(t, guarded(w)).then(scale(0), syncs).rest(kubeletEnds)
			if c := s.Now.claims[0]; !c.terminating {
				t.Errorf("claim %+v is not terminating", c)
			}
			s.then(scale(1)).rest(kubeletEnds).then(podEnds).rest().hasClaim(2).runs().finds("")
		})
		t.Run(name+", in the grace period", func(t *testing.T) {
			s := begin(t, guarded(w)).then(scale(0), syncs, podEnds).rest(graceEnds)
			s.then(scale(1)).rest().hasClaim(1).runs().finds("")
		})
	}
}

func TestPodDeletedByHand(t *testing.T) {
	for name, w := range map[string]World{"field": byField(whenScaled), "annotation": byAnnotation(both)} {
		t.Run(name+", keeps its claim", func(t *testing.T) {
			begin(t, guarded(w)).then(podIsDeleted).rest().hasClaim(1).runs().finds("")
		})
		t.Run(name+", then scaled down", func(t *testing.T) {
			s := begin(t, guarded(w)).then(podIsDeleted, podEnds, scale(0))
			s.rest(graceEnds).hasClaim(1).rest().hasClaim(0).finds("")
		})
		t.Run(name+", then scaled down and up in the grace period", func(t *testing.T) {
			s := begin(t, guarded(w)).then(podIsDeleted, podEnds, scale(0)).rest(graceEnds)
			s.then(scale(1)).rest().hasClaim(1).runs().finds("")
		})
	}
}

func TestPolicyChanges(t *testing.T) {
	for name, field := range map[string]bool{"field": true, "annotation": false} {
		w := World{Gate: field, Policy: whenScaled}
		t.Run(name+", to Retain in the grace period", func(t *testing.T) {
			s := begin(t, guarded(w)).then(podIsDeleted, podEnds, scale(0)).rest(graceEnds)
			s.then(turn(field, retain)).rest().hasClaim(1).finds("")
			s.then(turn(field, whenScaled)).rest().hasClaim(1).finds("")
		})
		t.Run(name+", to Delete after the scale-down", func(t *testing.T) {
			w.Policy = retain
			begin(t, guarded(w)).then(scale(0)).rest().then(turn(field, both)).rest().hasClaim(1).finds("")
		})
		t.Run(name+", to Delete before the scale-down", func(t *testing.T) {
			w.Policy = retain
			begin(t, guarded(w)).then(turn(field, both)).rest().then(scale(0)).rest().hasClaim(0).finds("")
		})
		t.Run(name+", to Retain before the set is deleted", func(t *testing.T) {
			w.Policy = both
			begin(t, guarded(w)).then(turn(field, retain)).rest().then(remove(background)).rest().hasClaim(1).finds("")
		})
	}
}

func TestFeatureGateChanges(t *testing.T) {
	gate := move{gateIsSwitched, 0, 0}
	// With the gate, the field says Retain, unless it was written.
	s := begin(t, guarded(byAnnotation(both)))
	if s.Now.claims[0].sets[0] != plain {
		t.Fatal("the set does not own the claim")
	}
	s.then(gate).rest().hasClaim(1).finds("")
	if c := s.Now.claims[0]; c.sets[0] != noRef || c.mark != (mark{}) {
		t.Errorf("claim %+v", c)
	}
	s.then(turn(true, both)).rest()
	if s.Now.claims[0].sets[0] != controller {
		t.Error("Kubernetes does not own the claim")
	}
	// A written field stays when the gate is switched off, and only volume-guard carries it out.
	s.then(gate, scale(0)).rest().hasClaim(0).finds("")
	// The removal of the field is the way out.
	s = begin(t, guarded(byField(both))).then(gate, turn(true, none), turn(false, whenScaled)).rest()
	s.then(scale(0)).rest().hasClaim(0).finds("")
	s.then(scale(1)).rest().runs().finds("")
}

// Owners are added according to the last read of the set, so that each of them has a component that removes it.
func TestOrphanedSetWhileOwnersAreAdded(t *testing.T) {
	w := guarded(byAnnotation(retain))
	w.Lag = true
	for _, seen := range []bool{false, true} {
		s := begin(t, w).then(turn(false, both), move{watchShowsSet, 0, 0}, move{workerBegins, 0, 0}, remove(orphan))
		if seen {
			s.then(move{watchShowsSet, 0, 0})
		}
		s.rest().hasClaim(1).finds("")
		if c := s.Now.claims[0]; c.mark != (mark{}) || c.sets[0] != noRef || !s.Now.pods[0][0].ready {
			t.Errorf("claim %+v\n%s", c, &s.Script)
		}
	}
	begin(t, guarded(byAnnotation(both))).then(remove(orphan)).rest().hasClaim(1).runs().finds("")
	// A set that is created again adopts the pods, and gets the claims back.
	w = guarded(byAnnotation(both))
	w.Again = 1
	s := begin(t, w).then(remove(orphan)).rest().then(move{userCreatesSet, 0, 1}).rest()
	if c := s.hasClaim(1).runs().Now.claims[0]; c.sets != [maxSets]ref{noRef, plain} || c.mark.set != 2 {
		t.Errorf("claim %+v", c)
	}
}

func TestHeldClaim(t *testing.T) {
	s := begin(t, guarded(byAnnotation(both))).then(move{userHolds, 0, 0}).rest().then(scale(0)).rest()
	s.hasClaim(1).finds("").then(move{userEndsHold, 0, 0}).rest().hasClaim(0).finds("")
	begin(t, guarded(byAnnotation(both))).then(move{userHolds, 0, 0}).rest().then(remove(background)).rest().hasClaim(1)
}

// A restored claim stays, as it does in Kubernetes, until a pod has used it.
func TestRestoredClaim(t *testing.T) {
	for name, w := range map[string]World{"field": byField(whenScaled), "annotation": byAnnotation(both)} {
		t.Run(name, func(t *testing.T) {
			restored := move{userRestoresClaim, 0, 0}
			s := begin(t, guarded(w)).then(podIsDeleted, podEnds, scale(0)).rest().hasClaim(0)
			if s.Now.backups[0].mark == (mark{}) {
				t.Fatal("the backup has no mark")
			}
			s.then(restored).rest().hasClaim(2).finds("")
			if c := s.Now.claims[0]; c.mark != (mark{}) {
				t.Errorf("claim %+v", c)
			}
			s.then(scale(1)).rest().hasClaim(2).runs().finds("")
			if c := s.Now.claims[0]; c.mark.of != 2 {
				t.Errorf("claim %+v", c)
			}
			s.then(scale(0)).rest().hasClaim(0).finds("")
		})
	}
}
