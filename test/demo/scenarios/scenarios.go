//go:build unix

// Package scenarios has the four scenarios of the demo, with which the tour begins, too: claims and PVs are deleted in
// both orders, with policy Delete and Retain, and once without csi-reclaimer.
package scenarios

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// Act returns the scenarios, as they are listed.
func Act() stage.Act {
	return stage.NewAct("Shown on real objects: a Kubernetes API server with its controllers, a CSI driver with its\n"+
		"volumes as folders on disk, and csi-reclaimer between them.", list())
}

// Show plays the scenarios in a cluster of its own, on a control plane with these options. When all came to a verdict,
// it goes on with rest in the same cluster, and returns the errors of both.
func Show(ctx context.Context, p *stage.Printer, plane controlplane.Options,
	rest func(context.Context, *cluster.CSI) error) (err error) {
	c, err := cluster.StartCSI(ctx, p, plane)
	defer func() { err = c.End(ctx, err) }()
	if err == nil {
		err = playAll(ctx, c)
	}
	c.Explain(ctx, err)
	if stage.Judged(err) {
		err = errors.Join(err, rest(ctx, c))
	}
	return err
}

func playAll(ctx context.Context, c *cluster.CSI) error {
	var all []stage.Scenario
	for _, sc := range list() {
		play := &play{CSI: c, scenario: sc}
		sc.Play, sc.Again = play.run, play.look
		all = append(all, sc.Scenario)
	}
	return c.Printer.Play(ctx, "What the API server, the driver's record of calls and its disk say", all)
}

// scenario is one scenario; its Want is a cluster.Outcome.
type scenario struct {
	stage.Scenario
	name string

	policy     v1.PersistentVolumeReclaimPolicy
	pvFirst    bool
	sidecarOff bool
}

func list() []scenario {
	return []scenario{
		{
			name: "claim-first", policy: v1.PersistentVolumeReclaimDelete,
			Scenario: stage.Scenario{
				Title: "Claim deleted first",
				Description: "A claim's whole life, in the usual order: csi-reclaimer makes its volume; the claim is " +
					"deleted,\nthe policy is Delete, so the volume is deleted too.",
				Ends:       "the volume is deleted",
				Conclusion: "Deleted once; only then the PV was released.",
				Want:       cluster.Outcome{PV: cluster.Gone, Protected: true, DeleteCalls: 1},
			},
		},
		{
			name: "pv-first", policy: v1.PersistentVolumeReclaimDelete, pvFirst: true,
			Scenario: stage.Scenario{
				Title:       "PV deleted first",
				Description: "The order that leaks: the PV is deleted while its claim still uses the volume.",
				Ends:        "the volume is deleted",
				Conclusion:  "The finalizer held the PV until its claim was gone and its volume deleted.",
				Want:        cluster.Outcome{PV: cluster.Gone, Protected: true, DeleteCalls: 1},
			},
		},
		{
			name: "retain", policy: v1.PersistentVolumeReclaimRetain,
			Scenario: stage.Scenario{
				Title:       "Policy Retain",
				Description: "The claim is deleted. The volume and its PV stay, for an administrator.",
				Ends:        "the volume stays",
				Conclusion:  "Kept: no finalizer was added, and the driver received no DeleteVolume.",
				Want:        cluster.Outcome{PV: string(v1.VolumeReleased), OnDisk: true},
			},
		},
		{
			name: "leak", policy: v1.PersistentVolumeReclaimDelete, pvFirst: true, sidecarOff: true,
			Scenario: stage.Scenario{
				Title: "PV deleted first, policy not honored",
				Description: "csi-reclaimer is stopped before the PV is made, and no other provisioner runs. So it is with\n" +
					"external-provisioner before 5.0, on Kubernetes before 1.31, or with the feature gate\n" +
					"HonorPVReclaimPolicy off. external-provisioner 5.0 and newer honors the policy by itself on\n" +
					"Kubernetes 1.31 and newer; make tour shows what it leaks.",
				Ends: "the volume leaks", Harm: stage.Leaked,
				Conclusion: "Leaked: the policy said Delete, the volume stays, and no object names it. An\n" +
					"operator now has to compare the backend's volumes with the PVs, manually, and delete it\n" +
					"there; until then it stays on the bill.",
				Want: cluster.Outcome{PV: cluster.Gone, OnDisk: true},
			},
		},
	}
}

// protects says that csi-reclaimer is to add its finalizer to the scenario's PV.
func (sc scenario) protects() bool {
	return sc.policy == v1.PersistentVolumeReclaimDelete && !sc.sidecarOff
}

// play is one scenario under way.
type play struct {
	*cluster.CSI
	scenario scenario
	t        *stage.Timeline
	vol      *objects.Volume
	pv       *cluster.Watcher
	claim    *cluster.ClaimWatcher
}

// run plays the scenario. The outcome covers failures of csi-reclaimer, and the error covers failures of the demo
// itself.
func (p *play) run(ctx context.Context) (_ stage.Ending, err error) {
	ctx, cancel := context.WithTimeout(ctx, 8*cluster.Patience)
	defer cancel()
	p.t = p.Printer.Timeline()
	defer p.t.Print()
	if p.scenario.sidecarOff {
		p.t.User("stops csi-reclaimer")
		if err := p.Program.Terminate(); err != nil {
			return nil, err
		}
	}
	if p.pv, err = p.WatchPVOf(ctx, p.t, p.scenario.name); err != nil {
		return nil, err
	}
	defer p.pv.Stop()
	if p.claim, err = p.WatchClaim(ctx, p.t, p.scenario.name); err != nil {
		return nil, err
	}
	defer p.claim.Stop()
	if err := p.make(ctx); err != nil {
		return nil, err
	}
	if err := p.pv.Until(ctx, "bound", isBound); err != nil {
		return nil, err
	}
	if err := errors.Join(p.RecordDisk(p.t), p.deleteBoth(ctx)); err != nil {
		return nil, err
	}
	phase := p.scenario.Want.(cluster.Outcome).PV
	isSo := func(pv *v1.PersistentVolume) bool { return cluster.Phase(pv) == phase }
	if err := p.pv.Until(ctx, phase, isSo); err != nil {
		return nil, err
	}
	if !p.scenario.sidecarOff {
		if err := p.barrier(ctx); err != nil {
			return nil, err
		}
	}
	p.pv.Stop() // before the last look, so that lines come in order
	if err := errors.Join(p.RecordCalls(p.t, p.vol), p.RecordDisk(p.t)); err != nil {
		return nil, err
	}
	return p.look(ctx)
}

func (p *play) look(ctx context.Context) (stage.Ending, error) { return p.Look(ctx, p.vol, p.pv) }

func isBound(pv *v1.PersistentVolume) bool { return pv != nil && pv.Status.Phase == v1.VolumeBound }

// make creates the scenario's claim, for which csi-reclaimer creates the volume and its PV. Without csi-reclaimer it
// creates all three.
func (p *play) make(ctx context.Context) (err error) {
	making, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	name, policy := p.scenario.name, p.scenario.policy
	if p.scenario.sidecarOff {
		p.t.User(fmt.Sprintf("makes volume, PV and claim %q, policy %s", name, policy))
		p.vol, err = p.Maker.Make(making, objects.Spec{Name: name, Policy: policy})
		return err
	}
	p.t.User(fmt.Sprintf("makes claim %q of a StorageClass with policy %s", name, policy))
	claim, err := p.Maker.MakeClaim(making, objects.ClaimSpec{Name: name, Class: cluster.ClassName(policy)})
	if err != nil {
		return err
	}
	p.vol, err = claim.WaitBound(making)
	if err == nil && policy == v1.PersistentVolumeReclaimRetain {
		p.Retained = p.vol.Name
	}
	return err
}

// deleteBoth deletes PV and claim in the scenario's order, as a user would.
func (p *play) deleteBoth(ctx context.Context) error {
	if p.scenario.protects() {
		if err := p.pv.Until(ctx, "protected by csi-reclaimer's finalizer", cluster.IsProtected); err != nil {
			return err
		}
	}
	if p.scenario.pvFirst {
		p.t.User("deletes the PV")
		if err := p.vol.DeletePV(ctx); err != nil {
			return err
		}
		if err := p.pv.Until(ctx, "terminating", cluster.IsTerminating); err != nil {
			return err
		}
	}
	p.t.User("deletes the claim")
	if err := p.vol.DeleteClaim(ctx); err != nil {
		return err
	}
	return p.claim.UntilGone(ctx)
}

// barrier has csi-reclaimer reclaim another volume. csi-reclaimer has then done its pending work on the scenario's
// volume.
func (p *play) barrier(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	vol, err := p.Maker.Make(waiting, objects.Spec{Name: fmt.Sprintf("other-%d", time.Now().UnixNano()),
		Policy: v1.PersistentVolumeReclaimDelete})
	if err != nil {
		return err
	}
	err = vol.WaitPV(waiting, "protected", cluster.IsProtected)
	if err == nil {
		if err := vol.DeleteClaim(waiting); err != nil {
			return err
		}
		err = vol.WaitGone(waiting)
	}
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil:
		p.t.Demo(fmt.Sprintf("another volume is not reclaimed within %v", cluster.Patience))
	default:
		p.t.Demo("another volume was made and reclaimed meanwhile, to leave time for a late call")
	}
	return nil
}
