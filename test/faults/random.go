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

// Random returns the story of a seed: a few volumes, users who delete them, change their minds and attach them, and
// meanwhile programs that die and a line that is bad. The same seed always gives the same story; what comes of it also depends on
// the machine.
func Random(seed uint64) scenario.Scenario {
	g := &generator{
		Rand: rand.New(rand.NewPCG(seed, 0)), vols: map[string]*plannedVolume{},
		Scenario: scenario.Scenario{Name: fmt.Sprintf("random-%d", seed)},
	}
	for i := range 2 + g.IntN(3) {
		g.make(string(rune('a' + i)))
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

// generator writes a story, and keeps in mind what it means for the volumes.
type generator struct {
	*rand.Rand
	scenario.Scenario
	names  []string
	vols   map[string]*plannedVolume
	strips int
	// faulty: something lasts that may keep the sidecar from its work.
	faulty bool
}

// plannedVolume is how far a volume is by the story.
type plannedVolume struct {
	policy string
	// sure: the finalizer is on it, whatever the sidecar is doing.
	sure                              bool
	claimDeleted, pvDeleted, attached bool
	mayLeak                           bool
}

func (g *generator) add(steps ...scenario.Step) { g.Steps = append(g.Steps, steps...) }

func (g *generator) pass(most int) {
	g.add(scenario.Step{Do: scenario.Pass, Time: proxy.Duration(time.Duration(1+g.IntN(most)) * time.Millisecond)})
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g *generator) make(name string) {
	step := scenario.Step{Do: scenario.Make, Volume: name, Kind: "dynamic", Policy: "Delete"}
	if g.chance(40) {
		step.Kind = "static"
	}
	if g.chance(20) {
		step.Policy = "Retain"
	}
	if len(g.names) > 0 && g.chance(10) {
		step.Of = g.names[g.IntN(len(g.names))]
	}
	g.names = append(g.names, name)
	g.vols[name] = &plannedVolume{policy: step.Policy}
	g.add(step)
}

// protect waits for the finalizer where it is sure to come.
func (g *generator) protect(name string) {
	vol := g.vols[name]
	if vol.policy == "Delete" && !vol.pvDeleted && !vol.claimDeleted && !g.faulty && !vol.sure {
		g.add(scenario.Step{Do: scenario.Wait, Volume: name, For: "protected"})
		vol.sure = true
	}
}

// user does something to a volume.
func (g *generator) user(name string) {
	vol := g.vols[name]
	step := scenario.Step{Volume: name}
	switch n := g.IntN(100); {
	case n < 30:
		step.Do, vol.claimDeleted = scenario.DeleteClaim, true
	case n < 55:
		vol.mayLeak = vol.mayLeak || !vol.sure
		step.Do, vol.pvDeleted = scenario.DeletePV, true
	case n < 75:
		g.turn(name)
		return
	case n < 83 && !vol.attached:
		step.Do, vol.attached = scenario.Attach, true
	case n < 90 && vol.attached:
		step.Do, vol.attached = scenario.Detach, false
	case n < 94 && vol.claimDeleted:
		step.Do = scenario.RecreateClaim
	case n < 96 && vol.claimDeleted:
		step.Do = scenario.TakeBack
	case n < 98 && g.strips < 2:
		g.strips++
		step.Do, vol.sure = scenario.StripFinalizer, false
		// A deletion that runs already lets go of the volume, or has nothing to hold it.
		vol.mayLeak = vol.mayLeak || vol.pvDeleted
	default:
		return
	}
	g.add(step)
	if step.Do == scenario.StripFinalizer {
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

// line makes the line bad, or good again.
func (g *generator) line() {
	if g.faulty && g.chance(30) {
		g.heal()
		return
	}
	resource := "persistentvolumes"
	if g.chance(25) {
		resource = "volumeattachments"
	}
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

// rules makes one or two rules for the line.
func (g *generator) rules() []proxy.Rule {
	all := []proxy.Rule{
		{Verb: "write", Resource: "persistentvolumes", Effect: proxy.Fail, Code: 409},
		{Verb: "write", Effect: proxy.Fail, Code: 429, RetryAfter: 1},
		{Verb: "write", Resource: "persistentvolumes", Effect: proxy.Fail, Code: 500},
		{Verb: "write", Resource: "persistentvolumes", Effect: proxy.FailAfter, Code: 504},
		{Verb: "write", Resource: "persistentvolumes", Effect: proxy.Reset},
		{Verb: "write", Resource: "persistentvolumes", Effect: proxy.DropAnswer},
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
			{Verb: "write", Resource: "persistentvolumes", Nth: 1 + g.IntN(3), Effect: proxy.Crash, At: at},
		}})
		g.faulty = true
	case 4:
		at := []string{scenario.AtReceived, scenario.AtDone, scenario.AtAnswered}[g.IntN(3)]
		g.add(scenario.Step{Do: scenario.CrashAtCall, Nth: 1 + g.IntN(2), At: at})
	}
}

// driver has the driver misbehave, or behave.
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
	r := all[g.IntN(len(all))]
	r.Method, r.First = "DeleteVolume", 1+g.IntN(3)
	if r.Action == faults.Crash {
		r.First, r.Nth = 0, 1
	}
	g.add(scenario.Step{Do: scenario.Driver, Calls: []faults.Rule{r}})
}
