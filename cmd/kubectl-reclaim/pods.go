package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
)

type podsOptions struct {
	*shared
	out           output
	allNamespaces bool
	running       bool
}

func podsCommand(s *shared) *cobra.Command {
	o := &podsOptions{shared: s}
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
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.out.flags(cmd)
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "List the pods of all namespaces.")
	cmd.Flags().BoolVar(&o.running, "include-running", false,
		"Also list held pods that are not being deleted.")
	return cmd
}

func (o *podsOptions) run(cmd *cobra.Command) error {
	if err := o.out.prepare(); err != nil {
		return err
	}
	namespace, err := o.namespaceOr(o.allNamespaces)
	if err != nil {
		return err
	}
	c, err := o.live()
	if err != nil {
		return err
	}
	facts, err := pods.ReadList(cmd.Context(), c, namespace)
	if err != nil {
		return err
	}
	return o.show(pods.ListOf(facts, o.running), facts.Now, namespace)
}

func (o *podsOptions) show(l pods.List, now time.Time, namespace string) error {
	return o.out.print(o.Out, "Pods", l, func(w io.Writer) error {
		if len(l.Pods) == 0 {
			fmt.Fprintf(o.ErrOut, "No pods %s are held while they terminate, or are on a node that is down.\n",
				within(namespace))
		} else if err := o.out.table(w, podTable(l, now, o.allNamespaces)); err != nil {
			return err
		}
		if l.HeldRunning > 0 && !o.running {
			fmt.Fprintf(o.ErrOut, "%s %s held while running: --include-running lists them.\n",
				plural.Count(l.HeldRunning, "more pod"), plural.Verb(l.HeldRunning, "is", "are"))
		}
		printUnread(w, l.Unread)
		return nil
	})
}

func podTable(l pods.List, now time.Time, namespaces bool) *table {
	t := newTable(namespaces, []string{"Name", "Node", "Status", "Since", "Waits for", "Claims"},
		[]string{"Reason", "Other finalizers", "UID"})
	for _, pod := range l.Pods {
		since := ""
		if at := pod.Since(); !at.IsZero() {
			since = duration.HumanDuration(now.Sub(at))
		}
		t.add(pod.Namespace, pod.Name, orDash(pod.Node), pod.Status, orDash(since), orDash(pod.WaitsFor),
			orDash(strings.Join(pod.Claims, ",")), orDash(pod.Reason), orDash(strings.Join(pod.Finalizers, ",")), pod.UID)
	}
	return t
}
