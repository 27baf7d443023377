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
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/claims"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Commands returns the commands of this package.
func Commands(s *cli.Plugin) []*cobra.Command {
	return []*cobra.Command{statusCommand(s), podsCommand(s), locksCommand(s), fencesCommand(s), previewCommand(s)}
}

type statusOptions struct {
	cli.Output
	driver string
	cli.Poll
	retainedFlags
}

func statusCommand(s *cli.Plugin) *cobra.Command {
	o := &statusOptions{Output: cli.Output{Plugin: s}}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show for each driver its protected PVs, why PVs wait, and the volumes in flight",
		Example: `  kubectl reclaim status

  # one driver, until interrupted
  kubectl reclaim status --driver=disk.csi.example.com --watch

  # the claims that StatefulSets have left behind, and the commands that delete them
  kubectl reclaim status --retained -A`,
		Args: cobra.NoArgs,
		RunE: o.Run(o.run),
	}
	o.AddOutput(cmd)
	o.DriverFlag(cmd, &o.driver, "Show only this driver.")
	o.AddPoll(cmd, "Each lists all PVs and VolumeAttachments.")
	o.flags(cmd)
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
	if err := o.Validate(); err != nil {
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
	return o.Print("Status", s, func(w io.Writer) error {
		cli.BeginAgain(w, again)
		if err := o.TableOr(w, driverTable(s, now, o.Wide()),
			"No PVs of CSI drivers or in-tree plugins were found."); err != nil {
			return err
		}
		cli.PrintWarnings(w, s.Warnings)
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

type retainedFlags struct {
	retained, allNamespaces bool
}

func (f *retainedFlags) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.retained, "retained", false,
		"List the claims that StatefulSets have left behind, instead of drivers: of replicas that were scaled away, and of "+
			"sets that are gone.")
	cmd.Flags().BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "With --retained: in all namespaces.")
	cmd.MarkFlagsMutuallyExclusive("retained", "watch")
	cmd.MarkFlagsMutuallyExclusive("retained", "driver")
	cmd.MarkFlagsMutuallyExclusive("retained", "interval")
}

func (o *statusOptions) runRetained(ctx context.Context) error {
	return cli.ReadIn(ctx, o.Plugin, o.allNamespaces, claims.ReadRetained, func(f claims.Facts, namespace string) error {
		return o.showRetained(claims.RetainedOf(f), f.Now, namespace)
	})
}

func (o *statusOptions) showRetained(l claims.Retained, now time.Time, namespace string) error {
	return o.Print("RetainedClaims", l, func(w io.Writer) error {
		defer cli.PrintUnread(w, l.Unread)
		if len(l.Claims) == 0 {
			whole := ""
			if len(l.Unread) > 0 {
				whole = " in what could be read"
			}
			fmt.Fprintf(o.ErrOut, "No claims that a StatefulSet has left behind were found %s%s.\n", cli.Within(namespace),
				whole)
			return nil
		}
		if err := o.Table(w, retainedTable(l, now, o.allNamespaces, o.Wide())); err != nil {
			return err
		}
		fmt.Fprintln(w)
		cli.PrintLine(w, fmt.Sprintf("%s, %s.", plural.Count(l.Totals.Claims, "claim"), l.Totals.Size), false)
		if l.Totals.Likely > 0 {
			cli.PrintLine(w, fmt.Sprintf("%d of them %s only likely to be one (?): -o wide shows the known facts. The commands "+
				"leave %s out.", l.Totals.Likely, plural.Verb(l.Totals.Likely, "is", "are"),
				plural.Verb(l.Totals.Likely, "it", "them")), true)
		}
		if l.Totals.Held > 0 {
			cli.PrintLine(w, fmt.Sprintf("%d of them %s held (%s). The commands leave %s out.", l.Totals.Held,
				plural.Verb(l.Totals.Held, "is", "are"), volume.HoldAnnotation, plural.Verb(l.Totals.Held, "it", "them")), true)
		}
		if l.Totals.Owned > 0 {
			cli.PrintLine(w, fmt.Sprintf("%d of them %s another owner, which may need %s. The commands leave %s out.",
				l.Totals.Owned, plural.Verb(l.Totals.Owned, "has", "have"), plural.Verb(l.Totals.Owned, "it", "them"),
				plural.Verb(l.Totals.Owned, "it", "them")), true)
		}
		if commands := l.DeleteCommands(); len(commands) > 0 {
			cli.PrintLine(w, "If the data is not needed, delete them. It cannot be undone where the volume is deleted, too:",
				false)
			for _, command := range commands {
				cli.PrintLine(w, "  "+command, false)
			}
		}
		return nil
	})
}

func retainedTable(l claims.Retained, now time.Time, namespaces, wide bool) *cli.Table {
	t := cli.NewTable(namespaces, []string{"Claim", "StatefulSet", "Ordinal", "Size", "Age", "Retained for", "PV",
		"Reclaim policy", "Volume, if deleted"}, []string{"Reason", "Storage class", "Driver", "Evidence"})
	for _, c := range l.Claims {
		set := cli.OrDash(c.StatefulSet)
		if c.SetGone {
			set += " (gone)"
		}
		name, since, pv := c.Name, "-", c.PV
		if !wide {
			pv = explain.ShortName(pv)
		}
		if c.Likely {
			name += " (?)"
		}
		if c.Held {
			name += " (held)"
		}
		if c.Owner != "" {
			name += " (owned)"
		}
		if c.Since != nil {
			since = ">=" + duration.HumanDuration(now.Sub(c.Since.Time))
		}
		t.Add(c.Namespace, name, set, c.Ordinal, c.Size, duration.HumanDuration(now.Sub(c.Created.Time)), since,
			cli.OrDash(pv), cli.OrDash(c.ReclaimPolicy), string(c.Volume.Fate), c.Reason, cli.OrDash(c.StorageClass),
			cli.OrDash(c.Driver), c.Evidence)
	}
	return t
}
