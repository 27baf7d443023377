package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/claims"
)

type previewOptions struct {
	*shared
	out      output
	replicas int32
	remove   bool
	cascade  string
}

// Values of --cascade, as in kubectl delete.
const (
	cascadeBackground = "background"
	cascadeForeground = "foreground"
	cascadeOrphan     = "orphan"
)

func previewCommand(s *shared) *cobra.Command {
	o := &previewOptions{shared: s}
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
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return s.completeSet(cmd.Context(), begun), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.flags(cmd)
	return cmd
}

func (o *previewOptions) flags(cmd *cobra.Command) {
	o.out.flags(cmd)
	cmd.Flags().Int32Var(&o.replicas, "replicas", 0, "Preview a change of spec.replicas to this number.")
	cmd.Flags().BoolVar(&o.remove, "delete", false, "Preview the deletion of the set.")
	cmd.Flags().StringVar(&o.cascade, "cascade", "",
		"How the set is deleted: background, foreground, or orphan, which keeps its pods. It implies --delete.")
	mustComplete(cmd, "cascade", []string{cascadeBackground, cascadeForeground, cascadeOrphan})
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
	case cmd.Flags().Changed("cascade") && !slices.Contains([]string{cascadeBackground, cascadeForeground,
		cascadeOrphan}, o.cascade):
		return none, fmt.Errorf("--cascade=%s: must be background, foreground or orphan", o.cascade)
	case cmd.Flags().Changed("delete") && !o.remove:
		return none, errors.New("--delete=false: no change to preview: set --replicas=N or --delete")
	case o.cascade == cascadeOrphan:
		return claims.Orphan(), nil
	}
	return claims.Delete(), nil
}

// setWords returns the words for StatefulSets, as kubectl takes them, and the shell completes the first.
func setWords() []string { return []string{"statefulset", "sts", "statefulsets", "statefulsets.apps"} }

func parseSet(arg string) (string, error) {
	of, name, found := strings.Cut(arg, "/")
	if !found || name == "" || strings.Contains(name, "/") || !slices.Contains(setWords(), strings.ToLower(of)) {
		return "", fmt.Errorf("%q cannot be previewed: write statefulset/NAME or sts/NAME", arg)
	}
	return name, nil
}

func (o *previewOptions) run(cmd *cobra.Command, arg string) error {
	if err := o.out.prepare(); err != nil {
		return err
	}
	name, err := parseSet(arg)
	if err != nil {
		return err
	}
	change, err := o.change(cmd)
	if err != nil {
		return err
	}
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	c, err := o.live()
	if err != nil {
		return err
	}
	facts, err := claims.ReadPreview(cmd.Context(), c, namespace, name)
	if err != nil {
		return err
	}
	return o.show(claims.PreviewOf(facts, change))
}

func (o *previewOptions) show(p claims.Preview) error {
	return o.out.print(o.Out, "Preview", p, func(w io.Writer) error {
		printLine(w, fmt.Sprintf("StatefulSet %s: %s", p.StatefulSet, p.Change), false)
		printLine(w, "Retention: "+p.Policy.String(), false)
		for _, warning := range p.Warnings {
			printLine(w, "! "+warning, true)
		}
		if len(p.Claims) == 0 {
			printLine(w, "It has no claims from volumeClaimTemplates: no volume is touched.", false)
		} else {
			fmt.Fprintln(w)
			if err := o.out.table(w, previewTable(p, o.out.wide())); err != nil {
				return err
			}
			fmt.Fprintln(w)
			printLine(w, p.Totals.String(), p.Totals.VolumesDeleted > 0)
		}
		for _, r := range p.Reasons {
			printLine(w, r.Reason+": "+r.Sentence, false)
		}
		for _, words := range volumeWords(p) {
			printLine(w, words, false)
		}
		for _, assumed := range p.Assumed {
			printLine(w, "Assumed: "+assumed, false)
		}
		printUnread(w, p.Unread)
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

func previewTable(p claims.Preview, wide bool) *table {
	t := newTable(false, []string{"Claim", "Pod", "Size", "PV", "Reclaim policy", "The claim is", "When",
		"Its volume is"}, []string{"Reason", "Storage class", "Driver"})
	for _, c := range p.Claims {
		policy, pv := c.ReclaimPolicy, c.PV
		if !wide {
			pv = explain.ShortName(pv)
		}
		if policy == "" && c.PV != "" {
			policy = "unknown"
		}
		t.add("", c.Claim, orDash(c.Pod), c.Size, orDash(pv), orDash(policy), c.Fate, orDash(c.When),
			string(c.Volume.Fate), c.Reason, orDash(c.StorageClass), orDash(c.Driver))
	}
	return t
}
