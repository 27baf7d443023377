package main

import (
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/explain"
)

// statusOptions are the flags of status.
type statusOptions struct {
	*shared
	out      output
	driver   string
	watch    bool
	interval time.Duration
}

func statusCommand(s *shared) *cobra.Command {
	o := &statusOptions{shared: s}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show for each driver how many PVs are protected, what PVs wait for, and what is in flight",
		Example: `  kubectl reclaim status

  # one driver, until interrupted
  kubectl reclaim status --driver=disk.csi.example.com --watch`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.out.flags(cmd)
	cmd.Flags().StringVar(&o.driver, "driver", "", "Show only this driver.")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "Repeat until interrupted, and print what has changed.")
	cmd.Flags().DurationVar(&o.interval, "interval", 5*time.Second,
		"Time between two reads with --watch. Each lists all PVs and VolumeAttachments.")
	return cmd
}

func (o *statusOptions) run(cmd *cobra.Command) error {
	if err := o.out.prepare(); err != nil {
		return err
	}
	if o.interval <= 0 {
		return fmt.Errorf("--interval=%v: must be above 0", o.interval)
	}
	reader, err := o.reader()
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	var last *explain.Status
	for {
		facts, err := reader.Status(ctx, o.driver)
		switch {
		case ctx.Err() != nil && last != nil:
			return nil // interrupted while it was reading again
		case err != nil:
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

// show prints a status; again: it is not the first.
func (o *statusOptions) show(s explain.Status, now time.Time, again bool) error {
	return o.out.print(o.Out, "Status", s, func(w io.Writer) error {
		switch {
		case again && printers.IsTerminal(w):
			fmt.Fprint(w, "\x1b[H\x1b[2J")
		case again:
			fmt.Fprintln(w)
		}
		if len(s.Drivers) == 0 {
			fmt.Fprintln(o.ErrOut, "No PVs of CSI drivers or in-tree plugins were found.")
		} else if err := printers.NewTablePrinter(printers.PrintOptions{Wide: o.out.wide()}).PrintObj(table(s, now),
			w); err != nil {
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
func table(s explain.Status, now time.Time) *metav1.Table {
	column := func(name string, priority int32) metav1.TableColumnDefinition {
		return metav1.TableColumnDefinition{Name: name, Type: "string", Priority: priority}
	}
	t := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		column("Driver", 0), column("PVs", 0), column("Protected", 0), column("Unprotected", 0), column("Terminating", 0),
		column("Waiting", 0), column("Oldest terminating", 0), column("In flight", 0), column("Role", 1),
		column("Admission", 1),
	}}
	or := func(text string) string {
		if text == "" {
			return "-"
		}
		return text
	}
	for _, d := range s.Drivers {
		t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{
			d.Driver, d.PVs, d.Protected, d.Unprotected, d.Terminating, or(d.WaitingWords()), or(d.OldestWords(now)),
			or(d.InFlightWords(now)), d.Role, or(d.Admission),
		}})
	}
	return t
}
