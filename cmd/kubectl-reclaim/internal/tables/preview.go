package tables

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/claims"
)

type previewOptions struct {
	cli.Output
	replicas int32
	remove   bool
	cascade  string
}

// cascades are the values of --cascade, as in kubectl delete.
var cascades = []string{"background", "foreground", cascadeOrphan}

const cascadeOrphan = "orphan"

func previewCommand(s *cli.Plugin) *cobra.Command {
	o := &previewOptions{Output: cli.Output{Plugin: s}}
	cmd := &cobra.Command{
		Use:   "preview statefulset/NAME (--replicas=N | --delete [--cascade=orphan])",
		Short: "Preview the effect of scaling or deleting a StatefulSet on its claims and their volumes",
		Long: `Previews the effect of scaling or deleting a StatefulSet on each of its claims and their volumes. The retention
policy of the set decides on the claims, and the reclaim policy of each PV on its volume. The command changes nothing.

The preview holds for the current state of the cluster. The retention policy is
spec.persistentVolumeClaimRetentionPolicy, or the annotation csi-reclaimer.io/claim-retention where the API server does
not have that field.`,
		Example: `  # before you scale down: which disks go, and which stay on the bill
  kubectl reclaim preview statefulset/db --replicas=1 -n shop

  # before you delete the set and its pods
  kubectl reclaim preview sts/db --delete -n shop

  # as "kubectl delete statefulset db --cascade=orphan", which keeps the pods
  kubectl reclaim preview sts/db --cascade=orphan -n shop

  # the claims that a scale-down to 1 deletes
  kubectl reclaim preview sts/db --replicas=1 -o json | jq -r '.claims[] | select(.fate == "deleted") | .claim'`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: cli.CompleteFirst(func(ctx context.Context, begun string) []string {
			return s.CompleteObject(ctx, begun, cli.KindSet, cli.KindSet)
		}),
	}
	cmd.RunE = o.Run(func(ctx context.Context, args []string) error {
		name, err := parseSet(args[0])
		if err != nil {
			return err
		}
		change, err := o.change(cmd)
		if err != nil {
			return err
		}
		return o.run(ctx, name, change)
	})
	o.flags(cmd)
	return cmd
}

func (o *previewOptions) flags(cmd *cobra.Command) {
	o.AddOutput(cmd)
	cmd.Flags().Int32Var(&o.replicas, "replicas", 0, "Preview a change of spec.replicas to this number.")
	cmd.Flags().BoolVar(&o.remove, "delete", false, "Preview the deletion of the set.")
	cmd.Flags().StringVar(&o.cascade, "cascade", "",
		"How the set is deleted: background, foreground, or orphan, which keeps its pods. It implies --delete.")
	cli.MustComplete(cmd, "cascade", cli.Words(cascades...))
	cmd.MarkFlagsMutuallyExclusive("replicas", "delete")
	cmd.MarkFlagsMutuallyExclusive("replicas", "cascade")
	cmd.MarkFlagsOneRequired("replicas", "delete", "cascade")
}

func (o *previewOptions) change(cmd *cobra.Command) (none claims.Change, err error) {
	switch {
	case cmd.Flags().Changed("replicas") && o.replicas < 0:
		return none, fmt.Errorf("--replicas=%d: must not be negative", o.replicas)
	case cmd.Flags().Changed("replicas"):
		return claims.ScaleTo(int(o.replicas)), nil
	case cmd.Flags().Changed("cascade") && !slices.Contains(cascades, o.cascade):
		return none, fmt.Errorf("--cascade=%s: must be background, foreground or orphan", o.cascade)
	case cmd.Flags().Changed("delete") && !o.remove:
		return none, errors.New("--delete=false: no change to preview: set --replicas=N or --delete")
	case o.cascade == cascadeOrphan:
		return claims.Orphan(), nil
	}
	return claims.Delete(), nil
}

func parseSet(arg string) (string, error) {
	kind, name, err := cli.ParseObject(arg)
	if err != nil || kind != cli.KindSet {
		return "", fmt.Errorf("%q cannot be previewed: write statefulset/NAME or sts/NAME", arg)
	}
	return name, nil
}

func (o *previewOptions) run(ctx context.Context, name string, change claims.Change) error {
	namespace, c, err := o.Scope(false)
	if err != nil {
		return err
	}
	facts, err := claims.ReadPreview(ctx, c, namespace, name)
	if err != nil {
		return err
	}
	return o.show(claims.PreviewOf(facts, change))
}

func (o *previewOptions) show(p claims.Preview) error {
	return o.Print("Preview", p, func(w io.Writer) error {
		cli.PrintLine(w, fmt.Sprintf("StatefulSet %s: %s", p.StatefulSet, p.Change), false)
		cli.PrintLine(w, "Retention: "+p.Policy.String(), false)
		cli.PrintWarnings(w, p.Warnings)
		if len(p.Claims) == 0 {
			cli.PrintLine(w, "It has no claims from volumeClaimTemplates: no volume is touched.", false)
		} else {
			fmt.Fprintln(w)
			if err := o.Table(w, previewTable(p, o.Wide())); err != nil {
				return err
			}
			fmt.Fprintln(w)
			cli.PrintLine(w, p.Totals.String(), p.Totals.VolumesDeleted > 0)
		}
		for _, r := range p.Reasons {
			cli.PrintLine(w, r.Reason+": "+r.Sentence, false)
		}
		for _, words := range volumeWords(p) {
			cli.PrintLine(w, words, false)
		}
		for _, assumed := range p.Assumed {
			cli.PrintLine(w, "Assumed: "+assumed, false)
		}
		cli.PrintUnread(w, p.Unread)
		return nil
	})
}

// volumeWords explains the volumes of deleted claims, with each sentence only once.
func volumeWords(p claims.Preview) (lines []string) {
	var texts []string
	by := map[string][]string{}
	for _, c := range p.Claims {
		if c.Fate != "deleted" || c.PV == "" {
			continue
		}
		if by[c.Volume.Text] == nil {
			texts = append(texts, c.Volume.Text)
		}
		by[c.Volume.Text] = append(by[c.Volume.Text], c.PV)
	}
	for _, text := range texts {
		lines = append(lines, "Volume of "+strings.Join(by[text], ", ")+": "+text)
	}
	return lines
}

func previewTable(p claims.Preview, wide bool) *cli.Table {
	t := cli.NewTable(false, []string{"Claim", "Pod", "Size", "PV", "Reclaim policy", "The claim is", "When",
		"Its volume is"}, []string{"Reason", "Storage class", "Driver"})
	for _, c := range p.Claims {
		policy, pv := c.ReclaimPolicy, c.PV
		if !wide {
			pv = explain.ShortName(pv)
		}
		if policy == "" && c.PV != "" {
			policy = "unknown"
		}
		t.Add("", c.Claim, cli.OrDash(c.Pod), c.Size, cli.OrDash(pv), cli.OrDash(policy), c.Fate, cli.OrDash(c.When),
			string(c.Volume.Fate), c.Reason, cli.OrDash(c.StorageClass), cli.OrDash(c.Driver))
	}
	return t
}
