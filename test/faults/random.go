//go:build unix

package faults

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/scenario"
)

// Random returns the scenario of a seed: a few volumes, users who delete, rescue and attach them, and at the same time
// dying programs and a faulty connection. The same seed always gives the same scenario, but its course also depends on
// the machine.
func Random(seed uint64) scenario.Scenario {
	g := &generator{
		Rand: rand.New(rand.NewPCG(seed, 0)), vols: map[string]*plannedVolume{},
		Scenario: scenario.Scenario{Name: fmt.Sprintf("random-%d", seed)},
	}
	for range 2 + g.IntN(3) {
		g.make()
	}
	for _, name := range g.names {
		g.protect(name)
	}
	if g.chance(50) {
		g.faulty = true
		g.add(scenario.Step{Do: scenario.API, Rules: g.rules()})
	}
	for range 12 + g.IntN(12) {
		switch n := g.IntN(100); {
		case n < 8 && len(g.names) < mostVolumes:
			g.makeProvisioned()
		case n < 48:
			g.user(g.names[g.IntN(len(g.names))])
		case n < 66:
			g.line()
		case n < 78:
			g.programs()
		case n < 90:
			g.driver()
		default:
			g.pass(300)
		}
	}
	for i := range g.Steps {
		if step := &g.Steps[i]; step.Do == scenario.Make {
			step.MayLeak = g.vols[step.Volume].mayLeak
		}
	}
	return g.Scenario
}

// generator writes a scenario, and tracks its effect on the volumes.
type generator struct {
	*rand.Rand
	scenario.Scenario
	names  []string
	vols   map[string]*plannedVolume
	strips int
	// faulty means that a lasting fault may keep the sidecar from its work.
	faulty bool
}

// mostVolumes bounds the volumes of a scenario.
const mostVolumes = 7

// plannedVolume is how far a volume is by the scenario.
type plannedVolume struct {
	policy string
	// provisioned volumes are the sidecar's, so their existence is unknown and no step can wait for them.
	provisioned bool
	// sure means that it has the finalizer, independently of the sidecar's current work.
	sure                              bool
	claimDeleted, pvDeleted, attached bool
	mayLeak                           bool
}

func (g *generator) add(steps ...scenario.Step) { g.Steps = append(g.Steps, steps...) }

func (g *generator) pass(most int) {
	g.add(scenario.Step{Do: scenario.Pass, Time: proxy.Duration(time.Duration(1+g.IntN(most)) * time.Millisecond)})
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

// make makes a volume of any kind.
func (g *generator) make() {
	if g.chance(40) {
		g.makeProvisioned()
		return
	}
	step := scenario.Step{Do: scenario.Make, Kind: scenario.Dynamic}
	if g.chance(40) {
		step.Kind = scenario.Static
	}
	if len(g.names) > 0 && g.chance(10) {
		if of := g.names[g.IntN(len(g.names))]; !g.vols[of].provisioned {
			step.Of = of
		}
	}
	g.plan(step)
}

// makeProvisioned makes a claim, and has the sidecar make the volume. The PV is born with its finalizer.
func (g *generator) makeProvisioned() {
	vol := g.plan(scenario.Step{Do: scenario.Make, Kind: scenario.Provisioned})
	vol.provisioned, vol.sure = true, vol.policy == "Delete"
}

// plan makes a volume with the next name.
func (g *generator) plan(step scenario.Step) *plannedVolume {
	step.Volume, step.Policy = string(rune('a'+len(g.names))), "Delete"
	if g.chance(20) {
		step.Policy = "Retain"
	}
	vol := &plannedVolume{policy: step.Policy}
	g.names = append(g.names, step.Volume)
	g.vols[step.Volume] = vol
	g.add(step)
	return vol
}

// protect waits for the finalizer where it is sure to come.
func (g *generator) protect(name string) {
	vol := g.vols[name]
	if !vol.provisioned && vol.policy == "Delete" && !vol.pvDeleted && !vol.claimDeleted && !g.faulty && !vol.sure {
		g.add(scenario.Step{Do: scenario.Wait, Volume: name, For: "protected"})
		vol.sure = true
	}
}

// user does something to a volume.
func (g *generator) user(name string) {
	vol, n := g.vols[name], g.IntN(100)
	for _, choice := range []struct {
		below    int // of 100, in ascending order
		possible bool
		do       scenario.Action
	}{
		{12, vol.provisioned, scenario.DeleteClass},
		{24, vol.provisioned, scenario.MakeClass},
		{30, true, scenario.DeleteClaim},
		{55, true, scenario.DeletePV},
		{75, true, scenario.SetPolicy},
		{83, !vol.attached, scenario.Attach},
		{90, vol.attached, scenario.Detach},
		{92, vol.claimDeleted, scenario.RecreateClaim},
		{94, vol.claimDeleted, scenario.RestoreClaim},
		{96, vol.claimDeleted, scenario.TakeBack},
		{98, g.strips < 2, scenario.StripFinalizer},
	} {
		if n < choice.below && choice.possible {
			g.apply(name, choice.do)
			return
		}
	}
}

// apply adds a user's action on a volume, and records its effect for later steps.
func (g *generator) apply(name string, do scenario.Action) {
	vol := g.vols[name]
	switch do {
	case scenario.DeleteClaim:
		vol.claimDeleted = true
	case scenario.DeletePV:
		vol.mayLeak, vol.pvDeleted = vol.mayLeak || !vol.sure, true
	case scenario.SetPolicy:
		g.turn(name)
		return
	case scenario.Attach, scenario.Detach:
		vol.attached = do == scenario.Attach
	case scenario.StripFinalizer:
		g.strips++
		// A deletion that is under way releases the volume, or nothing protects it.
		vol.sure, vol.mayLeak = false, vol.mayLeak || vol.pvDeleted
	default:
	}
	g.add(scenario.Step{Volume: name, Do: do})
	if do == scenario.StripFinalizer {
		g.protect(name)
	}
}

// turn turns the policy of a volume.
func (g *generator) turn(name string) {
	vol := g.vols[name]
	vol.sure = false
	vol.policy = map[string]string{"Delete": "Retain", "Retain": "Delete"}[vol.policy]
	g.add(scenario.Step{Do: scenario.SetPolicy, Volume: name, Policy: vol.policy})
	if vol.policy == "Delete" {
		// On its way out the PV may have lost its finalizer under Retain already, and gets no other.
		vol.mayLeak = vol.mayLeak || vol.pvDeleted
		if g.chance(70) {
			g.protect(name)
		}
	}
}

// line makes the connection bad, or good again.
func (g *generator) line() {
	if g.faulty && g.chance(30) {
		g.heal()
		return
	}
	resource := []string{"persistentvolumes", "persistentvolumes", "persistentvolumeclaims", "volumeattachments",
		"storageclasses"}[g.IntN(5)]
	g.faulty = true
	switch g.IntN(6) {
	case 0, 1:
		g.add(scenario.Step{Do: scenario.API, Rules: g.rules()})
	case 2:
		g.add(scenario.Step{Do: scenario.Hold, Resource: resource})
	case 3:
		g.add(scenario.Step{Do: scenario.Cut, Resource: resource})
	case 4:
		g.add(scenario.Step{Do: scenario.Freeze})
		g.pass(800)
		g.heal()
	case 5:
		g.add(scenario.Step{Do: scenario.Partition})
		g.pass(800)
		g.heal()
	}
}

func (g *generator) heal() {
	g.add(scenario.Step{Do: scenario.Heal})
	g.faulty = false
}

// anyVolumes are PVs and claims.
const anyVolumes = "persistentvolume*"

// rules makes one or two rules for the connection.
func (g *generator) rules() []proxy.Rule {
	all := []proxy.Rule{
		{Verb: "write", Resource: anyVolumes, Effect: proxy.Fail, Code: 409},
		{Verb: "write", Effect: proxy.Fail, Code: 429, RetryAfter: 1},
		{Verb: "write", Resource: anyVolumes, Effect: proxy.Fail, Code: 500},
		{Verb: "write", Resource: anyVolumes, Effect: proxy.FailAfter, Code: 504},
		{Verb: "write", Resource: anyVolumes, Effect: proxy.Reset},
		{Verb: "write", Resource: anyVolumes, Effect: proxy.DropAnswer},
		{Verb: "create", Resource: "persistentvolumes", Effect: proxy.DropAnswer},
		{Verb: "get", Effect: proxy.Fail, Code: 500},
		{Verb: "get", Effect: proxy.DropAnswer},
		{Verb: "get", Resource: "persistentvolumes", Effect: proxy.LateAnswer, Delay: proxy.Duration(200 * time.Millisecond)},
		{Resource: "persistentvolumes", Effect: proxy.Delay, Delay: proxy.Duration(150 * time.Millisecond)},
		{Verb: "watch", Effect: proxy.LateAnswer, Delay: proxy.Duration(400 * time.Millisecond)},
		{Effect: proxy.Expire},
	}
	var some []proxy.Rule
	for range 1 + g.IntN(2) {
		r := all[g.IntN(len(all))]
		switch g.IntN(3) {
		case 0:
			r.First = 1 + g.IntN(4)
		case 1:
			r.Every = 2
		case 2:
			r.Nth = 1 + g.IntN(3)
		}
		some = append(some, r)
	}
	return some
}

// programs has something happen to the sidecar.
func (g *generator) programs() {
	switch g.IntN(5) {
	case 0:
		g.add(scenario.Step{Do: scenario.Kill})
		g.pass(200)
		g.add(scenario.Step{Do: scenario.Heal}, scenario.Step{Do: scenario.Start})
		g.faulty = false
	case 1:
		g.add(scenario.Step{Do: scenario.Pause})
		g.pass(500)
		g.add(scenario.Step{Do: scenario.Resume})
	case 2, 3:
		at := []proxy.Point{proxy.Before, proxy.Committed, proxy.Answered}[g.IntN(3)]
		g.add(scenario.Step{Do: scenario.API, Rules: []proxy.Rule{
			{Verb: "write", Resource: anyVolumes, Nth: 1 + g.IntN(3), Effect: proxy.Crash, At: at},
		}})
		g.faulty = true
	case 4:
		at := []string{scenario.AtReceived, scenario.AtDone, scenario.AtAnswered}[g.IntN(3)]
		g.add(scenario.Step{Do: scenario.CrashAtCall, Method: g.method(), Nth: 1 + g.IntN(2), At: at})
	}
}

func (g *generator) method() string {
	return []string{scenario.CreateVolume, scenario.DeleteVolume}[g.IntN(2)]
}

// driver has the driver misbehave, or behave. It never says InvalidArgument: that would be a lie of a volume that it
// has made.
func (g *generator) driver() {
	all := []faults.Rule{
		{Action: faults.Fail, Code: "Unavailable", AfterWork: true},
		{Action: faults.Fail, Code: "Internal"},
		{Action: faults.Fail, Code: "Aborted"},
		{Action: faults.Fail, Code: "DeadlineExceeded", AfterWork: true},
		{Action: faults.Delay, Delay: faults.Duration(300 * time.Millisecond)},
		{Action: faults.Delay, Delay: faults.Duration(300 * time.Millisecond), AfterWork: true},
		{Action: faults.Crash},
		{Action: faults.Crash, AfterWork: true},
	}
	if g.chance(25) {
		g.add(scenario.Step{Do: scenario.Driver})
		return
	}
	method := g.method()
	if method == scenario.CreateVolume {
		all = append(all, faults.Rule{Action: faults.Fail, Code: "ResourceExhausted"},
			faults.Rule{Action: faults.Fail, Code: "PermissionDenied"},
			faults.Rule{Action: faults.BlankID}, faults.Rule{Action: faults.Silence, AfterWork: true})
	}
	r := all[g.IntN(len(all))]
	r.Method, r.First = method, 1+g.IntN(3)
	if r.Action == faults.Crash {
		r.First, r.Nth = 0, 1
	}
	g.add(scenario.Step{Do: scenario.Driver, Calls: []faults.Rule{r}})
}
