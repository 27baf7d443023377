package reclaim

import (
	"slices"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/scenario"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

func TestNoWorldBreaksAPromise(t *testing.T) { modeltest.BreakNoPromise(t, Worlds(), 15_000) }

func TestStateSurvivesEncoding(t *testing.T) {
	modeltest.HasNoPadding[world](t)
	modeltest.Each(t, Worlds(), func(t *testing.T, w *World) {
		k := newWorker(w)
		modeltest.Walk(t, modeltest.Random(t), &k.Plain, 400, func(s *state) {
			modeltest.ForgetsNothing(t, k.machine, &s.knows)
			for slot, p := range s.pvs {
				if p.exists() && readAgain(w, s, slot) != p {
					t.Fatalf("PV %+v is read as %+v", p, readAgain(w, s, slot))
				}
			}
		})
	})
}

// readAgain has a PV read as a program reads it. What programs do not read stays.
func readAgain(w *World, s *state, slot int) pv {
	p := fromAPI(w.toAPI(slot, s.pvs[slot]))
	p.flags |= s.pvs[slot].flags & protected
	return p
}

// checked returns a transition in which nothing is wrong yet.
func checked(w *World) *transition {
	k := newWorker(w)
	return &transition{World: w, machine: k.machine, state: w.first(k.machine)}
}

func TestEachPromiseIsChecked(t *testing.T) {
	one := World{PVs: []PV{provisioned("a")}, Replicas: 1, Lag: 1, Role: volume.RoleOwner}
	two := World{PVs: []PV{static("a"), static("b").with(sharesVolume)}, Replicas: 1, Lag: 1,
		Role: volume.RoleOwner}
	proven := proof{pv: true, claim: true, siblings: true}
	gone := proof{claim: true, family: true}
	for name, tc := range map[string]struct {
		world   *World
		prepare func(*transition)
		ended   bool
		proof   proof
		want    string
	}{
		"all is proven":                           {&one, nil, false, proven, ""},
		"the PV was not read, or said no":         {&one, nil, false, proof{claim: true}, "P2"},
		"the claim was not read, or too long ago": {&one, nil, false, proof{pv: true, siblings: true}, "P2"},
		"another PV that is to go was not read": {&two, func(c *transition) { c.pvs[1].phase = volume.PhaseReleased }, false,
			proof{pv: true, claim: true}, "P2b"},
		"a PV that is gone, all proven":      {&one, nil, true, gone, ""},
		"a PV that is gone, its claim not":   {&one, nil, true, proof{family: true}, "P2"},
		"a PV that is gone, another there":   {&one, nil, true, proof{claim: true}, "P2"},
		"a PV that was stripped and is gone": {&one, func(c *transition) { c.stripped[0] = true }, true, gone, "P2"},
		"once more": {&one, func(c *transition) { c.lines[0].succeeded[0] = 2 }, false, proven,
			"P3"},
		"once more for a PV made anew": {&one, func(c *transition) { c.lines[0].succeeded[0] = 4 }, false, proven, ""},
		"attached":                     {&one, func(c *transition) { c.attachments[0] = true }, false, proven, "P2b"},
		"attached since before, by a slow watch": {&one, nil, false, proof{pv: true, claim: true, attachedBefore: true},
			"P2b"},
		"attached a moment ago": {&one, func(c *transition) {
			c.attachments[0] = true
			c.lines[0].attachments.Add(attachmentChange{0, true})
		}, false, proven, ""},
		"another PV needs the volume": {&two, nil, false, proven, "P2b"},
		"another PV needs the volume since a moment ago": {&two, func(c *transition) {
			c.lines[0].changes.Add(change{c.pvs[1], 1, false})
		}, false, proven, ""},
		"another PV is to go as well": {&two, func(c *transition) { c.pvs[1].phase = volume.PhaseReleased }, false, proven,
			""},
	} {
		t.Run(name, func(t *testing.T) {
			c := checked(tc.world)
			c.lines[0].proof[0] = tc.proof
			modeltest.InOrder(tc.prepare)(c)
			c.checkDeletion(0, 0, reclaim.Ask{PV: c.toAPI(0, c.pvs[0])}, tc.ended)
			modeltest.Broken(t, c.Wrong, tc.want)
		})
	}
}

// TestReadsAreCheckedInTheirOrder: a claim that was restored names the PV, until a user turns the policy to Retain and
// deletes the claim. The volume is to be deleted at no moment, but the PV of before and the claim of after permit it.
func TestReadsAreCheckedInTheirOrder(t *testing.T) {
	w := World{PVs: []PV{provisioned("a")}, Replicas: 1, Role: volume.RoleOwner}
	retain := func(c *transition) {
		c.write(aUser, 0, func(p *pv) { p.policy = volume.PolicyRetain })
		c.setClaim(0, claim{})
	}
	deleteClaim := func(c *transition) { c.setClaim(0, claim{}) }
	read := func(action reclaim.Action) func(*transition) {
		return func(c *transition) {
			c.readFor(0, 0, reclaim.Ask{Decision: reclaim.Decision{Action: action}, PV: c.toAPI(0, c.pvs[0])})
		}
	}
	readClaim, readPV := read(reclaim.ReadClaim), read(reclaim.ReadPV)
	readBound := func(c *transition) {
		c.write(aController, 0, func(p *pv) { p.phase = volume.PhaseBound })
		readPV(c)
		c.write(aController, 0, func(p *pv) { p.phase = volume.PhaseReleased })
	}
	inOrder := modeltest.InOrder[*transition]
	deletion := func(c *transition) { c.checkDeletion(0, 0, reclaim.Ask{PV: c.toAPI(0, c.pvs[0])}, false) }
	restored := func() *transition {
		c := checked(&w)
		c.pvs[0].phase, c.claims[0] = volume.PhaseReleased, claim{gen: 2, bound: true}
		return c
	}
	modeltest.CheckSteps(t, restored, map[string]modeltest.Step[*transition]{
		"the claim ends, then claim and PV":            {inOrder(deleteClaim, readClaim, readPV), deletion, ""},
		"the claim ends, then PV and claim":            {inOrder(deleteClaim, readPV, readClaim), deletion, "P2"},
		"the claim ends between PV and claim":          {inOrder(readPV, deleteClaim, readClaim), deletion, "P2"},
		"the rescue comes between PV and claim":        {inOrder(readPV, retain, readClaim), deletion, "P2"},
		"the rescue comes before claim and PV":         {inOrder(retain, readClaim, readPV), deletion, "P2"},
		"the claim ends between claim and PV":          {inOrder(readClaim, deleteClaim, readPV), deletion, "P2"},
		"the PV is read before it is Released":         {inOrder(deleteClaim, readClaim, readBound), deletion, "P2"},
		"the PV is read again after a claim that ends": {inOrder(readPV, deleteClaim, readClaim, readPV), deletion, ""},
	})
}

func TestTheEndOfAPVIsChecked(t *testing.T) {
	w := World{PVs: []PV{provisioned("a")}, Replicas: 1, Role: volume.RoleOwner}
	released := func(p *pv) { p.phase = volume.PhaseReleased; p.set(terminating) }
	for name, tc := range map[string]struct {
		by      who
		edit    func(*pv)
		prepare func(*transition)
		want    string
		owed    owed
	}{
		"we release it, the volume is there": {theSidecar, released, nil, "P1", notOwed},
		"we release it, the volume is deleted": {theSidecar, released, func(c *transition) { c.volumes[0] = false }, "",
			notOwed},
		"we release a PV that keeps its volume": {theSidecar,
			func(p *pv) { released(p); p.policy = volume.PolicyRetain }, nil, "", notOwed},
		"nothing held it": {aController, func(p *pv) { released(p); p.clear(ours) }, nil, "",
			unprotected},
		"another program had removed the finalizer": {aUser, released, func(c *transition) { c.stripped[0] = true }, "",
			notOwed},
		"it was taken back, and deleted by a user": {aUser, func(p *pv) { released(p); p.claim = withoutUID }, nil, "",
			notOwed},
	} {
		t.Run(name, func(t *testing.T) {
			c := checked(&w)
			modeltest.InOrder(tc.prepare)(c)
			last := c.pvs[0]
			tc.edit(&last)
			c.departed(tc.by, 0, last)
			modeltest.Broken(t, c.Wrong, tc.want)
			if c.owed[0] != tc.owed {
				t.Errorf("owed %d, want %d", c.owed[0], tc.owed)
			}
		})
	}
}

func TestRestIsChecked(t *testing.T) {
	w := World{PVs: []PV{provisioned("a"), provisioned("b")}, Replicas: 1, Role: volume.RoleOwner}
	released := func(c *transition) { c.pvs[0].phase, c.claims[0] = volume.PhaseReleased, claim{} }
	unsettled := func(c *transition) string { return newWorker(&w).unsettled(&c.state) }
	modeltest.Check(t, func() *transition { return checked(&w) }, unsettled, map[string]modeltest.Case[*transition]{
		"a PV in use":                         {nil, ""},
		"which is not protected":              {func(c *transition) { c.pvs[0].clear(ours) }, "P5"},
		"for it was stripped again and again": {func(c *transition) { c.pvs[0].clear(ours); c.strips[0] = 3 }, ""},
		"for another PV was": {
			func(c *transition) { c.pvs[0].clear(ours); c.strips[1] = 3; c.pvs[1].clear(ours) }, "P5"},
		"which was, and is protected again": {func(c *transition) { c.strips[0] = 3 }, "P5"},
		"after a restart it may be":         {func(c *transition) { c.strips[0], c.faulted = 3, true }, ""},
		"a PV that is to be deleted":        {released, "P5"},
		"whose claim was made anew":         {func(c *transition) { released(c); c.claims[0] = claim{gen: 2} }, "P5"},
		"which waits for its claim, and is told": {func(c *transition) {
			c.claims[0] = claim{gen: 1}
			c.write(aController, 0, func(p *pv) { p.phase = volume.PhaseAvailable; p.set(terminating) })
			c.close()
		}, ""},
		"which waits for its claim in silence": {func(c *transition) {
			c.claims[0] = claim{gen: 1}
			c.pvs[0].phase = volume.PhaseAvailable
			c.pvs[0].set(terminating)
		}, "P5"},
		"whose claim was restored": {func(c *transition) { released(c); c.claims[0] = claim{gen: 2, bound: true} }, ""},
	})
}

func TestTracesAreScenarios(t *testing.T) {
	modeltest.Each(t, Worlds(), func(t *testing.T, w *World) {
		k := newWorker(w)
		now := k.Begins()
		var moves []search.Move
		for range 30 {
			options := slices.Collect(k.List(&now))
			if len(options) == 0 {
				break
			}
			at := len(moves) % len(options)
			now, moves = *options[at].To, append(moves, search.Move(at))
		}
		text := w.Scenario(search.Finding{Promise: "P0: a test", Moves: moves, Trace: k.Trace(moves)}, "test")
		if _, err := scenario.Parse(text); err != nil {
			t.Errorf("no scenario: %v\n%s", err, text)
		}
	})
}
