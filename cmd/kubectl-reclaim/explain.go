package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/claims"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/locks"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
)

func explainCommand(s *shared) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "explain pv/NAME|pvc/NAME|pod/NAME|namespace/NAME|node/NAME...",
		Short: "Explain what happens to a PV, a claim, a pod, a namespace or a node, why, and what you can do",
		Example: `  # why is this PV still there?
  kubectl reclaim explain pv/pvc-8a5c

  # a claim, with its PV; that of a StatefulSet also with what becomes of it when its replica is scaled away
  kubectl reclaim explain pvc/data-db-2 -n shop

  # a claim that was deleted while its volume was being provisioned
  kubectl reclaim explain pvc/old-data -n shop

  # a pod that stays Terminating: who holds it, on what evidence it is released, and what a force deletion would risk
  kubectl reclaim explain pod/db-0 -n shop

  # a pod that is not scheduled, and the claim whose lock another pod has: who has it, and what its end lacks
  kubectl reclaim explain pod/web-7d9f pvc/data -n shop

  # a namespace that stays Terminating
  kubectl reclaim explain namespace/shop

  # a node that is down: what stands still because of it, its fence, and what each FencePolicy does
  kubectl reclaim explain node/worker-2`,
		Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
			return s.complete(cmd.Context(), begun), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.prepare(); err != nil {
				return err
			}
			for _, arg := range args {
				if _, _, err := parseObject(arg); err != nil {
					return err
				}
			}
			read, err := s.readers()
			if err != nil {
				return err
			}
			for _, arg := range args {
				explanation, err := s.explain(cmd.Context(), read, arg)
				if err != nil {
					return err
				}
				err = out.print(s.Out, "Explanation", explanation, func(w io.Writer) error {
					return printers.WriteEscaped(w, explanation.Text(out.wide()))
				})
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	out.flags(cmd)
	return cmd
}

// kind is a kind of object that the plugin explains or completes.
type kind uint8

const (
	kindPV kind = iota
	kindClaim
	kindPod
	kindNamespace
	kindNode
	// kindFence and kindPolicy are only completed, not explained.
	kindFence
	kindPolicy
)

// kinds holds the words for each kind, as kubectl takes them, and the shell completes the first.
var kinds = map[kind][]string{
	kindPV:        {"pv", "pvs", "persistentvolume", "persistentvolumes"},
	kindClaim:     {"pvc", "pvcs", "persistentvolumeclaim", "persistentvolumeclaims"},
	kindPod:       {"pod", "po", "pods"},
	kindNamespace: {"namespace", "ns", "namespaces"},
	kindNode:      {"node", "no", "nodes"},
}

func parseObject(arg string) (kind, string, error) {
	of, name, found := strings.Cut(arg, "/")
	if found && name != "" && !strings.Contains(name, "/") {
		for kind, words := range kinds {
			if slices.Contains(words, strings.ToLower(of)) {
				return kind, name, nil
			}
		}
	}
	return 0, "", fmt.Errorf("%q cannot be explained: write pv/NAME, pvc/NAME, pod/NAME, namespace/NAME or node/NAME", arg)
}

func (s *shared) namespace() (string, error) {
	namespace, _, err := s.cluster.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("find the namespace: %w", err)
	}
	return namespace, nil
}

type readers struct {
	cluster *explain.Reader
	claims  *claims.Reader
	pods    *pods.Reader
	nodes   *nodes.Reader
	locks   *locks.Reader
}

func (s *shared) readers() (r readers, err error) {
	if r.cluster, err = s.reader(); err != nil {
		return r, err
	}
	if r.claims, err = s.claimReader(); err != nil {
		return r, err
	}
	if r.pods, err = s.podReader(); err != nil {
		return r, err
	}
	if r.locks, err = s.lockReader(); err != nil {
		return r, err
	}
	r.nodes, err = s.nodeReader()
	return r, err
}

func (s *shared) explain(ctx context.Context, read readers, arg string) (none explain.Explanation, err error) {
	kind, name, err := parseObject(arg)
	if err != nil {
		return none, err
	}
	namespace, err := s.namespace()
	if err != nil {
		return none, err
	}
	switch kind {
	case kindPod:
		facts, err := read.locks.Pod(ctx, namespace, name)
		if err != nil {
			return none, err
		}
		return locks.ExplainPod(facts), nil
	case kindNamespace:
		facts, err := read.pods.Namespace(ctx, name)
		if err != nil {
			return none, err
		}
		return pods.ExplainNamespace(facts), nil
	case kindNode:
		facts := read.nodes.Node(ctx, name)
		if err := facts.Unknown(); err != nil {
			return none, err
		}
		return nodes.Explain(facts), nil
	case kindClaim:
		return explainClaim(ctx, read, namespace, name)
	default:
		facts, err := read.cluster.PV(ctx, name)
		if err != nil {
			return none, err
		}
		return explain.ExplainPV(facts), nil
	}
}

func explainClaim(ctx context.Context, read readers, namespace, name string) (explain.Explanation, error) {
	facts, err := read.claims.Claim(ctx, namespace, name)
	if apierrors.IsNotFound(err) {
		if facts, found := read.cluster.DeletedClaim(ctx, namespace, name); found {
			return explain.ExplainDeletedClaim(facts, namespace, name), nil
		}
	}
	if err != nil {
		return explain.Explanation{}, err
	}
	explanation := claims.Explain(facts)
	locks.AddLock(&explanation, read.locks.Claim(ctx, facts.Claim))
	return explanation, nil
}
