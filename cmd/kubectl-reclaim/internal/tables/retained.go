package tables

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/claims"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

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
	namespace, c, err := o.Scope(o.allNamespaces)
	if err != nil {
		return err
	}
	facts, err := claims.ReadRetained(ctx, c, namespace)
	if err != nil {
		return err
	}
	return o.showRetained(claims.RetainedOf(facts), facts.Now, namespace)
}

func (o *statusOptions) showRetained(l claims.Retained, now time.Time, namespace string) error {
	return o.out.Print(o.Out, "RetainedClaims", l, func(w io.Writer) error {
		defer cli.PrintUnread(w, l.Unread)
		if len(l.Claims) == 0 {
			fmt.Fprintf(o.ErrOut, "No claims that a StatefulSet has left behind were found %s.\n", cli.Within(namespace))
			return nil
		}
		if err := o.out.Table(w, retainedTable(l, now, o.allNamespaces, o.out.Wide())); err != nil {
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
		if c.Since != nil {
			since = ">=" + duration.HumanDuration(now.Sub(c.Since.Time))
		}
		t.Add(c.Namespace, name, set, c.Ordinal, c.Size, duration.HumanDuration(now.Sub(c.Created.Time)), since,
			cli.OrDash(pv), cli.OrDash(c.ReclaimPolicy), string(c.Volume.Fate), c.Reason, cli.OrDash(c.StorageClass),
			cli.OrDash(c.Driver), c.Evidence)
	}
	return t
}
