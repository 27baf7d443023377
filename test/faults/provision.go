//go:build unix

package faults

import (
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/scenario"
)

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
