// Package tables has the commands that read the cluster and print a table: drivers, claims, pods, locks, fences, and
// the preview of a StatefulSet.
package tables

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
)

// Commands returns the commands of this package.
func Commands(s *cli.Plugin) []*cobra.Command {
	return []*cobra.Command{statusCommand(s), podsCommand(s), locksCommand(s), fencesCommand(s), previewCommand(s)}
}

type statusOptions struct {
	*cli.Plugin
	out    cli.Output
	driver string
	cli.Poll
	retainedFlags
}

func statusCommand(s *cli.Plugin) *cobra.Command {
	o := &statusOptions{Plugin: s}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show for each driver its protected PVs, why PVs wait, and the volumes in flight",
		Example: `  kubectl reclaim status

  # one driver, until interrupted
  kubectl reclaim status --driver=disk.csi.example.com --watch

  # the claims that StatefulSets have left behind, and the commands that delete them
  kubectl reclaim status --retained -A`,
		Args: cobra.NoArgs,
		RunE: o.out.Run(o.run),
	}
	o.out.AddFlags(cmd)
	o.DriverFlag(cmd, &o.driver, "Show only this driver.")
	o.Poll.AddFlags(cmd, "Each lists all PVs and VolumeAttachments.")
	o.retainedFlags.flags(cmd)
	return cmd
}

func (o *statusOptions) run(ctx context.Context, _ []string) error {
	if err := o.validate(); err != nil {
		return err
	}
	if o.retained {
		return o.runRetained(ctx)
	}
	return o.runDrivers(ctx)
}

func (o *statusOptions) validate() error {
	if err := o.Poll.Validate(); err != nil {
		return err
	}
	if o.allNamespaces && !o.retained {
		return errors.New("--all-namespaces: without --retained, the status always covers the whole cluster")
	}
	return nil
}

// runDrivers shows the status of each driver, repeatedly with --watch.
func (o *statusOptions) runDrivers(ctx context.Context) error {
	c, err := o.Live()
	if err != nil {
		return err
	}
	return cli.Repeat(ctx, o.Poll, func() (none volumes.Status, _ time.Time, err error) {
		facts, err := volumes.ReadStatus(ctx, c, o.driver)
		if err == nil {
			err = facts.CheckDriver(o.driver)
		}
		if err != nil {
			return none, time.Time{}, err
		}
		return volumes.StatusOf(facts, o.driver), facts.Now, nil
	}, o.show)
}

// show prints a status, separated from the previous output if it is printed again.
func (o *statusOptions) show(s volumes.Status, now time.Time, again bool) error {
	return o.out.Print(o.Out, "Status", s, func(w io.Writer) error {
		cli.BeginAgain(w, again)
		if len(s.Drivers) == 0 {
			fmt.Fprintln(o.ErrOut, "No PVs of CSI drivers or in-tree plugins were found.")
		} else if err := o.out.Table(w, driverTable(s, now, o.out.Wide())); err != nil {
			return err
		}
		for _, warning := range s.Warnings {
			cli.PrintLine(w, "! "+warning, true)
		}
		cli.PrintUnread(w, s.Unread)
		return nil
	})
}

func driverTable(s volumes.Status, now time.Time, wide bool) *cli.Table {
	t := cli.NewTable(false, []string{"Driver", "PVs", "Protected", "Unprotected", "Terminating", "Waiting",
		"Oldest terminating", "In flight"}, []string{"Role", "Admission"})
	for _, d := range s.Drivers {
		t.Add("", d.Driver, d.PVs, d.Protected, d.Unprotected, d.Terminating, cli.OrDash(d.WaitingWords()),
			cli.OrDash(d.OldestWords(now, wide)), cli.OrDash(d.InFlightWords(now)), d.Role, cli.OrDash(d.Admission))
	}
	return t
}
