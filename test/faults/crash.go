//go:build unix

package faults

import (
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/scenario"
)

// Deletions are the stories in which a sidecar is killed at every moment: both kinds of PV, both orders of deletion. With flips,
// also those where the policy is turned before.
func Deletions(flips bool) []scenario.Scenario {
	var all []scenario.Scenario
	for _, kind := range []string{"dynamic", "static"} {
		for _, order := range []string{"claim-first", "pv-first"} {
			all = append(all, deletion(kind, order, "Delete", "Delete"))
			if flips {
				all = append(all, deletion(kind, order, "Delete", "Retain"), deletion(kind, order, "Retain", "Delete"))
			}
		}
	}
	return all
}

// deletion is the story of one volume that is made with one policy and deleted with another, or the same.
func deletion(kind, order, before, after string) scenario.Scenario {
	const a = "a"
	sc := scenario.Scenario{Name: fmt.Sprintf("%s-%s-%s-%s", kind, order, before, after), Want: map[string]scenario.End{a: scenario.Deleted}}
	add := func(steps ...scenario.Step) { sc.Steps = append(sc.Steps, steps...) }
	waitFor := func(condition string) scenario.Step {
		return scenario.Step{Do: scenario.Wait, Volume: a, For: condition}
	}
	add(scenario.Step{Do: scenario.Make, Volume: a, Kind: kind, Policy: before})
	if before == "Delete" {
		add(waitFor("protected"))
	}
	if before != after {
		add(scenario.Step{Do: scenario.SetPolicy, Volume: a, Policy: after})
		add(waitFor(map[string]string{"Delete": "protected", "Retain": "unprotected"}[after]))
	}
	if order == "pv-first" {
		add(scenario.Step{Do: scenario.DeletePV, Volume: a}, waitFor("terminating"))
	}
	add(scenario.Step{Do: scenario.DeleteClaim, Volume: a}, waitFor("claim-gone"))
	if after == "Retain" {
		sc.Want[a] = scenario.Kept
	} else {
		add(waitFor("gone"))
	}
	return sc
}

// Crashes returns a story for each moment of an undisturbed run at which the sidecar can be killed: before, during and after
// each of its writes to a PV, and the same for each DeleteVolume. writes and calls are how many of them the run had.
func Crashes(of scenario.Scenario, writes, calls int) []scenario.Scenario {
	var all []scenario.Scenario
	add := func(name string, first scenario.Step) {
		sc := of
		sc.Name = of.Name + "-" + name
		sc.Steps = append([]scenario.Step{first}, of.Steps...)
		sc.Steps = append(sc.Steps, scenario.Step{Do: scenario.Wait, For: "crashed"})
		all = append(all, sc)
	}
	for k := 1; k <= writes; k++ {
		for _, at := range []proxy.Point{proxy.Before, proxy.Committed, proxy.Answered} {
			add(fmt.Sprintf("write-%d-%s", k, at), scenario.Step{Do: scenario.API, Rules: []proxy.Rule{
				{Verb: "write", Resource: "persistentvolumes", Nth: k, Effect: proxy.Crash, At: at},
			}})
		}
	}
	for k := 1; k <= calls; k++ {
		for _, at := range []string{scenario.AtReceived, scenario.AtDone, scenario.AtAnswered} {
			add(fmt.Sprintf("call-%d-%s", k, at), scenario.Step{Do: scenario.CrashAtCall, Nth: k, At: at})
		}
	}
	return all
}
