package provision

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
)

// checked returns a transition with a claim that waits, an open entry, and the volume that the driver has named.
func checked(w *World) *transition {
	c := &transition{World: w, state: w.first()}
	c.volumes[0][0] = volume{there: true, generation: 1, by: request{content: 5}}
	c.shards[0][0].entry = entry{claim: 1, count: 1, requests: [2]request{{content: 5}}}
	m := &c.lines[0].names[0]
	m.log, m.entry, m.record.made, m.record.generation = 2, c.shards[0][0].entry, true, 1
	return c
}

func single() World { return World{Name: "one", Claims: one, Replicas: 1} }

func stored(c *transition) { c.pvs[0] = pv{claim: 1, generation: 1} }
func bound(c *transition)  { stored(c); c.claims[0].bound = boundOwn }
func closed(c *transition) {
	c.shards[0][0].entry = entry{}
	c.lines[0].names[0] = memory{log: 1, current: true}
}
func deleted(c *transition) { c.claims[0] = claim{} }
func lost(c *transition)    { c.volumes[0][0] = volume{generation: 1} }

func TestEachStepIsChecked(t *testing.T) {
	leak := (*transition).checkLeak
	loss := func(c *transition) { c.checkLoss(0, 0) }
	discard := func(c *transition) { c.checkDiscard(0, 0) }
	store := func(c *transition) { c.checkPV(&call{claim: 1, generation: 1}, 0, 0) }
	for name, tc := range map[string]struct {
		check   func(*transition)
		want    string
		prepare []func(*transition)
	}{
		"a volume with an open entry": {leak, "", nil},
		"a volume without one":        {leak, "P1", []func(*transition){closed}},
		"a volume with a PV":          {leak, "", []func(*transition){closed, stored}},
		"a volume with another one's PV": {leak, "P1", []func(*transition){closed, stored,
			func(c *transition) { c.pvs[0].generation = 2 }}},
		"a volume with another driver's PV": {leak, "P1", []func(*transition){closed,
			func(c *transition) { c.pvs[0] = pv{claim: foreign, generation: 1} }}},
		"a volume that was kept": {leak, "", []func(*transition){closed,
			func(c *transition) { c.volumes[0][0].kept = keptStrictly }}},
		"a volume that is not ours": {leak, "", []func(*transition){closed,
			func(c *transition) { c.volumes[0][0].by.content = othersContent }}},
		"a volume that is excused": {leak, "",
			[]func(*transition){closed, func(c *transition) { c.excuse(0, 0) }}},
		"the volume that a claim is to get is lost": {loss, "P2", nil},
		"and the claim is gone":                     {loss, "", []func(*transition){deleted}},
		"and it does not match the request": {loss, "",
			[]func(*transition){func(c *transition) { c.lines[0].names[0].record.unfit = true }}},
		"the volume of a bound claim is lost": {loss, "P2", []func(*transition){closed, bound}},
		"the volume of a terminating claim is lost": {loss, "P2", []func(*transition){closed, bound,
			func(c *transition) { c.claims[0].terminating = true }}},
		"the volume of a claim that is gone is lost": {loss, "", []func(*transition){closed, stored, deleted}},
		"the claim is bound to another PV": {loss, "", []func(*transition){closed, stored,
			func(c *transition) { c.claims[0].bound = boundElsewhere }}},
		"an administrator kept the volume": {loss, "P2", []func(*transition){closed, deleted,
			func(c *transition) { c.volumes[0][0].kept = keptStrictly }}},
		"its claim has asked for it again": {loss, "", []func(*transition){closed, deleted,
			func(c *transition) { c.volumes[0][0].kept = keptForClaim }}},
		"the volume is not ours": {loss, "P2", []func(*transition){closed, deleted,
			func(c *transition) { c.volumes[0][0].by.content = othersContent }}},
		"a volume that is as requested is discarded": {discard, "P2", nil},
		"an unfit one is discarded, unseen": {discard, "P2",
			[]func(*transition){func(c *transition) { c.lines[0].names[0].record.unfit = true }}},
		"an unfit one is discarded": {discard, "",
			[]func(*transition){func(c *transition) {
				c.lines[0].names[0].record.unfit, c.lines[0].names[0].pv.read = true,
					recently
			}}},
		"a PV is stored": {store, "", nil},
		"a PV is stored for a volume that is deleted": {store, "P2", []func(*transition){lost}},
		"a PV is stored for the one before": {store, "P2",
			[]func(*transition){func(c *transition) { c.volumes[0][0].generation = 2 }}},
		"a PV is stored for an unfit volume": {store, "P2",
			[]func(*transition){func(c *transition) { c.volumes[0][0].unfit = true }}},
	} {
		t.Run(name, func(t *testing.T) {
			w := single()
			c := checked(&w)
			for _, prepare := range tc.prepare {
				prepare(c)
			}
			tc.check(c)
			modeltest.Broken(t, c.Wrong, tc.want)
		})
	}
}

func TestRestIsChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		want    string
		prepare []func(*transition)
	}{
		"a claim with its PV":              {"", []func(*transition){closed, bound}},
		"and its entry is open":            {"P5", []func(*transition){bound}},
		"whose volume is gone":             {"P5", []func(*transition){closed, bound, lost}},
		"a claim without a PV":             {"P5", []func(*transition){closed, lost}},
		"a claim whose PV's name is taken": {"", []func(*transition){func(c *transition) { c.pvs[0] = pv{claim: foreign} }}},
		"a claim whose PV is terminating": {"", []func(*transition){closed, stored,
			func(c *transition) { c.pvs[0].terminating = true }}},
		"a claim whose class is gone": {"", []func(*transition){closed, lost, func(c *transition) { c.class = 0 }}},
		"a claim that is bound to another PV": {"", []func(*transition){closed, lost,
			func(c *transition) { c.claims[0].bound = boundElsewhere }}},
		"a claim that is terminating": {"P5", []func(*transition){closed, lost,
			func(c *transition) { c.claims[0].terminating = true }}},
		"no claim, an entry is open": {"P5", []func(*transition){deleted, lost}},
		"the driver has another request's volume": {"",
			[]func(*transition){func(c *transition) { c.volumes[0][0].by.content = 6 }}},
		"nothing at all": {"", []func(*transition){closed, deleted, lost}},
	} {
		t.Run(name, func(t *testing.T) {
			w := single()
			c := checked(&w)
			for _, prepare := range tc.prepare {
				prepare(c)
			}
			modeltest.Broken(t, newWorker(&w).unsettled(&c.state), tc.want)
		})
	}
}
