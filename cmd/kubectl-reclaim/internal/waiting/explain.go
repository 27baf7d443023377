// Package waiting has the commands about objects that wait: their explanations, a table and a page of all.
package waiting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/claims"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/view"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/watch"
)

// Commands returns the commands of this package.
func Commands(s *cli.Plugin) []*cobra.Command {
	return []*cobra.Command{explainCommand(s), listCommand(s), webCommand(s)}
}

type explainOptions struct {
	cli.Output
	all, allNamespaces bool
}

func explainCommand(s *cli.Plugin) *cobra.Command {
	o := &explainOptions{Output: cli.Output{Plugin: s}}
	cmd := &cobra.Command{
		Use:   "explain KIND/NAME... | KIND NAME... | NAME... | --all",
		Short: "Explain what happens to a PV, claim, pod, namespace or node, why, and your options",
		Long: `Explains what happens to each object and why, the next event that it waits for, and your options. The first line
is the answer.

Kinds are pv, pvc, pod, namespace, node and statefulset, and kubectl's other words for them. A name without a kind is
the name of a PV, or else of a claim or a pod in the namespace. "--all" explains each object of "kubectl reclaim list".
For a StatefulSet, the command explains the waiting pods, claims and volumes.`,
		Example: `  # why is this PV still there?
  kubectl reclaim explain pv/pvc-8a5c

  # the same in the other form of kubectl, for two PVs
  kubectl reclaim explain pv pvc-8a5c pvc-91aa

  # a PV, claim or pod of this name
  kubectl reclaim explain data-db-2 -n shop

  # a claim, with its PV; for a claim of a StatefulSet also the effect of a scale-down
  kubectl reclaim explain pvc/data-db-2 -n shop

  # a claim that was deleted while its volume was being provisioned
  kubectl reclaim explain pvc/old-data -n shop

  # a pod that stays Terminating: its holder, the evidence that releases it, and the risks of a force deletion
  kubectl reclaim explain pod/db-0 -n shop

  # a pod that is not scheduled, and its claim, whose lock another pod has: the holder, and why it has not ended
  kubectl reclaim explain pod/web-7d9f pvc/data -n shop

  # a StatefulSet: which of its pods, claims and volumes wait, and why
  kubectl reclaim explain sts/db -n shop

  # a namespace that stays Terminating
  kubectl reclaim explain namespace/shop

  # a node that is down: the objects that wait for it, its fence, and the action of each FencePolicy
  kubectl reclaim explain node/worker-2

  # all waiting objects
  kubectl reclaim explain --all -A`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			return s.Complete(cmd.Context(), args, begun), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: o.Run(o.run),
	}
	o.AddOutput(cmd)
	cmd.Flags().BoolVar(&o.all, "all", false, "Explain all that \"kubectl reclaim list\" lists.")
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "With --all: in all namespaces.")
	return cmd
}

func (o *explainOptions) run(ctx context.Context, args []string) error {
	switch {
	case o.all && len(args) > 0:
		return errors.New("--all explains all that waits: name no objects, or leave --all out")
	case o.allNamespaces && !o.all:
		return errors.New("--all-namespaces: only with --all; for one object, set its namespace with -n")
	case o.all:
		return o.explainAll(ctx)
	}
	all, err := parseObjects(args)
	if err != nil {
		return err
	}
	namespace, c, err := o.Scope(false)
	if err != nil {
		return err
	}
	var errs []error
	shown := 0
	for _, object := range all {
		object.namespace = namespace
		explanations, err := o.explain(ctx, c, object)
		if err != nil {
			errs = append(errs, err)
		}
		for _, e := range explanations {
			if err := o.show(e, shown > 0); err != nil {
				return err
			}
			shown++
		}
	}
	return errors.Join(errs...)
}

// show prints an explanation, after an empty line if it is not the first.
func (o *explainOptions) show(e explain.Explanation, again bool) error {
	return o.Print("Explanation", e, func(w io.Writer) error {
		if again {
			fmt.Fprintln(w)
		}
		return cli.WriteExplanation(w, e, o.Wide())
	})
}

// explainAll explains what waits, from one read of the cluster. An object that is gone meanwhile no longer waits.
func (o *explainOptions) explainAll(ctx context.Context) error {
	list := &listOptions{Output: o.Output, allNamespaces: o.allNamespaces}
	namespace, err := o.Namespace(o.allNamespaces)
	if err != nil {
		return err
	}
	loaded, err := load(ctx, o.Plugin, namespace)
	if err != nil {
		return err
	}
	c := loaded.Cached()
	l := list.listOf(ctx, loaded, namespace)
	if len(l.Objects) == 0 {
		fmt.Fprintln(o.ErrOut, list.nothing(l, namespace))
	}
	var errs []error
	for i, object := range objectsOf(l.Objects) {
		explanations, err := o.explain(ctx, c, object)
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
		for _, e := range explanations {
			if err := o.show(e, i > 0); err != nil {
				return err
			}
		}
	}
	cli.PrintUnread(o.ErrOut, l.Unread)
	return errors.Join(errs...)
}

// load reads the cluster once.
func load(ctx context.Context, s *cli.Plugin, namespace string) (*watch.Cluster, error) {
	c, err := snapshot(s, namespace, "")
	if err != nil {
		return nil, err
	}
	return c, c.Load(ctx)
}

// explain returns the explanation of an object. A StatefulSet also has those of its objects that wait.
func (o *explainOptions) explain(ctx context.Context, c explain.Cluster, of object) ([]explain.Explanation, error) {
	if of.kind == cli.KindAny {
		var err error
		if of, err = find(ctx, c, of); err != nil {
			return nil, err
		}
	}
	if of.kind == cli.KindSet {
		return explainSet(ctx, o.Plugin, of)
	}
	e, err := explainOne(ctx, c, of)
	if err != nil {
		return nil, err
	}
	return []explain.Explanation{e}, nil
}

func explainOne(ctx context.Context, c explain.Cluster, o object) (none explain.Explanation, err error) {
	if o.kind == cli.KindNamespace {
		facts, err := pods.ReadNamespace(ctx, c.Live(), o.name)
		if err != nil {
			return none, err
		}
		return pods.ExplainNamespace(facts), nil
	}
	return watch.Explain(ctx, c, view.Ref{Kind: pages[o.kind], Namespace: o.namespace, Name: o.name})
}

// explainSet explains a StatefulSet, and then its pods, claims and volumes that wait.
func explainSet(ctx context.Context, s *cli.Plugin, o object) ([]explain.Explanation, error) {
	loaded, err := load(ctx, s, o.namespace)
	if err != nil {
		return nil, err
	}
	c := loaded.Cached()
	facts, err := claims.ReadPreview(ctx, c, o.namespace, o.name)
	if err != nil {
		return nil, err
	}
	rows := slices.DeleteFunc(listed(view.Waiting(view.RowsOf(loaded.Facts(ctx)))), func(row view.Row) bool {
		namespace, claim, _ := strings.Cut(row.Claim, "/")
		if row.Kind == view.KindClaim || row.Kind == view.KindPod {
			namespace, claim = row.Namespace, row.Name
		}
		has := facts.HasClaim
		if row.Kind == view.KindPod {
			has = facts.HasPod
		}
		return namespace != o.namespace || !has(claim)
	})
	waiting := objectsOf(rows)
	words := make([]string, 0, len(waiting))
	for _, of := range waiting {
		words = append(words, of.kind.Word()+"/"+of.name)
	}
	all := []explain.Explanation{claims.ExplainSet(facts, words)}
	for _, of := range waiting {
		e, err := explainOne(ctx, c, of)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return all, err
		default:
			all = append(all, e)
		}
	}
	return all, nil
}
