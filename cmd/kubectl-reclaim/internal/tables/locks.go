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
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/locks"
)

type locksOptions struct {
	cli.Output
	allNamespaces bool
}

func locksCommand(s *cli.Plugin) *cobra.Command {
	o := &locksOptions{Output: cli.Output{Plugin: s}}
	cmd := &cobra.Command{
		Use:   "locks",
		Short: "List the locks of claims: which pod may use each, where it is, and which pods wait for it",
		Long: `Lists the claims that have a lock: the one pod that may use the claim, its node, the reason that keeps the lock, its
age, and the pods that wait for it. Then the pods that have the scheduling gate csi-reclaimer.io/volume and wait for
something else. Locks that need a person come first, then the longest wait.

volume-guard's controller single-node writes the locks, in namespaces with the label csi-reclaimer.io/single-node.`,
		Example: `  # in the current namespace
  kubectl reclaim locks

  # in all namespaces, with the meaning of each reason
  kubectl reclaim locks -A -o wide

  # the pods that are not scheduled because of a lock
  kubectl reclaim locks -A -o json | jq -r '.locks[] | .claim as $c | .waiting[]? | "\(.pod) waits for \($c)"'`,
		Args: cobra.NoArgs,
		RunE: o.Run(o.run),
	}
	o.AddOutput(cmd)
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "List the locks of all namespaces.")
	return cmd
}

func (o *locksOptions) run(ctx context.Context, _ []string) error {
	return cli.ReadIn(ctx, o.Plugin, o.allNamespaces, locks.ReadList, func(f locks.Facts, namespace string) error {
		return o.show(locks.ListOf(f), f.Now, namespace)
	})
}

func (o *locksOptions) show(l locks.List, now time.Time, namespace string) error {
	return o.Print("Locks", l, func(w io.Writer) error {
		if err := o.showTables(w, l, now, namespace); err != nil {
			return err
		}
		cli.PrintWarnings(w, l.Warnings)
		cli.PrintUnread(w, l.Unread)
		return nil
	})
}

func (o *locksOptions) showTables(w io.Writer, l locks.List, now time.Time, namespace string) error {
	if err := o.TableOr(w, o.lockTable(l, now), "No claim "+cli.Within(namespace)+" has a lock."); err != nil {
		return err
	}
	others := o.gatedTable(l, now)
	if len(others.Rows) == 0 {
		return nil
	}
	if len(l.Locks) > 0 {
		fmt.Fprintln(w)
	}
	return o.Table(w, others)
}

func (o *locksOptions) lockTable(l locks.List, now time.Time) *cli.Table {
	t := cli.NewTable(o.allNamespaces, []string{"Claim", "Holder", "Node", "Reason", "Since", "Waiting pods", "Waits for"},
		[]string{"Holder UID", "Claim UID", "Meaning"})
	for _, lock := range l.Locks {
		since := ""
		if lock.Since != nil {
			since = duration.HumanDuration(now.Sub(lock.Since.Time))
		}
		t.Add(lock.Namespace, lock.Claim, cli.OrDash(lock.Holder), cli.OrDash(lock.Node), lock.Reason, cli.OrDash(since),
			cli.OrDash(waitingWords(lock.Waiting, now)), cli.OrDash(lock.WaitsFor), cli.OrDash(lock.HolderUID), lock.ClaimUID,
			lock.Text)
	}
	return t
}

// maxWaiting limits the number of waiting pods that a row names.
const maxWaiting = 3

// waitingWords names the pods with the longest wait, as "db-1 (5m), db-2 (3m) and 4 more".
func waitingWords(all []locks.Waiting, now time.Time) string {
	var words []string
	for _, w := range all[:min(len(all), maxWaiting)] {
		words = append(words, fmt.Sprintf("%s (%s)", w.Pod, duration.HumanDuration(now.Sub(w.Since.Time))))
	}
	text := strings.Join(words, ", ")
	if more := len(all) - len(words); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// gatedTable returns the gated pods that do not wait for a lock as rows.
func (o *locksOptions) gatedTable(l locks.List, now time.Time) *cli.Table {
	t := cli.NewTable(o.allNamespaces, []string{"Pod", "Reason", "Since", "Waits for"}, []string{"UID", "Meaning"})
	for _, pod := range l.GatedPods {
		if !pod.WaitsForLock() {
			t.Add(pod.Namespace, pod.Name, pod.Reason, duration.HumanDuration(now.Sub(pod.Since.Time)),
				cli.OrDash(pod.WaitsFor), pod.UID, pod.Text)
		}
	}
	return t
}
