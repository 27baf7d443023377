//go:build unix

// Package sets is the act in which StatefulSets are scaled whose claims are to go with their replicas.
package sets

import (
	"context"
	"strconv"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
)

// Act returns the scenarios, as they are listed.
func Act() stage.Act {
	return stage.NewAct("Then StatefulSets that are scaled down, with volume-guard and without.", list())
}

// Show plays the scenarios in the cluster of the demo.
func Show(ctx context.Context, c *cluster.CSI) error {
	act := &act{CSI: c}
	c.Printer.Head("Getting ready for StatefulSets")
	if err := act.setUp(ctx); err != nil {
		return err
	}
	var all []stage.Scenario
	for _, sc := range list() {
		sc.Play = func(ctx context.Context) (stage.Ending, error) { return act.play(ctx, sc) }
		all = append(all, sc.Scenario)
	}
	if err := c.Printer.Play(ctx, "What the API server and the disk say", all); err != nil {
		if act.guard != nil && ctx.Err() == nil {
			c.ExplainProgram(act.guard)
		}
		return err
	}
	return act.end(ctx)
}

// scenario is one in which StatefulSets are scaled whose volumes have data.
type scenario struct {
	stage.Scenario
	// guarded means that volume-guard runs.
	guarded bool
}

// The fates of the claim of the replica that was scaled away without a pod.
const (
	claimKept    = "claim kept"
	claimDeleted = "claim deleted"
)

// The contents of the new volume of the replica that was scaled away, and back before its pod had ended.
const (
	noVolume    = "no new disk"
	emptyVolume = "empty disk"
	oldData     = "OLD DATA"
)

// The plugin's words about it.
const (
	notAsked  = "not asked"
	foreseen  = "as foreseen"
	mistaken  = "NOT FORESEEN"
	unlisted  = "RETAINED UNLISTED"
	otherData = "others kept"
	otherLost = "OTHERS LOST"
)

// outcome is the end of a scenario in the API server and on the disk.
type outcome struct {
	// claim and fresh are each one of the constants.
	claim, fresh string
	// onDisk means that the volume of the claim exists.
	onDisk bool
	// pods is how many of its two pods the other set has.
	pods int
	// others means that the data of all other replicas exists.
	others bool
	// plugin is the plugin's answer, as one of the constants.
	plugin string
}

// Cells are the parts of the outcome in words.
func (o outcome) Cells() []string {
	disk, others := "disk gone", otherLost
	if o.onDisk {
		disk = "disk left"
	}
	if o.others {
		others = otherData
	}
	return []string{o.claim, disk, strconv.Itoa(o.pods) + " of 2 pods", o.fresh, others, o.plugin}
}

func list() []scenario {
	return []scenario{
		{
			Scenario: stage.Scenario{
				Title: "StatefulSets scaled down, volume-guard off",
				Description: "The policy of both sets is whenScaled: Delete. Of cache, a pod is deleted by hand just " +
					"before\nthe set is scaled down. queue is scaled down, and up again while the pod ends. The node is\n" +
					"played: the demo writes the data.",
				Ends: "a disk stays, a pod is missing", Harm: "stuck",
				Conclusion: "Kubernetes deletes no claim that has no pod when its set is scaled down: the disk of cache-1\n" +
					"stays on the bill. And the controller of queue does not notice that the claim is gone for\n" +
					"which it waits: a pod is missing.",
				Want: outcome{claim: claimKept, fresh: noVolume, onDisk: true, pods: 1, others: true, plugin: notAsked},
			},
		},
		{
			guarded: true,
			Scenario: stage.Scenario{
				Title:       "StatefulSets scaled down",
				Description: "The same with volume-guard, and with a grace period of a second (the default is a minute).",
				Ends:        "the disk goes, the pod comes",
				Conclusion: "The claim of cache-1 was deleted after the grace period, and no other. queue was written to,\n" +
					"and got its pod, with an empty volume. The plugin had shown what goes, and lists what is left:\n" +
					"that of db, whose policy is Retain.",
				Want: outcome{claim: claimDeleted, fresh: emptyVolume, pods: 2, others: true, plugin: foreseen},
			},
		},
	}
}
