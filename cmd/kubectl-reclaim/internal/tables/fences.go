package tables

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
)

type fencesOptions struct {
	cli.Output
	cli.Poll
}

func fencesCommand(s *cli.Plugin) *cobra.Command {
	o := &fencesOptions{Output: cli.Output{Plugin: s}}
	cmd := &cobra.Command{
		Use:   "fences",
		Short: "List the fences of nodes, with their progress, proof and pending step",
		Example: `  kubectl reclaim fences

  # with reasons, who asked for each and why, until interrupted
  kubectl reclaim fences -o wide --watch

  # the nodes that are fenced now
  kubectl reclaim fences -o json | jq -r '.fences[] | select(.covers) | .node'`,
		Args: cobra.NoArgs,
		RunE: o.Run(func(ctx context.Context, _ []string) error { return o.run(ctx) }),
	}
	o.AddOutput(cmd)
	o.AddPoll(cmd, "Each lists the pods on the nodes, and all VolumeAttachments.")
	return cmd
}

func (o *fencesOptions) run(ctx context.Context) error {
	if err := o.Validate(); err != nil {
		return err
	}
	c, err := o.Live()
	if err != nil {
		return err
	}
	return cli.Repeat(ctx, o.Poll, func() (nodes.List, time.Time, error) {
		facts, err := nodes.ReadList(ctx, c)
		return nodes.ListOf(facts), facts.Now, err
	}, o.show)
}

// show prints the fences, separated from the previous output if it is printed again.
func (o *fencesOptions) show(l nodes.List, now time.Time, again bool) error {
	return o.Print("Fences", l, func(w io.Writer) error {
		cli.BeginAgain(w, again)
		if err := o.TableOr(w, fenceTable(l, now), "No node has a fence."); err != nil {
			return err
		}
		cli.PrintUnread(w, l.Unread)
		return nil
	})
}

func fenceTable(l nodes.List, now time.Time) *cli.Table {
	t := cli.NewTable(false, []string{"Node", "Phase", "Agent", "Covers", "Held pods", "Age", "Waits for"},
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
		t.Add("", f.Node, f.Phase, cli.OrDash(f.Agent), cli.OrDash(covers), held,
			duration.HumanDuration(now.Sub(f.Since.Time)), cli.OrDash(f.WaitsFor), f.Reason, f.Attempts, f.AskedBy, f.Because)
	}
	return t
}
