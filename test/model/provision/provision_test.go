package provision

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

func TestNoWorldBreaksAPromise(t *testing.T) { modeltest.BreakNoPromise(t, Worlds(), 4_000) }

// named returns the world of a name.
func named(t *testing.T, name string) World {
	t.Helper()
	for _, w := range Worlds() {
		if w.Name == name {
			return w
		}
	}
	t.Fatalf("there is no world %q", name)
	return World{}
}

func TestStateSurvivesEncoding(t *testing.T) {
	modeltest.HasNoPadding[state](t)
	modeltest.Each(t, Worlds(), func(t *testing.T, w *World) {
		modeltest.Walk(t, modeltest.Random(t), &newWorker(w).Plain, 300, func(*state) {})
	})
}

// What no world varies, no world shows.
func TestEverythingVariesInSomeWorld(t *testing.T) {
	varies := map[string]bool{}
	for _, w := range Worlds() {
		for _, v := range []reflect.Value{reflect.ValueOf(w), reflect.ValueOf(w.Budget)} {
			for i := range v.NumField() {
				name := v.Type().Field(i).Name
				varies[name] = varies[name] || !w.Deep && !v.Field(i).IsZero()
			}
		}
	}
	for name, does := range varies {
		if !does && name != "Deep" && name != "strict" && name != "anew" && name != "credulous" &&
			name != "insistent" && name != "forgetful" && name != "hasty" {
			t.Errorf("%s does not vary in any world", name)
		}
	}
}

// An excuse is one for the volume that it names, and each is needed: without it, this promise is broken. Each guard of
// the exits is needed, too.
func TestEachExcuseAndGuardIsNeeded(t *testing.T) {
	strict := func(w *World) { w.strict = true }
	// Without Reply.Comparable, a refusal of a driver that judges by other rules, or without the Secret, closes the entry
	// of an existing volume.
	credulous := func(w *World) { w.credulous = true }
	// Without Facts.SecondFailed, an entry that gets no second request is never finished.
	insistent := func(w *World) { w.insistent = true }
	// Without NoteVersion, an earlier version that comes back closes the entry.
	forgetful := func(w *World) { w.forgetful = true }
	// Without ConfirmEntry, the PersistentVolume of an operator's volume is stored, or the volume deleted.
	hasty := func(w *World) { w.hasty = true }
	for i, tc := range []struct {
		world, promise string
		without        func(*World)
	}{
		{"excuse: log deleted", "P1", strict}, {"excuse: entry settled", "P1", strict},
		{"excuse: unfit volume settled", "P1", strict}, {"excuse: finalizer removed", "P1", strict},
		{"excuse: another provisioner", "P2", strict}, {"excuse: no room", "P5", strict},
		{"excuse: later than quiet", "P1", strict},
		{"driver replaced", "P1", credulous}, {"driver replaced, unsure", "P1", credulous}, {"Secret", "P1", credulous},
		{"log full", "P5", insistent}, {"driver replaced, unsure", "P1", forgetful},
		{"excuse: entry settled", "P2", hasty}, {"excuse: unfit volume settled", "P2", hasty},
	} {
		t.Run(fmt.Sprintf("%d, %s", i, tc.world), func(t *testing.T) {
			w := named(t, tc.world)
			tc.without(&w)
			modeltest.Finds(t, &w, 0, tc.promise)
		})
	}
}

// Earlier versions composed the request anew for each call. The worlds that the defects are played in see it.
func TestARequestThatIsComposedAnewIsNoticed(t *testing.T) {
	for _, name := range []string{"class", "zone", "node"} {
		t.Run(name, func(t *testing.T) {
			w := named(t, name)
			w.anew = true
			if r := search.Explore(t.Context(), &w, search.Options{}); len(r.Findings()) == 0 {
				t.Error("no promise is broken")
			}
		})
	}
}

// checked returns a transition with a claim that waits, an open entry, and the volume that the driver has named.
func checked() *transition {
	w := &World{Claims: one, Replicas: 1}
	c := &transition{World: w, state: w.first()}
	c.volumes[0][0] = volume{there: true, generation: 1, by: request{content: 5}}
	c.shards[0][0].entry = entry{claim: 1, count: 1, requests: [2]request{{content: 5}}}
	m := &c.lines[0].names[0]
	m.log, m.entry, m.record.made, m.record.generation = 2, c.shards[0][0].entry, true, 1
	return c
}

func stored(c *transition) { c.pvs[0] = pv{claim: 1, generation: 1} }
func bound(c *transition)  { stored(c); c.claims[0].bound = boundOwn }
func closed(c *transition) {
	c.shards[0][0].entry = entry{}
	c.lines[0].names[0] = memory{log: 1, current: true}
}
func deleted(c *transition) { c.claims[0] = claim{} }
func lost(c *transition)    { c.volumes[0][0] = volume{generation: 1} }

var inOrder = modeltest.InOrder[*transition]

func TestEachStepIsChecked(t *testing.T) {
	leak := (*transition).checkLeak
	loss := func(c *transition) { c.checkLoss(0, 0) }
	discard := func(c *transition) { c.checkDiscard(0, 0) }
	store := func(c *transition) { c.checkPV(&call{claim: 1, generation: 1}, 0, 0) }
	sent := func(c *transition) { c.lines[0].names[0].record.sent[0] = true }
	missed := func(c *transition) { c.lines[0].names[0].pv = view{known: true, claim: 1, read: recently} }
	repeat := func(c *transition) { c.checkRepeat(0, 0) }
	modeltest.CheckSteps(t, checked, map[string]modeltest.Step[*transition]{
		"a volume with an open entry": {nil, leak, ""},
		"a volume without one":        {closed, leak, "P1"},
		"a volume with a PV":          {inOrder(closed, stored), leak, ""},
		"a volume with another one's PV": {
			inOrder(closed, stored, func(c *transition) { c.pvs[0].generation = 2 }), leak, "P1"},
		"a volume with another driver's PV": {
			inOrder(closed, func(c *transition) { c.pvs[0] = pv{claim: foreign, generation: 1} }), leak, "P1"},
		"a volume that was kept": {inOrder(closed, func(c *transition) { c.volumes[0][0].kept = keptStrictly }), leak, ""},
		"a volume that is not ours": {
			inOrder(closed, func(c *transition) { c.volumes[0][0].by.content = othersContent }), leak, ""},
		"a volume that is excused":                  {inOrder(closed, func(c *transition) { c.excuse(0, 0) }), leak, ""},
		"the volume that a claim is to get is lost": {nil, loss, "P2"},
		"and the claim is gone":                     {deleted, loss, ""},
		"and it does not match the request": {
			func(c *transition) { c.lines[0].names[0].record.unfit = true }, loss, ""},
		"the volume of a bound claim is lost": {inOrder(closed, bound), loss, "P2"},
		"the volume of a terminating claim is lost": {
			inOrder(closed, bound, func(c *transition) { c.claims[0].terminating = true }), loss, "P2"},
		"the volume of a claim that is gone is lost": {inOrder(closed, stored, deleted), loss, ""},
		"the claim is bound to another PV": {
			inOrder(closed, stored, func(c *transition) { c.claims[0].bound = boundElsewhere }), loss, ""},
		"an administrator kept the volume": {
			inOrder(closed, deleted, func(c *transition) { c.volumes[0][0].kept = keptStrictly }), loss, "P2"},
		"its claim has asked for it again": {
			inOrder(closed, deleted, func(c *transition) { c.volumes[0][0].kept = keptForClaim }), loss, ""},
		"the volume is not ours": {
			inOrder(closed, deleted, func(c *transition) { c.volumes[0][0].by.content = othersContent }), loss, "P2"},
		"a volume that is as requested is discarded": {nil, discard, "P2"},
		"an unfit one is discarded, unseen": {
			func(c *transition) { c.lines[0].names[0].record.unfit = true }, discard, "P2"},
		"an unfit one is discarded": {
			func(c *transition) { c.lines[0].names[0].record.unfit, c.lines[0].names[0].pv.read = true, recently }, discard, ""},
		"CreateVolume is repeated":                     {sent, repeat, ""},
		"it is sent, and a PV has the volume":          {stored, repeat, ""},
		"it is repeated, and a PV has the volume":      {inOrder(sent, stored), repeat, "P2"},
		"it is repeated, and the PV came after a read": {inOrder(sent, stored, missed), repeat, ""},
		"it is repeated, and another claim's PV has it": {
			inOrder(sent, func(c *transition) { c.pvs[0] = pv{claim: 2, generation: 1} }), repeat, ""},
		"a PV is stored": {nil, store, ""},
		"a PV is stored for a volume that is deleted": {lost, store, "P2"},
		"a PV is stored for the one before":           {func(c *transition) { c.volumes[0][0].generation = 2 }, store, "P2"},
		"a PV is stored for an unfit volume":          {func(c *transition) { c.volumes[0][0].unfit = true }, store, "P2"},
	})
}

func TestRestIsChecked(t *testing.T) {
	unsettled := func(c *transition) string { return newWorker(c.World).unsettled(&c.state) }
	modeltest.Check(t, checked, unsettled, map[string]modeltest.Case[*transition]{
		"a claim with its PV":              {inOrder(closed, bound), ""},
		"and its entry is open":            {bound, "P5"},
		"whose volume is gone":             {inOrder(closed, bound, lost), "P5"},
		"a claim without a PV":             {inOrder(closed, lost), "P5"},
		"a claim whose PV's name is taken": {func(c *transition) { c.pvs[0] = pv{claim: foreign} }, ""},
		"a claim whose PV is terminating": {
			inOrder(closed, stored, func(c *transition) { c.pvs[0].terminating = true }), ""},
		"a claim whose class is gone": {inOrder(closed, lost, func(c *transition) { c.class = 0 }), ""},
		"a claim that is bound to another PV": {
			inOrder(closed, lost, func(c *transition) { c.claims[0].bound = boundElsewhere }), ""},
		"a claim that is terminating": {
			inOrder(closed, lost, func(c *transition) { c.claims[0].terminating = true }), "P5"},
		"no claim, an entry is open":              {inOrder(deleted, lost), "P5"},
		"the driver has another request's volume": {func(c *transition) { c.volumes[0][0].by.content = 6 }, ""},
		"nothing at all":                          {inOrder(closed, deleted, lost), ""},
	})
}

// reaches searches a world breadth first for a state.
func (w *World) reaches(is func(*state) bool, states int) bool {
	k, first := newWorker(w), w.first()
	seen, frontier := map[state]bool{first: true}, []state{first}
	for at := 0; at < len(frontier) && at < states; at++ {
		s := frontier[at]
		if is(&s) {
			return true
		}
		for o := range k.List(&s) {
			if !seen[*o.To] {
				seen[*o.To] = true
				frontier = append(frontier, *o.To)
			}
		}
	}
	return false
}

// The defects that were found by running programs are moments in worlds that are explored whole: from each, all
// promises are kept, and rest is reached.
func TestTheDefectsThatWereSeenArePlayed(t *testing.T) {
	doubt := func(s *state) bool {
		m := s.lines[0].names[0]
		return provision.Log(m.log) == provision.LogOpen && m.record.sent[0] && !m.record.made && m.record.failed &&
			s.volumes[0][0].there
	}
	for name, tc := range map[string]struct {
		world string
		is    func(*state) bool
	}{
		"1a: the volume is in a zone whose last node goes, and the claim waits": {"zone", func(s *state) bool {
			return doubt(s) && !s.zone && s.claims[0].needy()
		}},
		"1a: and the claim is deleted": {"zone", func(s *state) bool { return doubt(s) && !s.zone && !s.claims[0].exists }},
		"1b: another node is selected, and the volume is on the first": {"node", func(s *state) bool {
			m := s.lines[0].names[0]
			return doubt(s) && s.claims[0].node == 2 && s.volumes[0][0].by.node == 1 && m.entry.count == 2 && m.record.next == 1
		}},
		"2: the class has other parameters, its claim is deleted, and the driver answers InvalidArgument": {"class",
			func(s *state) bool {
				return doubt(s) && s.class == 2 && !s.claims[0].exists
			}},
		"2: or the zone's node is gone": {"zone", func(s *state) bool {
			return doubt(s) && !s.zone && !s.claims[0].exists && s.left.Unfit == 0
		}},
		"4: the first CreateVolume is answered AlreadyExists, and the entry is closed": {"occupied", func(s *state) bool {
			m := s.lines[0].names[0]
			return provision.Log(m.log) == provision.LogAbsent && m.backsOff && s.claims[0].exists
		}},
		"4: and the claim is gone as soon as it is deleted": {"occupied", func(s *state) bool {
			return s.lines[0].names[0].backsOff && !s.claims[0].exists
		}},
		"5: the driver refuses in doubt, and the claim is gone as soon as it is deleted": {"refused", func(s *state) bool {
			m := s.lines[0].names[0]
			return provision.Log(m.log) == provision.LogOpen && m.record.failed && !m.record.settled[0] && s.left.Refuse == 0 &&
				!s.claims[0].exists
		}},
		"the driver has no volume for a node that is gone, and one for another": {"node gone", func(s *state) bool {
			m := s.lines[0].names[0]
			return s.gone && s.volumes[0][0].by.node == 2 && m.entry.count == 2 && m.record.sent[0]
		}},
		"the volume was made for a node that is gone, another is selected, and the first one returns": {"node gone",
			func(s *state) bool {
				return doubt(s) && !s.gone && s.left.Leave == 0 && s.claims[0].node == 2 && s.volumes[0][0].by.node == 1
			}},
		"the first request goes on while the log has no room for the second": {"log full", func(s *state) bool {
			l := s.lines[0]
			return l.names[0].secondFailed && provision.Action(l.calls[0].action) == provision.CreateVolume && s.full &&
				s.claims[0].node == 2
		}},
		"there is no room for the first entry": {"log full", func(s *state) bool {
			return s.full && s.lines[0].names[0].backsOff && s.shards[0][0].entry.claim == 0
		}},
		"a request is repeated without its Secret, and there is a volume": {"Secret", func(s *state) bool {
			return doubt(s) && s.lines[0].calls[0].bare
		}},
		"no entry is opened without a Secret": {"Secret", func(s *state) bool {
			return s.noSecret && s.claims[0].needy() && s.shards[0][0].entry.claim == 0 && s.lines[0].calls[0].stage == idle
		}},
		"another version of the driver rejects the request of a volume that there is": {"driver replaced",
			func(s *state) bool {
				now := s.lines[0].calls[0]
				return doubt(s) && now.stage == answered && now.changed
			}},
	} {
		t.Run(name, func(t *testing.T) {
			w := named(t, tc.world)
			if !w.reaches(tc.is, 100_000) {
				t.Error("this does not happen")
			}
		})
	}
}

// Nothing of ours holds a claim: no step adds a finalizer, and a claim that nobody else holds is gone at once.
func TestNoClaimIsHeld(t *testing.T) {
	for _, w := range Worlds() {
		if w.Guarded || w.Deep {
			continue
		}
		t.Run(w.Name, func(t *testing.T) {
			if w.reaches(func(s *state) bool { return s.claims[0].terminating || s.claims[1].terminating }, 2_000) {
				t.Error("a claim is terminating")
			}
		})
	}
}
