package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
)

type fencesOptions struct {
	*shared
	out      output
	watch    bool
	interval time.Duration
}

func fencesCommand(s *shared) *cobra.Command {
	o := &fencesOptions{shared: s}
	cmd := &cobra.Command{
		Use:   "fences",
		Short: "List the fences of nodes, with their progress, proof and pending step",
		Example: `  kubectl reclaim fences

  # with reasons, who asked for each and why, until interrupted
  kubectl reclaim fences -o wide --watch

  # the nodes that are fenced now
  kubectl reclaim fences -o json | jq -r '.fences[] | select(.covers) | .node'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.out.flags(cmd)
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "Repeat until interrupted, and print changes.")
	cmd.Flags().DurationVar(&o.interval, "interval", 5*time.Second,
		"Time between two reads with --watch. Each lists the pods on the nodes, and all VolumeAttachments.")
	return cmd
}

func (o *fencesOptions) run(ctx context.Context) error {
	if err := o.out.prepare(); err != nil {
		return err
	}
	if o.interval <= 0 {
		return fmt.Errorf("--interval=%s: must be above 0", o.interval)
	}
	c, err := o.live()
	if err != nil {
		return err
	}
	return repeat(ctx, o.watch, o.interval, func() (nodes.List, time.Time, error) {
		facts, err := nodes.ReadList(ctx, c)
		return nodes.ListOf(facts), facts.Now, err
	}, o.show)
}

// show prints the fences, separated from the previous output if it is printed again.
func (o *fencesOptions) show(l nodes.List, now time.Time, again bool) error {
	return o.out.print(o.Out, "Fences", l, func(w io.Writer) error {
		beginAgain(w, again)
		if len(l.Fences) == 0 {
			fmt.Fprintln(o.ErrOut, "No node has a fence.")
		} else if err := o.out.table(w, fenceTable(l, now)); err != nil {
			return err
		}
		printUnread(w, l.Unread)
		return nil
	})
}

func fenceTable(l nodes.List, now time.Time) *table {
	t := newTable(false, []string{"Node", "Phase", "Agent", "Covers", "Held pods", "Age", "Waits for"},
		[]string{"Reason", "Attempts", "Asked by", "Because"})
	for _, f := range l.Fences {
		covers := f.Covers
		if len(f.Drivers) > 0 {
			covers += " of " + strings.Join(f.Drivers, ", ")
		}
		held := "?"
		if f.Held != nil {
			held = strconv.Itoa(*f.Held)
		}
		t.add("", f.Node, f.Phase, orDash(f.Agent), orDash(covers), held, duration.HumanDuration(now.Sub(f.Since.Time)),
			orDash(f.WaitsFor), f.Reason, f.Attempts, f.AskedBy, f.Because)
	}
	return t
}
