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

	"github.com/csi-reclaimer/csi-reclaimer/pkg/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/explain/pods"
)

func explainCommand(s *shared) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "explain pv/NAME|pvc/NAME|pod/NAME|namespace/NAME...",
		Short: "Explain what happens to a PV, a claim, a pod or a namespace, why, and what you can do",
		Example: `  # why is this PV still there?
  kubectl reclaim explain pv/pvc-8a5c

  # a claim, with its PV
  kubectl reclaim explain pvc/data -n shop

  # a claim that was deleted while its volume was being provisioned
  kubectl reclaim explain pvc/old-data -n shop

  # a pod that stays Terminating: who holds it, on what evidence it is released, and what a force deletion would risk
  kubectl reclaim explain pod/db-0 -n shop

  # a namespace that stays Terminating
  kubectl reclaim explain namespace/shop`,
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
			reader, err := s.reader()
			if err != nil {
				return err
			}
			podReader, err := s.podReader()
			if err != nil {
				return err
			}
			for _, arg := range args {
				explanation, err := s.explain(cmd.Context(), reader, podReader, arg)
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

// kind of object that can be explained.
type kind uint8

const (
	kindPV kind = iota
	kindClaim
	kindPod
	kindNamespace
)

// kinds are the words for each kind, as kubectl takes them; the first is the one that the shell completes.
var kinds = map[kind][]string{
	kindPV:        {"pv", "pvs", "persistentvolume", "persistentvolumes"},
	kindClaim:     {"pvc", "pvcs", "persistentvolumeclaim", "persistentvolumeclaims"},
	kindPod:       {"pod", "po", "pods"},
	kindNamespace: {"namespace", "ns", "namespaces"},
}

// parseObject reads "KIND/NAME".
func parseObject(arg string) (kind, string, error) {
	of, name, found := strings.Cut(arg, "/")
	if found && name != "" && !strings.Contains(name, "/") {
		for kind, words := range kinds {
			if slices.Contains(words, strings.ToLower(of)) {
				return kind, name, nil
			}
		}
	}
	return 0, "", fmt.Errorf("%q cannot be explained: write pv/NAME, pvc/NAME, pod/NAME or namespace/NAME", arg)
}

func (s *shared) namespace() (string, error) {
	namespace, _, err := s.cluster.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("find the namespace: %w", err)
	}
	return namespace, nil
}

func (s *shared) explain(ctx context.Context, reader *explain.Reader, podReader *pods.Reader,
	arg string) (none explain.Explanation, err error) {
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
		facts, err := podReader.Pod(ctx, namespace, name)
		if err != nil {
			return none, err
		}
		return pods.Explain(facts), nil
	case kindNamespace:
		facts, err := podReader.Namespace(ctx, name)
		if err != nil {
			return none, err
		}
		return pods.ExplainNamespace(facts), nil
	case kindClaim:
		return explainClaim(ctx, reader, namespace, name)
	default:
		facts, err := reader.PV(ctx, name)
		if err != nil {
			return none, err
		}
		return explain.ExplainPV(facts), nil
	}
}

func explainClaim(ctx context.Context, reader *explain.Reader, namespace, name string) (explain.Explanation, error) {
	facts, err := reader.Claim(ctx, namespace, name)
	if apierrors.IsNotFound(err) {
		if facts, found := reader.DeletedClaim(ctx, namespace, name); found {
			return explain.ExplainDeletedClaim(facts, namespace, name), nil
		}
	}
	if err != nil {
		return explain.Explanation{}, err
	}
	return explain.ExplainClaim(facts), nil
}
