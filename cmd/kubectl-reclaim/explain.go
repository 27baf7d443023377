package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/explain"
)

func explainCommand(s *shared) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "explain pv/NAME|pvc/NAME...",
		Short: "Explain what happens to a PV or a claim, why, and what you can do",
		Example: `  # why is this PV still there?
  kubectl reclaim explain pv/pvc-8a5c

  # a claim, with its PV
  kubectl reclaim explain pvc/data -n shop

  # a claim that was deleted while its volume was being provisioned
  kubectl reclaim explain pvc/old-data -n shop`,
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
			for _, arg := range args {
				explanation, err := s.explain(cmd.Context(), reader, arg)
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
)

// parseObject reads "pv/NAME" or "pvc/NAME".
func parseObject(arg string) (kind, string, error) {
	of, name, found := strings.Cut(arg, "/")
	if found && name != "" && !strings.Contains(name, "/") {
		switch strings.ToLower(of) {
		case "pv", "pvs", "persistentvolume", "persistentvolumes":
			return kindPV, name, nil
		case "pvc", "pvcs", "persistentvolumeclaim", "persistentvolumeclaims":
			return kindClaim, name, nil
		}
	}
	return 0, "", fmt.Errorf("%q cannot be explained: write pv/NAME or pvc/NAME", arg)
}

func (s *shared) namespace() (string, error) {
	namespace, _, err := s.cluster.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("find the namespace: %w", err)
	}
	return namespace, nil
}

func (s *shared) explain(ctx context.Context, reader *explain.Reader, arg string) (explain.Explanation, error) {
	kind, name, err := parseObject(arg)
	if err != nil {
		return explain.Explanation{}, err
	}
	if kind == kindPV {
		facts, err := reader.PV(ctx, name)
		if err != nil {
			return explain.Explanation{}, err
		}
		return explain.ExplainPV(facts), nil
	}
	namespace, err := s.namespace()
	if err != nil {
		return explain.Explanation{}, err
	}
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

// maxCompleted bounds how many names the shell completes.
const maxCompleted = 500

// complete returns the completions of an argument, without those that cannot be read.
func (s *shared) complete(ctx context.Context, begun string) (words []string) {
	if !strings.Contains(begun, "/") {
		return []string{"pv/", "pvc/"}
	}
	config, err := s.config()
	if err != nil {
		return nil
	}
	core, err := corev1.NewForConfig(config)
	if err != nil {
		return nil
	}
	options := metav1.ListOptions{Limit: maxCompleted, ResourceVersion: "0"}
	offer := func(word string) {
		if strings.HasPrefix(word, begun) {
			words = append(words, word)
		}
	}
	if strings.HasPrefix(begun, "pv/") {
		pvs, err := core.PersistentVolumes().List(ctx, options)
		if err != nil {
			return nil
		}
		for i := range pvs.Items {
			offer("pv/" + pvs.Items[i].Name)
		}
		return words
	}
	namespace, err := s.namespace()
	if err != nil {
		return nil
	}
	claims, err := core.PersistentVolumeClaims(namespace).List(ctx, options)
	if err != nil {
		return nil
	}
	for i := range claims.Items {
		offer("pvc/" + claims.Items[i].Name)
	}
	return words
}
