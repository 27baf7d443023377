//go:build unix

package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
)

// setScenario is one scenario of the fifth act: StatefulSets whose volumes have data are scaled.
type setScenario struct {
	title, description, ends string
	// conclusion is printed when the scenario ended as wanted.
	conclusion string
	// guarded means that volume-guard runs.
	guarded bool

	want setOutcome
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

// setOutcome is the end of a scenario in the API server and on the disk.
type setOutcome struct {
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

func (o setOutcome) String() string { return strings.Join(o.cells(), ", ") }

func (o setOutcome) cells() []string {
	disk, others := "disk gone", otherLost
	if o.onDisk {
		disk = "disk left"
	}
	if o.others {
		others = otherData
	}
	return []string{o.claim, disk, strconv.Itoa(o.pods) + " of 2 pods", o.fresh, others, o.plugin}
}

func setScenarios() []setScenario {
	return []setScenario{
		{
			title: "StatefulSets scaled down, volume-guard off",
			description: "The policy of both sets is whenScaled: Delete. Of cache, a pod is deleted by hand just " +
				"before\nthe set is scaled down. queue is scaled down, and up again while the pod ends. The node is\n" +
				"played: the demo writes the data.",
			ends: "a disk stays, a pod is missing",
			conclusion: "Kubernetes deletes no claim that has no pod when its set is scaled down: the disk of cache-1\n" +
				"stays on the bill. And the controller of queue does not notice that the claim is gone for\n" +
				"which it waits: a pod is missing.",
			want: setOutcome{claim: claimKept, fresh: noVolume, onDisk: true, pods: 1, others: true, plugin: notAsked},
		},
		{
			title:       "StatefulSets scaled down",
			description: "The same with volume-guard, and with a grace period of a second (the default is a minute).",
			ends:        "the disk goes, the pod comes",
			conclusion: "The claim of cache-1 was deleted after the grace period, and no other. queue was written to,\n" +
				"and got its pod, with an empty volume. The plugin had shown what goes, and lists what is left:\n" +
				"that of db, whose policy is Retain.",
			guarded: true,
			want:    setOutcome{claim: claimDeleted, fresh: emptyVolume, pods: 2, others: true, plugin: foreseen},
		},
	}
}

func (sc setScenario) verdict(seen setOutcome) verdict {
	v := verdict{title: sc.title, conclusion: sc.conclusion, want: sc.want, seen: seen}
	if !sc.guarded {
		v.harm = "stuck"
	}
	return v
}

// showSets is the fifth act, in the environment of the first.
func (env *environment) showSets(ctx context.Context) (err error) {
	act := &setsAct{environment: env}
	defer func() { err = errors.Join(err, act.stop()) }()
	env.p.head("Getting ready for StatefulSets")
	if err := act.setUp(ctx); err != nil {
		return err
	}
	var all []staged
	for _, sc := range setScenarios() {
		all = append(all, staged{title: sc.title, description: sc.description,
			play: func(ctx context.Context) (verdict, error) {
				seen, err := act.play(ctx, sc)
				return sc.verdict(seen), err
			}})
	}
	if err := env.p.play(ctx, "What the API server and the disk say", all); err != nil {
		act.explainGuard(ctx)
		return err
	}
	return act.end(ctx)
}
