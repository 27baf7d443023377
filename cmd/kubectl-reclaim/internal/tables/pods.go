package tables

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
)

type podsOptions struct {
	cli.Output
	allNamespaces bool
	running       bool
}

func podsCommand(s *cli.Plugin) *cobra.Command {
	o := &podsOptions{Output: cli.Output{Plugin: s}}
	cmd := &cobra.Command{
		Use:   "pods",
		Short: "List pods that are held while they terminate, and pods on nodes that are down",
		Long: `Lists pods that are terminating and held by the finalizer csi-reclaimer.io/running, and why each waits. It also
lists pods on nodes that are down (NodeDown): not Ready, or without a Node object. Their processes may run.

Held pods that are not being deleted are only counted, unless --include-running is set.`,
		Example: `  # in the current namespace
  kubectl reclaim pods

  # in all namespaces, with the reason of each decision
  kubectl reclaim pods -A -o wide

  # the names of those on nodes that are down
  kubectl reclaim pods -A -o json | jq -r '.pods[] | select(.status | contains("NodeDown")) | .name'`,
		Args: cobra.NoArgs,
		RunE: o.Run(o.run),
	}
	o.AddOutput(cmd)
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "List the pods of all namespaces.")
	cmd.Flags().BoolVar(&o.running, "include-running", false,
		"Also list held pods that are not being deleted.")
	return cmd
}

func (o *podsOptions) run(ctx context.Context, _ []string) error {
	return cli.ReadIn(ctx, o.Plugin, o.allNamespaces, pods.ReadList, func(f pods.ListFacts, namespace string) error {
		return o.show(pods.ListOf(f, o.running), f.Now, namespace)
	})
}

func (o *podsOptions) show(l pods.List, now time.Time, namespace string) error {
	return o.Print("Pods", l, func(w io.Writer) error {
		none := "No pods"
		if len(l.Unread) > 0 {
			none += " that could be read"
		}
		if err := o.TableOr(w, podTable(l, now, o.allNamespaces), none+" "+cli.Within(namespace)+
			" are held while they terminate, or are on a node that is down."); err != nil {
			return err
		}
		if l.HeldRunning > 0 && !o.running {
			fmt.Fprintf(o.ErrOut, "%s %s held while running: --include-running lists them.\n",
				plural.Count(l.HeldRunning, "more pod"), plural.Verb(l.HeldRunning, "is", "are"))
		}
		cli.PrintUnread(w, l.Unread)
		return nil
	})
}

func podTable(l pods.List, now time.Time, namespaces bool) *cli.Table {
	t := cli.NewTable(namespaces, []string{"Name", "Node", "Status", "Since", "Waits for", "Claims"},
		[]string{"Reason", "Other finalizers", "UID"})
	for _, pod := range l.Pods {
		since := ""
		if at := pod.Since(); !at.IsZero() {
			since = duration.HumanDuration(now.Sub(at))
		}
		t.Add(pod.Namespace, pod.Name, cli.OrDash(pod.Node), pod.Status, cli.OrDash(since), cli.OrDash(pod.WaitsFor),
			cli.OrDash(strings.Join(pod.Claims, ",")), cli.OrDash(pod.Reason), cli.OrDash(strings.Join(pod.Finalizers, ",")),
			pod.UID)
	}
	return t
}
