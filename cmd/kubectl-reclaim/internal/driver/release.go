// Package driver has the commands about the volumes of a CSI driver: the release of its PVs, volumes in flight, and
// leaks.
package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// Commands returns the commands of this package.
func Commands(s *cli.Plugin) []*cobra.Command {
	return []*cobra.Command{releaseCommand(s), settleCommand(s), leaksCommand(s)}
}

type releaseOptions struct {
	cli.Output
	driver  string
	dryRun  bool
	yes     bool
	workers int
	qps     float32
}

func releaseCommand(s *cli.Plugin) *cobra.Command {
	o := &releaseOptions{Output: cli.Output{Plugin: s}}
	cmd := &cobra.Command{
		Use:   "release --driver=DRIVER",
		Short: "Remove csi-reclaimer's finalizers from all PVs of a driver",
		Long: `Removes csi-reclaimer's finalizers from all PVs of a driver, and deletes no volume: the last step before
csi-reclaimer is removed, or replaced by a version that does not know them. Stop all its replicas first.

The command names volumes in flight, for which it is not known whether the driver has created them, and does not finish
them: only csi-reclaimer --release-finalizers, which has the driver's socket, does. Their PVs keep their finalizers.
If an admission policy or webhook of csi-reclaimer lists the driver, the command removes the driver from it first.

It shows the plan and asks. If it is interrupted, run the same command again to continue.`,
		Example: `  # only the plan
  kubectl reclaim release --driver=disk.csi.example.com --dry-run`,
		Args: cobra.NoArgs,
		RunE: o.Run(func(ctx context.Context, _ []string) error { return o.run(ctx) }),
	}
	o.AddOutput(cmd)
	o.DriverFlag(cmd, &o.driver, "Name of the CSI driver. Required.")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "Show the plan and change nothing.")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "Do not ask for confirmation.")
	cmd.Flags().IntVar(&o.workers, "workers", 10, "How many PVs are released concurrently.")
	cmd.Flags().Float32Var(&o.qps, "qps", 0,
		"Limit of requests per second to the API server while PVs are released. 0: no limit.")
	return cmd
}

func (o *releaseOptions) run(ctx context.Context) error {
	switch {
	case o.driver == "":
		return errors.New("--driver is missing: name the CSI driver whose PVs to release (kubectl reclaim status lists " +
			"the drivers)")
	case o.qps < 0:
		return fmt.Errorf("--qps=%v: must not be negative", o.qps)
	case o.workers < 1:
		return fmt.Errorf("--workers=%d: must be at least 1", o.workers)
	}
	plan, logs, err := o.plan(ctx)
	if err != nil {
		return err
	}
	if err := o.Print("ReleasePlan", plan, func(w io.Writer) error { return writePlan(w, plan) }); err != nil {
		return err
	}
	if begins, err := begin(plan); !begins && !o.dryRun {
		return err
	}
	if err := o.ShowCluster(); err != nil || o.dryRun {
		return err
	}
	if !o.yes {
		if err := o.Confirm(ctx, fmt.Sprintf("Release %s of %s?", plural.Count(len(plan.PVs), "PV"), o.driver)); err != nil {
			return err
		}
		if plan, logs, err = o.again(ctx, plan); err != nil {
			return err
		}
	}
	return errors.Join(o.release(ctx, plan, logs), inFlight(plan))
}

// again plans anew after a question, which may have stayed open for long. It returns an error if a process has begun to
// act for the driver, or more PVs would lose a volume than the shown plan names.
func (o *releaseOptions) again(ctx context.Context, shown volumes.Plan) (volumes.Plan, explain.InFlightLogs, error) {
	plan, logs, err := o.plan(ctx)
	if err != nil {
		return plan, logs, err
	}
	return plan, logs, since(shown, plan)
}

// since returns the reason why a plan must not be carried out after the answer to another one.
func since(shown, now volumes.Plan) error {
	if _, err := begin(now); err != nil && len(now.Obstacles) > 0 {
		return err
	}
	for _, pv := range now.Abandoned {
		if !slices.Contains(shown.Abandoned, pv) {
			return fmt.Errorf("PV %s has begun to terminate, and its volume would stay in the storage system: nothing was "+
				"changed; run the same command again", pv)
		}
	}
	return nil
}

// begin reports whether there is a finalizer to remove, or why it cannot be removed. Without one, an obstacle is still
// an error: the unreadable part of a log can have volumes in flight without a PV.
func begin(p volumes.Plan) (bool, error) {
	switch {
	case len(p.Obstacles) > 0:
		return false, fmt.Errorf("release PVs of %s: %s", p.Driver, strings.Join(p.Obstacles, "; "))
	case len(p.PVs)+len(p.ListedBy) == 0:
		return false, inFlight(p)
	}
	return true, nil
}

// plan returns the plan, and the in-flight log on which it is based.
func (o *releaseOptions) plan(ctx context.Context) (volumes.Plan, explain.InFlightLogs, error) {
	c, err := o.Live()
	if err != nil {
		return volumes.Plan{}, explain.InFlightLogs{}, err
	}
	facts, err := volumes.ReadRelease(ctx, c, o.driver)
	if err != nil {
		return volumes.Plan{}, explain.InFlightLogs{}, err
	}
	if err := facts.CheckDriver(o.driver); err != nil {
		return volumes.Plan{}, explain.InFlightLogs{}, err
	}
	return volumes.PlanRelease(facts, o.driver), facts.InFlight.Value.Of(o.driver), nil
}

// inFlight returns an error if volumes remain in flight.
func inFlight(p volumes.Plan) error {
	if len(p.InFlight) == 0 {
		return nil
	}
	return fmt.Errorf("%s of %s %s in flight, and nothing finishes %s: run csi-reclaimer --release-finalizers in the "+
		"driver's pod, or %s",
		plural.Count(len(p.InFlight), "volume"), p.Driver, plural.Verb(len(p.InFlight), "is", "are"),
		plural.Verb(len(p.InFlight), "it", "them"), inflight.ToSettle)
}

// shownPVs limits the names in the text output; -o json has all of them.
const shownPVs = 10

func writePlan(w io.Writer, p volumes.Plan) error {
	line := func(format string, args ...any) { cli.PrintLine(w, fmt.Sprintf(format, args...), false) }
	line("%s of %s would lose the finalizer of csi-reclaimer (role %s). No volume is deleted.",
		plural.Count(len(p.PVs), "PV"), p.Driver, p.Role)
	for i, pv := range p.PVs {
		if i == shownPVs {
			line("  and %d more", len(p.PVs)-i)
			break
		}
		line("  %s", pv)
	}
	for _, pv := range p.Abandoned {
		line("PV %s is terminating: it would be deleted, and its volume stays in the storage system.", pv)
	}
	for _, e := range p.InFlight {
		line("Volume %s, for claim %s, has been in flight since %s: whether it exists is not known (annotation %s of "+
			"Lease %s).", e.Volume, e.Claim, e.Since.UTC().Format(time.RFC3339), e.Annotation, e.Lease)
	}
	for _, from := range p.ListedBy {
		line("%s lists %s: the driver would be removed from it first, because it adds the finalizers again.", from,
			p.Driver)
	}
	cli.PrintWarnings(w, p.Obstacles)
	cli.PrintUnread(w, p.Unread)
	return nil
}

// release carries the plan out, with the code of csi-reclaimer --release-finalizers.
func (o *releaseOptions) release(ctx context.Context, plan volumes.Plan, logs explain.InFlightLogs) error {
	config, err := o.Config()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = o.qps, max(1, int(o.qps))
	bar := newBar(o.ErrOut)
	reclaimer, err := reclaim.New(config, o.driver, nobody{}, reclaim.Config{
		Role: plan.As, Mode: reclaim.ModeRelease, Workers: o.workers, NeverAttached: true, Progress: bar.show, InFlight: logs,
	})
	if err != nil {
		return err
	}
	if err := allowed(ctx, reclaimer); err != nil {
		return err
	}
	if err := o.removeFromPolicies(ctx, config, plan); err != nil {
		return err
	}
	done, err := reclaimer.Release(ctx)
	bar.end()
	for _, pv := range done.Abandoned {
		fmt.Fprintf(o.Messages(), "PV %s was being deleted: its volume stays in the storage system\n", pv)
	}
	for _, pv := range done.InFlight {
		fmt.Fprintf(o.Messages(), "PV %s keeps its finalizer: its volume is, or may be, in flight\n", pv)
	}
	fmt.Fprintf(o.Messages(), "%s %s released\n", plural.Count(done.PVs, "PV"), plural.Verb(done.PVs, "was", "were"))
	if ctx.Err() != nil {
		return errors.New("interrupted: run the same command again to continue")
	}
	return err
}

// removeFromPolicies removes the driver from the policies and webhooks that list it, and waits until that is in force.
func (o *releaseOptions) removeFromPolicies(ctx context.Context, config *rest.Config, plan volumes.Plan) error {
	if len(plan.ListedBy) == 0 {
		return nil
	}
	done, err := admission.RemoveDrivers(ctx, config, []string{plan.Driver})
	for _, from := range done.Objects {
		fmt.Fprintf(o.Messages(), "%s was removed from %s\n", plan.Driver, from)
	}
	if err != nil {
		return err
	}
	return admission.WaitUntilRemoved(ctx, config, []string{plan.Driver})
}

// allowed returns an error for each missing permission on PVs. A release without them would fail after it has ended the
// protection by the policies.
func allowed(ctx context.Context, r *reclaim.Controller) error {
	missing, err := r.MissingPermissions(ctx)
	if err != nil {
		return err
	}
	var lacks []error
	for _, permission := range missing {
		if permission.Resource == "persistentvolumes" && permission.Verb != "delete" && permission.Verb != "watch" {
			lacks = append(lacks, fmt.Errorf("release PVs: you may not %s persistentvolumes: use another --context or --as",
				permission.Verb))
		}
	}
	return errors.Join(lacks...)
}

// A release deletes no volume, so its deleter refuses every call.
type nobody struct{}

func (nobody) DeleteVolume(context.Context, string, map[string]string) error {
	return errors.New("delete volume: a release deletes none")
}

const barWidth = 40

// bar shows progress: it redraws one line in a terminal, and prints up to eleven lines elsewhere. Its methods must not
// be called concurrently.
type bar struct {
	w      io.Writer
	redraw bool
	// drawn is the last step shown, of ten or, in a terminal, of barWidth; -1 for none.
	drawn int
}

func newBar(w io.Writer) *bar {
	return &bar{w: w, redraw: printers.IsTerminal(w), drawn: -1}
}

func (b *bar) show(done, failed, of int) {
	steps := 10
	if b.redraw {
		steps = barWidth
	}
	at := steps
	if of > 0 {
		at = steps * (done + failed) / of
	}
	if at == b.drawn {
		return
	}
	b.drawn = at
	text := fmt.Sprintf("%d of %d released", done, of)
	if failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	if b.redraw {
		fmt.Fprintf(b.w, "\r[%s%s] %s", strings.Repeat("#", at), strings.Repeat(".", steps-at), text)
		return
	}
	fmt.Fprintln(b.w, text)
}

func (b *bar) end() {
	if b.redraw && b.drawn >= 0 {
		fmt.Fprintln(b.w)
	}
}
