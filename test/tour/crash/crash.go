//go:build unix

// Package crash is the act in which a provisioner is killed while it makes a volume.
package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// Act returns the scenarios, as they are listed.
func Act() stage.Act {
	return stage.NewAct("Then a provisioner that is killed while it makes a volume.", list())
}

// scenario is one in which a provisioner is killed between CreateVolume and the PV, and the claim is deleted before it
// is back.
type scenario struct {
	stage.Scenario
	name string
	// stock means that the provisioner is external-provisioner.
	stock bool
}

func list() []scenario {
	return []scenario{
		{
			name: "stock-crash", stock: true,
			Scenario: stage.Scenario{
				Title: "Crash of external-provisioner " + program.ProvisionerVersion,
				Description: "The driver has made the volume and answers late. Meanwhile external-provisioner is killed, and\n" +
					"the claim is deleted. Then it is started again (github.com/kubernetes-csi/external-provisioner,\n" +
					"issue 486).",
				Ends: "the volume leaks", Harm: stage.Leaked,
				Conclusion: "Leaked: external-provisioner finds no claim and no PV, and has kept no record of its call. The\n" +
					"volume stays, and no object names it.",
				Want: cluster.Outcome{PV: cluster.Gone, OnDisk: true},
			},
		},
		{
			name: "crash",
			Scenario: stage.Scenario{
				Title:       "Crash of csi-reclaimer",
				Description: "The same with csi-reclaimer, and with --in-flight-quiet-period=2s, so that it takes no minutes.",
				Ends:        "the volume is deleted",
				Conclusion: "csi-reclaimer had written down what it asks the driver for, before it did. So it repeated the\n" +
					"request, got the volume, made its PV, and deleted both, as the policy says.",
				Want: cluster.Outcome{PV: cluster.Gone, Protected: true, DeleteCalls: 1},
			},
		},
	}
}

// Show plays the scenarios in the cluster of the demo, where csi-reclaimer is off. It is off in the end, too.
func Show(ctx context.Context, c *cluster.CSI) error {
	c.Printer.Head("Getting ready for external-provisioner")
	t := c.Printer.LiveTimeline()
	t.Demo("compiling missing programs")
	stock, err := stockProvisioner(ctx, c)
	if err != nil {
		return err
	}
	var all []stage.Scenario
	for _, sc := range list() {
		play := &play{CSI: c, scenario: sc, stock: stock}
		sc.Again = play.look
		sc.Play = func(ctx context.Context) (stage.Ending, error) {
			if err := play.run(ctx); err != nil {
				return nil, err
			}
			return play.look(ctx)
		}
		all = append(all, sc.Scenario)
	}
	return c.Printer.Play(ctx, "What the API server, the driver's record of calls and its disk say", all)
}

// stockProvisioner compiles external-provisioner, and returns the options to start it in place of csi-reclaimer, whose
// permissions suffice.
func stockProvisioner(ctx context.Context, c *cluster.CSI) (none program.Options, err error) {
	ctx, cancel := context.WithTimeout(ctx, cluster.BuildPatience)
	defer cancel()
	binary, err := program.BuildProvisioner(ctx, c.Printer.Out)
	if err != nil {
		return none, err
	}
	dir, err := c.Folder("external-provisioner")
	return program.Options{Name: "csi-provisioner", Binary: binary, Dir: dir,
		Args: []string{"--csi-address=" + c.Driver.Socket(), "--kubeconfig=" + c.Kubeconfig}}, err
}

// play is one scenario under way.
type play struct {
	*cluster.CSI
	scenario scenario
	// stock is how to start external-provisioner, provisioner the one that is killed.
	stock       program.Options
	provisioner *program.Program
	t           *stage.Timeline
	vol         *objects.Volume
	pv          *cluster.Watcher
}

// start starts the provisioner that is to be killed.
func (p *play) start(ctx context.Context) (err error) {
	if p.scenario.stock {
		p.t.User("starts external-provisioner " + program.ProvisionerVersion)
		p.provisioner, err = program.Start(ctx, p.stock)
		return err
	}
	p.t.User("starts csi-reclaimer")
	p.provisioner = p.Program
	return p.provisioner.Restart(shortQuiet)
}

// shortQuiet is how long a call can take to arrive that was not answered. Calls over this machine's socket take none.
const shortQuiet = "--in-flight-quiet-period=2s"

// run plays the scenario, and ends its provisioner.
func (p *play) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 8*cluster.Patience)
	defer cancel()
	p.t = p.Printer.Timeline()
	defer p.t.Print()
	if p.pv, err = p.WatchPVOf(ctx, p.t, p.scenario.name); err != nil {
		return err
	}
	defer p.pv.Stop()
	claim, err := p.WatchClaim(ctx, p.t, p.scenario.name)
	if err != nil {
		return err
	}
	defer claim.Stop()
	if err := p.start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.provisioner.Terminate()) }()
	if err := p.killHalfway(ctx); err != nil {
		return err
	}
	p.t.User("deletes the claim")
	if err := errors.Join(p.vol.DeleteClaim(ctx), claim.UntilGone(ctx), p.Driver.ClearFaults(ctx)); err != nil {
		return err
	}
	p.t.User("starts it again")
	if p.scenario.stock {
		err = p.provisioner.Restart()
	} else if err = p.provisioner.Restart(shortQuiet); err == nil {
		err = p.pv.UntilGone(ctx)
	}
	if err := errors.Join(err, p.provisionOther(ctx)); err != nil {
		return err
	}
	p.pv.Stop() // before the last look, so that lines come in order
	return errors.Join(p.RecordCalls(p.t, p.vol), p.RecordDisk(p.t))
}

func (p *play) look(ctx context.Context) (stage.Ending, error) { return p.Look(ctx, p.vol, p.pv) }

// killHalfway makes a claim, and kills its provisioner once the driver has made the volume and before it has answered.
func (p *play) killHalfway(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	late := faults.Plan{Rules: []faults.Rule{{Method: "CreateVolume", Action: faults.Block, AfterWork: true}}}
	if err := p.Driver.SetFaults(ctx, late); err != nil {
		return err
	}
	policy := v1.PersistentVolumeReclaimDelete
	p.t.User(fmt.Sprintf("makes claim %q of a StorageClass with policy %s", p.scenario.name, policy))
	claim, err := p.Maker.MakeClaim(ctx, objects.ClaimSpec{Name: p.scenario.name, Class: cluster.ClassName(policy)})
	if err != nil {
		return err
	}
	p.vol = claim.Volume("pvc-" + string(claim.UID))
	_, err = p.Driver.WaitCalls(ctx, func(calls []ledger.Call) bool {
		return slices.ContainsFunc(calls, func(c ledger.Call) bool {
			p.vol.Handle = c.Volume
			return c.Name == p.vol.Name && c.Changed
		})
	}, "CreateVolume")
	if err != nil {
		return fmt.Errorf("wait for the driver to make the volume: %w", err)
	}
	p.provisioner.Kill()
	p.t.Demo("the driver has made the volume, and its caller is killed before the answer")
	return p.RecordDisk(p.t)
}

// provisionOther has a provisioner create and delete another volume. The provisioner is then back, and has handled the
// earlier volumes.
func (p *play) provisionOther(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	began := time.Now()
	claim, err := p.Maker.MakeClaim(waiting, objects.ClaimSpec{Name: "after-" + p.scenario.name,
		Class: cluster.ClassName(v1.PersistentVolumeReclaimDelete)})
	if err != nil {
		return err
	}
	vol, err := claim.WaitBound(waiting)
	if err != nil {
		return err
	}
	if err := vol.DeleteClaim(waiting); err != nil {
		return err
	}
	if err := vol.WaitGone(waiting); err != nil {
		return err
	}
	p.t.Demo(fmt.Sprintf("another claim was made meanwhile, and deleted with its volume, in %v",
		stage.Rounded(time.Since(began))))
	return nil
}
