//go:build unix

package faults

import (
	"fmt"
	"maps"
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/scenario"
)

// Deletions are the stories in which a sidecar is killed at every moment: both kinds of PV, both orders of deletion.
// With flips, also those where the policy is turned before.
func Deletions(flips bool) []scenario.Scenario {
	var all []scenario.Scenario
	for _, kind := range []string{scenario.Dynamic, scenario.Static} {
		for _, order := range []string{"claim-first", "pv-first"} {
			all = append(all, deletion(kind, order, "Delete", "Delete"))
			if flips {
				all = append(all, deletion(kind, order, "Delete", "Retain"), deletion(kind, order, "Retain", "Delete"))
			}
		}
	}
	return all
}

// deletion is the scenario of one volume that is made with one policy and deleted with another, or the same.
func deletion(kind, order, before, after string) scenario.Scenario {
	sc := scenario.Scenario{Name: fmt.Sprintf("%s-%s-%s-%s", kind, order, before, after),
		Want: map[string]scenario.End{onlyVolume: scenario.Deleted}}
	add := func(steps ...scenario.Step) { sc.Steps = append(sc.Steps, steps...) }
	add(scenario.Step{Do: scenario.Make, Volume: onlyVolume, Kind: kind, Policy: before})
	if before == "Delete" {
		add(waitFor("protected"))
	}
	if before != after {
		add(scenario.Step{Do: scenario.SetPolicy, Volume: onlyVolume, Policy: after})
		add(waitFor(map[string]string{"Delete": "protected", "Retain": "unprotected"}[after]))
	}
	if order == "pv-first" {
		add(do(scenario.DeletePV), waitFor("terminating"))
	}
	add(do(scenario.DeleteClaim), waitFor("claim-gone"))
	if after == "Retain" {
		sc.Want[onlyVolume] = scenario.Kept
	} else {
		add(waitFor("gone"))
	}
	return sc
}

// onlyVolume is the volume that the stories of crashes are about.
const onlyVolume = "a"

func do(action scenario.Action) scenario.Step { return scenario.Step{Do: action, Volume: onlyVolume} }

func waitFor(condition string) scenario.Step {
	return scenario.Step{Do: scenario.Wait, Volume: onlyVolume, For: condition}
}

// moment is one at which the sidecar can be killed, and the step that has it killed there.
type moment struct {
	name string
	scenario.Step
}

// moments returns the moments that are sure to come, from an undisturbed run: before, during and after each of the
// sidecar's writes to PVs and claims, and the same for each of its calls of the driver.
func moments(undisturbed Result) []moment {
	var all []moment
	for k := range sure(undisturbed.Writes) {
		for _, at := range []proxy.Point{proxy.Before, proxy.Committed, proxy.Answered} {
			all = append(all, moment{fmt.Sprintf("write-%d-%s", k+1, at), scenario.Step{Do: scenario.API, Rules: []proxy.Rule{
				{Verb: "write", Resource: "persistentvolume*", Nth: k + 1, Effect: proxy.Crash, At: at},
			}}})
		}
	}
	for _, method := range slices.Sorted(maps.Keys(undisturbed.Calls)) {
		for k := range undisturbed.Calls[method] {
			for _, at := range []string{scenario.AtReceived, scenario.AtDone, scenario.AtAnswered} {
				all = append(all, moment{fmt.Sprintf("%s-%d-%s", method, k+1, at),
					scenario.Step{Do: scenario.CrashAtCall, Method: method, Nth: k + 1, At: at}})
			}
		}
	}
	return all
}

// sure counts the accepted writes, which come regardless of the order of the threads. A refused write, because of a
// concurrent write or a lost answer, is repeated.
func sure(writes []proxy.Request) (n int) {
	for _, w := range writes {
		if w.Code >= 200 && w.Code < 300 {
			n++
		}
	}
	return n
}

// Crashes returns a scenario for each moment of an undisturbed run at which the sidecar can be killed. It is started
// again at once.
func Crashes(undisturbed Result) []scenario.Scenario {
	var all []scenario.Scenario
	for _, m := range moments(undisturbed) {
		sc := undisturbed.Scenario
		sc.Name += "-" + m.name
		steps := slices.Clone(sc.Steps)
		if first := &steps[0]; first.Do == scenario.API && m.Do == scenario.API {
			first.Rules = slices.Concat(m.Rules, first.Rules) // a step would replace the rules of the other
		} else {
			steps = slices.Insert(steps, 0, m.Step)
		}
		sc.Steps = append(steps, scenario.Step{Do: scenario.Wait, For: "crashed"})
		all = append(all, sc)
	}
	return all
}

func provisionStep(policy string) scenario.Step {
	return scenario.Step{Do: scenario.Make, Volume: onlyVolume, Kind: scenario.Provisioned, Policy: policy}
}

// Provision is the scenario of a claim that gets its volume.
func Provision() scenario.Scenario {
	return scenario.Scenario{
		Name:  "provisioned",
		Steps: []scenario.Step{provisionStep("Delete"), waitFor("bound"), waitFor("settled")},
		Want:  map[string]scenario.End{onlyVolume: scenario.Bound},
	}
}

// Lives returns the scenarios in which the sidecar is killed at every moment of a provisioned volume's whole life. They
// delete the claim first, delete the PV first, keep the volume, or lose the answer to the creation of the PV.
func Lives() []scenario.Scenario {
	life := func(name, policy string, steps ...scenario.Step) scenario.Scenario {
		sc := Provision()
		sc.Name += "-" + name
		sc.Steps[0] = provisionStep(policy)
		sc.Steps = append(sc.Steps, steps...)
		sc.Want = map[string]scenario.End{onlyVolume: scenario.Deleted}
		return sc
	}
	claimFirst := []scenario.Step{do(scenario.DeleteClaim), waitFor("claim-gone"), waitFor("gone")}
	pvFirst := life("pv-first", "Delete", slices.Concat([]scenario.Step{do(scenario.DeletePV), waitFor("terminating")},
		claimFirst)...)
	kept := life("kept", "Retain", claimFirst[:2]...)
	kept.Want[onlyVolume] = scenario.Kept
	lost := life("answer-lost", "Delete", claimFirst...)
	lost.Steps = slices.Insert(lost.Steps, 0, scenario.Step{Do: scenario.API, Rules: []proxy.Rule{
		{Verb: "create", Resource: "persistentvolumes", Nth: 1, Effect: proxy.DropAnswer},
	}})
	return []scenario.Scenario{life("claim-first", "Delete", claimFirst...), pvFirst, kept, lost}
}

// Meanwhile returns the scenarios in which the sidecar is killed at each moment of an undisturbed run of Provision, and
// the claim is deleted while it is down. With classes, other scenarios delete the StorageClass and create it again,
// while the claim lives or is deleted, too. The oracle decides whether the entry must exist in between.
func Meanwhile(undisturbed Result, classes bool) []scenario.Scenario {
	rest, start := scenario.Step{Do: scenario.Rest}, scenario.Step{Do: scenario.Start}
	var all []scenario.Scenario
	for _, m := range moments(undisturbed) {
		add := func(name string, end scenario.End, steps ...scenario.Step) {
			begin := []scenario.Step{{Do: scenario.StayDown}, m.Step, provisionStep("Delete"), {Do: scenario.Wait, For: "down"}}
			all = append(all, scenario.Scenario{
				Name: name + "-" + m.name, Steps: append(begin, steps...), Want: map[string]scenario.End{onlyVolume: end},
			})
		}
		add("claim-deleted", scenario.Deleted, do(scenario.DeleteClaim), start, waitFor("claim-gone"), waitFor("gone"))
		if !classes {
			continue
		}
		add("class-deleted", scenario.Bound, do(scenario.DeleteClass), start, rest, do(scenario.MakeClass), waitFor("bound"))
		add("both-deleted", scenario.Deleted, do(scenario.DeleteClass), do(scenario.DeleteClaim), start, rest,
			do(scenario.MakeClass),
			waitFor("claim-gone"), waitFor("gone"))
	}
	return all
}
