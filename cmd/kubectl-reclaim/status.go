package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/claims"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

type statusOptions struct {
	*shared
	out      output
	driver   string
	watch    bool
	interval time.Duration
	retainedFlags
}

func statusCommand(s *shared) *cobra.Command {
	o := &statusOptions{shared: s}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show for each driver its protected PVs, why PVs wait, and the volumes in flight",
		Example: `  kubectl reclaim status

  # one driver, until interrupted
  kubectl reclaim status --driver=disk.csi.example.com --watch

  # the claims that StatefulSets have left behind, and the commands that delete them
  kubectl reclaim status --retained -A`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.out.flags(cmd)
	cmd.Flags().StringVar(&o.driver, "driver", "", "Show only this driver.")
	o.mustCompleteBy(cmd, "driver", kindDriver)
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "Repeat until interrupted, and print changes.")
	cmd.Flags().DurationVar(&o.interval, "interval", 5*time.Second,
		"Time between two reads with --watch. Each lists all PVs and VolumeAttachments.")
	o.add(cmd)
	return cmd
}

func (o *statusOptions) run(cmd *cobra.Command) error {
	if err := o.out.prepare(); err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return err
	}
	if o.retained {
		return o.runRetained(cmd.Context())
	}
	return o.runDrivers(cmd.Context())
}

// runDrivers shows the status of each driver, repeatedly with --watch.
func (o *statusOptions) runDrivers(ctx context.Context) error {
	reader, err := o.reader()
	if err != nil {
		return err
	}
	var last *explain.Status
	for {
		facts, err := reader.Status(ctx, o.driver)
		switch {
		case ctx.Err() != nil && last != nil:
			return nil // interrupted during a repeated read
		case err != nil:
			return err
		}
		if err := facts.CheckDriver(o.driver); err != nil {
			return err
		}
		now := explain.StatusOf(facts, o.driver)
		if last == nil || !reflect.DeepEqual(now, *last) {
			if err := o.show(now, facts.Now, last != nil); err != nil {
				return err
			}
		}
		last = &now
		if !o.watch {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.interval):
		}
	}
}

// show prints a status, separated from the previous output if it is printed again.
func (o *statusOptions) show(s explain.Status, now time.Time, again bool) error {
	return o.out.print(o.Out, "Status", s, func(w io.Writer) error {
		beginAgain(w, again)
		if len(s.Drivers) == 0 {
			fmt.Fprintln(o.ErrOut, "No PVs of CSI drivers or in-tree plugins were found.")
		} else if err := printers.NewTablePrinter(printers.PrintOptions{Wide: o.out.wide()}).PrintObj(
			table(s, now, o.out.wide()), w); err != nil {
			return fmt.Errorf("print the table: %w", err)
		}
		for _, warning := range s.Warnings {
			printLine(w, "! "+warning, true)
		}
		for _, unread := range s.Unread {
			printLine(w, "Not read: "+unread, false)
		}
		return nil
	})
}

// table returns the drivers as rows. Columns of -o wide have a priority.
func table(s explain.Status, now time.Time, wide bool) *metav1.Table {
	column := func(name string, priority int32) metav1.TableColumnDefinition {
		return metav1.TableColumnDefinition{Name: name, Type: "string", Priority: priority}
	}
	t := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		column("Driver", 0), column("PVs", 0), column("Protected", 0), column("Unprotected", 0), column("Terminating", 0),
		column("Waiting", 0), column("Oldest terminating", 0), column("In flight", 0), column("Role", 1),
		column("Admission", 1),
	}}
	for _, d := range s.Drivers {
		t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{
			d.Driver, d.PVs, d.Protected, d.Unprotected, d.Terminating, orDash(d.WaitingWords()),
			orDash(d.OldestWords(now, wide)), orDash(d.InFlightWords(now)), d.Role, orDash(d.Admission),
		}})
	}
	return t
}

type retainedFlags struct {
	retained, allNamespaces bool
}

func (f *retainedFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.retained, "retained", false,
		"List the claims that StatefulSets have left behind, instead of drivers: of replicas that were scaled away, and of "+
			"sets that are gone.")
	cmd.Flags().BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "With --retained: in all namespaces.")
	cmd.MarkFlagsMutuallyExclusive("retained", "watch")
	cmd.MarkFlagsMutuallyExclusive("retained", "driver")
	cmd.MarkFlagsMutuallyExclusive("retained", "interval")
}

func (o *statusOptions) validate() error {
	switch {
	case o.interval <= 0:
		return fmt.Errorf("--interval=%v: must be above 0", o.interval)
	case o.allNamespaces && !o.retained:
		return errors.New("--all-namespaces: without --retained, the status always covers the whole cluster")
	}
	return nil
}

func (o *statusOptions) runRetained(ctx context.Context) error {
	namespace := metav1.NamespaceAll
	if !o.allNamespaces {
		var err error
		if namespace, err = o.namespace(); err != nil {
			return err
		}
	}
	reader, err := o.claimReader()
	if err != nil {
		return err
	}
	facts, err := reader.Retained(ctx, namespace)
	if err != nil {
		return err
	}
	return o.showRetained(claims.RetainedOf(facts), facts.Now, namespace)
}

func (o *statusOptions) showRetained(l claims.Retained, now time.Time, namespace string) error {
	return o.out.print(o.Out, "RetainedClaims", l, func(w io.Writer) error {
		defer func() {
			for _, unread := range l.Unread {
				printLine(w, "Not read: "+unread, false)
			}
		}()
		if len(l.Claims) == 0 {
			where := "in namespace " + namespace
			if namespace == metav1.NamespaceAll {
				where = "in any namespace"
			}
			fmt.Fprintf(o.ErrOut, "No claims that a StatefulSet has left behind were found %s.\n", where)
			return nil
		}
		if err := printers.NewTablePrinter(printers.PrintOptions{Wide: o.out.wide()}).PrintObj(
			retainedTable(l, now, o.allNamespaces, o.out.wide()), w); err != nil {
			return fmt.Errorf("print the table: %w", err)
		}
		fmt.Fprintln(w)
		printLine(w, fmt.Sprintf("%s, %s.", plural.Count(l.Totals.Claims, "claim"), l.Totals.Size), false)
		if l.Totals.Likely > 0 {
			printLine(w, fmt.Sprintf("%d of them %s only likely to be one (?): -o wide shows the known facts. The commands "+
				"leave %s out.", l.Totals.Likely, plural.Verb(l.Totals.Likely, "is", "are"),
				plural.Verb(l.Totals.Likely, "it", "them")), true)
		}
		if l.Totals.Held > 0 {
			printLine(w, fmt.Sprintf("%d of them %s held (%s). The commands leave %s out.", l.Totals.Held,
				plural.Verb(l.Totals.Held, "is", "are"), volume.HoldAnnotation, plural.Verb(l.Totals.Held, "it", "them")), true)
		}
		if commands := l.DeleteCommands(); len(commands) > 0 {
			printLine(w, "If the data is not needed, delete them. It cannot be undone where the volume is deleted, too:", false)
			for _, command := range commands {
				printLine(w, "  "+command, false)
			}
		}
		return nil
	})
}

// retainedTable returns the claims as rows. Columns of -o wide have a priority.
func retainedTable(l claims.Retained, now time.Time, namespaces, wide bool) *metav1.Table {
	t := &metav1.Table{}
	column := func(name string, priority int32) {
		t.ColumnDefinitions = append(t.ColumnDefinitions,
			metav1.TableColumnDefinition{Name: name, Type: "string", Priority: priority})
	}
	if namespaces {
		column("Namespace", 0)
	}
	for _, name := range []string{"Claim", "StatefulSet", "Ordinal", "Size", "Age", "Retained for", "PV",
		"Reclaim policy", "Volume, if deleted"} {
		column(name, 0)
	}
	for _, name := range []string{"Reason", "Storage class", "Driver", "Evidence"} {
		column(name, 1)
	}
	for _, c := range l.Claims {
		var cells []any
		if namespaces {
			cells = append(cells, c.Namespace)
		}
		set := orDash(c.StatefulSet)
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
		if c.Since != nil {
			since = ">=" + duration.HumanDuration(now.Sub(c.Since.Time))
		}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: append(cells, name, set, c.Ordinal, c.Size,
			duration.HumanDuration(now.Sub(c.Created.Time)), since, orDash(pv), orDash(c.ReclaimPolicy),
			string(c.Volume.Fate), c.Reason, orDash(c.StorageClass), orDash(c.Driver), c.Evidence)})
	}
	return t
}
