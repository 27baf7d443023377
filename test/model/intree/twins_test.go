package intree

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
)

func TestNoWorldBreaksAPromise(t *testing.T) { modeltest.BreakNoPromise(t, Worlds(), 5_000) }

func TestStateSurvivesEncoding(t *testing.T) {
	modeltest.HasNoPadding[world](t)
	modeltest.Each(t, Worlds(), func(t *testing.T, w *World) {
		k := newWorker(w)
		modeltest.Walk(t, modeltest.Random(t), &k.Plain, 300,
			func(s *state) { modeltest.ForgetsNothing(t, k.machine, &s.knows) })
	})
}

// TestTheFirstWorldIsSeenWhole: a deletion by way of a twin comes to its end, and without the plugin's call
// no trace of a PV that was deleted first does.
func TestATwinHasTheVolumeDeleted(t *testing.T) {
	w := Worlds()[0]
	k, random := newWorker(&w), modeltest.Random(t)
	deleting, done := false, false
	for range 200 {
		modeltest.Walk(t, random, &k.Plain, 300, func(s *state) {
			deleting = deleting || s.operations[twin(0)] == begun
			done = done || deleting && !s.pvs[0].exists() && !s.pvs[twin(0)].exists() && !s.disks[0]
		})
		if done {
			return
		}
	}
	t.Errorf("no walk came to the end of a twin: policy Delete %v", deleting)
}

// checked returns a transition with a PV that is to be deleted, and its twin, which is set to Delete.
func checked(w *World) *transition {
	k := newWorker(w)
	c := &transition{World: w, machine: k.machine, state: k.Decode(k.First())}
	c.claims[0] = claim{born: true}
	c.seen = c.claims
	p := &c.pvs[0]
	p.Terminating, p.Phase, p.Writer = true, volume.PhaseReleased, intree.WriterSelf
	t := &c.pvs[twin(0)]
	*t = *p
	t.TwinOf, t.Writer, t.Terminating = p.UID, intree.WriterNone, false
	c.lines[0].proofs[0] = proof{claim: true, detached: true, pv: true}
	return c
}

func TestEachStepIsChecked(t *testing.T) {
	w := World{PVs: []PV{{Name: "a", Claim: "data"}, {Name: "b", Claim: "logs"}},
		Claims: []string{"data", "logs", "logs"}, Replicas: 1, Lag: 1}
	deletion := func(c *transition) { c.checkDeletion(twin(0)) }
	arming := func(c *transition) { c.checkTwin(0, 0, ask{Action: intree.SetTwinDelete, Slot: 1}) }
	alone := func(c *transition) { c.pvs[2] = pv{} }
	modeltest.CheckSteps(t, func() *transition { return checked(&w) }, map[string]modeltest.Step[*transition]{
		"a volume that may go": {alone, deletion, ""},
		"that is gone already": {func(c *transition) { c.disks[0] = false }, deletion, ""},
		"of a PV that is to keep it": {
			func(c *transition) { alone(c); c.pvs[0].Policy = volume.PolicyRetain }, deletion, "P2"},
		"which came too late": {
			func(c *transition) { c.pvs[0].Policy, c.tooLate[0] = volume.PolicyRetain, true }, deletion, ""},
		"of a PV that is gone":  {func(c *transition) { alone(c); c.pvs[0] = pv{} }, deletion, "P2"},
		"that is attached":      {func(c *transition) { alone(c); c.attached = true }, deletion, "P2"},
		"that another PV needs": {nil, deletion, "P2"},
		"that another needed": {
			func(c *transition) { c.pvs[2].Phase = volume.PhaseReleased; c.claims[1].there = false }, deletion, ""},
		"that a claim has by the twin": {
			func(c *transition) { alone(c); c.claims[0] = claim{there: true, volume: 2} }, deletion, "P2"},
		"a twin is to delete":                  {alone, arming, ""},
		"beside a PV whose claim is gone":      {func(c *transition) { c.lines[0].proofs[0].sibling = true }, arming, ""},
		"beside a PV whose claim was not read": {nil, arming, "P2"},
		"that a restored claim has by another PV": {func(c *transition) {
			c.pvs[2].Phase, c.claims[1].there, c.claims[2] = volume.PhaseReleased, false, claim{there: true, volume: 3}
		}, deletion, "P2"},
		"its claim was not read": {func(c *transition) { alone(c); c.lines[0].proofs[0].claim = false }, arming, "P2"},
		"attachments were not": {
			func(c *transition) { alone(c); c.lines[0].proofs[0].detached = false }, arming, "P2"},
		"the PV was not":              {func(c *transition) { alone(c); c.lines[0].proofs[0].pv = false }, arming, "P2"},
		"a PV goes before its volume": {nil, func(c *transition) { c.checkEnd(0, c.pvs[0]) }, "P1"},
		"a PV goes after its volume": {
			func(c *transition) { c.disks[0] = false }, func(c *transition) { c.checkEnd(0, c.pvs[0]) }, ""},
		"a PV goes that a user released": {
			func(c *transition) { c.excused[0] = true }, func(c *transition) { c.checkEnd(0, c.pvs[0]) }, ""},
		"a PV goes that is to keep its volume": {
			func(c *transition) { c.pvs[0].Policy = volume.PolicyRetain }, func(c *transition) { c.checkEnd(0, c.pvs[0]) }, ""},
		"our patch leaves a PV with nothing": {
			alone, func(c *transition) { c.write(0, us, func(p *pv) { p.Writer, p.inUse = intree.WriterNone, false }) }, "P1"},
		"a user's patch leaves a PV with nothing": {
			alone, func(c *transition) { c.write(0, others, func(p *pv) { p.Writer, p.inUse = intree.WriterNone, false }) }, ""},
		"a twin goes, and its volume is still there": {nil, func(c *transition) { c.checkEnd(twin(0), c.pvs[twin(0)]) }, ""},
	})
}

func TestRestIsChecked(t *testing.T) {
	w := World{PVs: []PV{{Name: "a", Claim: "data"}}, Claims: []string{"data", "data"}, Replicas: 1, Lag: 1}
	alone := func(c *transition) { c.pvs[twin(0)] = pv{} }
	alive := func(c *transition) { alone(c); c.pvs[0].Terminating = false }
	unbound := func(c *transition) { alone(c); c.claims[0].there = true; c.pvs[0].Phase = volume.PhaseAvailable }
	unsettled := func(c *transition) string { return newWorker(&w).unsettled(&c.state) }
	modeltest.Check(t, func() *transition { return checked(&w) }, unsettled, map[string]modeltest.Case[*transition]{
		"nothing at all":              {func(c *transition) { c.pvs = [maxSlots]pv{} }, ""},
		"a PV in use":                 {alive, ""},
		"which is not protected":      {func(c *transition) { alive(c); c.pvs[0].Writer = intree.WriterNone }, "P5"},
		"which is to keep its volume": {func(c *transition) { alive(c); c.pvs[0].Policy = volume.PolicyRetain }, "P5"},
		"a PV that is being deleted":  {alone, "P5"},
		"its claim lives":             {func(c *transition) { alone(c); c.claims[0].there = true }, ""},
		"its claim lives, and is never bound": {
			func(c *transition) { unbound(c); c.replica(0).see(0, c.pvs[0].view); c.close() }, ""},
		"its claim is never bound, and no person knows": {unbound, "P5"},
		"another claim of its name names it": {
			func(c *transition) { alone(c); c.claims[1] = claim{there: true, volume: 1} }, ""},
		"another claim has its name":         {func(c *transition) { alone(c); c.claims[1] = claim{there: true} }, "P5"},
		"it is held":                         {func(c *transition) { alone(c); c.pvs[0].Held = true }, ""},
		"it is taken back":                   {func(c *transition) { alone(c); c.pvs[0].Claim = 0 }, ""},
		"it is to keep its volume":           {func(c *transition) { alone(c); c.pvs[0].Policy = volume.PolicyRetain }, "P5"},
		"a stranger holds it":                {func(c *transition) { alone(c); c.pvs[0].Writer = intree.WriterOther }, ""},
		"a PV with its twin":                 {nil, "P5"},
		"a twin that failed":                 {func(c *transition) { c.pvs[twin(0)].Phase = volume.PhaseFailed }, "P2"},
		"a twin that is left":                {func(c *transition) { c.pvs[0] = pv{} }, "P5"},
		"a twin in use":                      {func(c *transition) { c.pvs[twin(0)].Phase = volume.PhaseBound }, ""},
		"a PV that is no twin, of that name": {func(c *transition) { c.pvs[twin(0)].TwinOf = 0 }, ""},
	})
}
