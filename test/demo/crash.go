//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// crashScenario is one scenario of the second act: a provisioner is killed between CreateVolume and the PV, and the
// claim is deleted before it is back.
type crashScenario struct {
	name, title, description, ends string
	// conclusion is printed when the scenario ended as wanted.
	conclusion string
	// stock means that the provisioner is external-provisioner.
	stock bool

	want outcome
}

func crashScenarios() []crashScenario {
	return []crashScenario{
		{
			name: "stock-crash", title: "Crash of external-provisioner " + program.ProvisionerVersion,
			description: "The driver has made the volume and answers late. Meanwhile external-provisioner is killed, and\n" +
				"the claim is deleted. Then it is started again (github.com/kubernetes-csi/external-provisioner,\n" +
				"issue 486).",
			ends: "the volume leaks",
			conclusion: "Leaked: external-provisioner finds no claim and no PV, and has kept no record of its call. The\n" +
				"volume stays, and no object names it.",
			stock: true,
			want:  outcome{pv: gone, onDisk: true},
		},
		{
			name: "crash", title: "Crash of csi-reclaimer",
			description: "The same with csi-reclaimer, and with --in-flight-quiet-period=2s, so that it takes no minutes.",
			ends:        "the volume is deleted",
			conclusion: "csi-reclaimer had written down what it asks the driver for, before it did. So it repeated the\n" +
				"request, got the volume, made its PV, and deleted both, as the policy says.",
			want: outcome{pv: gone, protected: true, deleteCalls: 1},
		},
	}
}

// showCrashes is the second act, in the environment of the first, where csi-reclaimer is off. It is off in the end,
// too.
func (env *environment) showCrashes(ctx context.Context) error {
	env.p.head("Getting ready for external-provisioner")
	t := env.p.liveTimeline()
	t.demo("compiling missing programs")
	stock, err := env.stockProvisioner(ctx)
	if err != nil {
		return err
	}
	var all []staged
	for _, sc := range crashScenarios() {
		var r result
		all = append(all, staged{title: sc.title, description: sc.description,
			play: func(ctx context.Context) (_ verdict, err error) {
				r.sight, err = env.playCrash(ctx, sc, stock)
				if err == nil {
					err = env.look(ctx, &r)
				}
				return sc.verdict(r.seen), err
			},
			again: func(ctx context.Context) (verdict, error) {
				err := env.look(ctx, &r)
				return sc.verdict(r.seen), err
			}})
	}
	return env.p.play(ctx, "What the API server, the driver's record of calls and its disk say", all)
}

func (sc crashScenario) verdict(seen outcome) verdict {
	return verdict{title: sc.title, conclusion: sc.conclusion, harm: leakedIf(sc.stock), want: sc.want, seen: seen}
}

// stockProvisioner compiles external-provisioner, and returns the options to start it in place of csi-reclaimer, whose
// permissions suffice.
func (env *environment) stockProvisioner(ctx context.Context) (none program.Options, err error) {
	ctx, cancel := context.WithTimeout(ctx, buildPatience)
	defer cancel()
	binary, err := program.BuildProvisioner(ctx, env.p.out)
	if err != nil {
		return none, err
	}
	dir, err := env.folder("external-provisioner")
	return program.Options{Name: "csi-provisioner", Binary: binary, Dir: dir,
		Args: []string{"--csi-address=" + env.driver.Socket(), "--kubeconfig=" + env.kubeconfig}}, err
}

// startCrashing starts the provisioner that is to be killed.
func (env *environment) startCrashing(ctx context.Context, t *timeline, sc crashScenario,
	stock program.Options) (*program.Program, error) {
	if sc.stock {
		t.user("starts external-provisioner " + program.ProvisionerVersion)
		return program.Start(ctx, stock)
	}
	t.user("starts csi-reclaimer")
	return env.program, env.program.Restart(shortQuiet)
}

// shortQuiet is how long a call can take to arrive that was not answered. Calls over this machine's socket take none.
const shortQuiet = "--in-flight-quiet-period=2s"

// playCrash plays one scenario.
func (env *environment) playCrash(ctx context.Context, sc crashScenario, stock program.Options) (none observation,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, 8*patience)
	defer cancel()
	t := env.p.timeline()
	defer t.print()
	pv, err := env.watch(ctx, t, sc.name)
	if err != nil {
		return none, err
	}
	defer pv.stop()
	claim, err := env.watchClaim(ctx, t, sc.name)
	if err != nil {
		return none, err
	}
	defer claim.stop()
	provisioner, err := env.startCrashing(ctx, t, sc, stock)
	if err != nil {
		return none, err
	}
	defer func() { err = errors.Join(err, provisioner.Terminate()) }()
	vol, err := env.killHalfway(ctx, t, sc.name, provisioner)
	if err != nil {
		return none, err
	}
	t.user("deletes the claim")
	if err := errors.Join(vol.DeleteClaim(ctx), claim.patient(ctx, t), env.driver.ClearFaults(ctx)); err != nil {
		return none, err
	}
	t.user("starts it again")
	if sc.stock {
		err = provisioner.Restart()
	} else if err = provisioner.Restart(shortQuiet); err == nil {
		err = pv.until(ctx, gone, never)
	}
	if err := errors.Join(err, env.provisionOther(ctx, t, sc.name)); err != nil {
		return none, err
	}
	pv.stop() // before the last look, so that lines come in order
	return pv.observe(vol), errors.Join(env.calls(t, vol), env.disk(t))
}

// killHalfway makes a claim, and kills its provisioner once the driver has made the volume and before it has answered.
func (env *environment) killHalfway(ctx context.Context, t *timeline, name string,
	provisioner *program.Program) (*objects.Volume, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	late := faults.Plan{Rules: []faults.Rule{{Method: "CreateVolume", Action: faults.Block, AfterWork: true}}}
	if err := env.driver.SetFaults(ctx, late); err != nil {
		return nil, err
	}
	policy := v1.PersistentVolumeReclaimDelete
	t.user(fmt.Sprintf("makes claim %q of a StorageClass with policy %s", name, policy))
	claim, err := env.maker.MakeClaim(ctx, objects.ClaimSpec{Name: name, Class: className(policy)})
	if err != nil {
		return nil, err
	}
	vol := claim.Volume("pvc-" + string(claim.UID))
	_, err = env.driver.WaitCalls(ctx, func(calls []ledger.Call) bool {
		return slices.ContainsFunc(calls, func(c ledger.Call) bool {
			vol.Handle = c.Volume
			return c.Name == vol.Name && c.Changed
		})
	}, "CreateVolume")
	if err != nil {
		return nil, fmt.Errorf("wait for the driver to make the volume: %w", err)
	}
	provisioner.Kill()
	t.demo("the driver has made the volume, and its caller is killed before the answer")
	return vol, env.disk(t)
}

// provisionOther has a provisioner create and delete another volume. The provisioner is then back, and has handled the
// earlier volumes.
func (env *environment) provisionOther(ctx context.Context, t *timeline, name string) error {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	claim, err := env.maker.MakeClaim(waiting, objects.ClaimSpec{Name: "after-" + name,
		Class: className(v1.PersistentVolumeReclaimDelete)})
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
	t.demo(fmt.Sprintf("another claim was made meanwhile, and deleted with its volume, in %v", rounded(time.Since(began))))
	return nil
}
