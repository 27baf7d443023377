package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxCompleted limits the names that the shell completes.
const maxCompleted = 500

// Complete returns the completions of KIND/NAME, or of NAME after a kind, none if the objects cannot be read.
func (s *Plugin) Complete(ctx context.Context, args []string, begun string) (words []string) {
	of, _, named := strings.Cut(begun, "/")
	if !named && len(args) > 0 {
		if kind, known := KindOf(args[0]); known {
			return s.names(ctx, kind)
		}
	}
	if !named {
		for _, kind := range []Kind{KindPV, KindClaim, KindPod, KindNamespace, KindNode, KindSet} {
			words = append(words, kind.Word()+"/")
		}
		return words
	}
	kind, known := KindOf(of)
	if !known {
		return nil
	}
	return s.completions(ctx, begun, of, kind)
}

// completions returns the objects of a kind, as KIND/NAME, that begin with begun.
func (s *Plugin) completions(ctx context.Context, begun, word string, of Kind) (words []string) {
	for _, name := range s.names(ctx, of) {
		if word := word + "/" + name; strings.HasPrefix(word, begun) {
			words = append(words, word)
		}
	}
	return words
}

// CompleteObject returns the completions of KIND/NAME for kind word, with the names of objects of kind names, none if
// they cannot be read.
func (s *Plugin) CompleteObject(ctx context.Context, begun string, word, names Kind) []string {
	of, _, named := strings.Cut(begun, "/")
	if !named {
		return []string{word.Word() + "/"}
	}
	if kind, _, err := ParseObject(of + "/x"); err != nil || kind != word {
		return nil
	}
	return s.completions(ctx, begun, of, names)
}

// CompleteFirst completes the only argument of a command.
func CompleteFirst(words func(ctx context.Context, begun string) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words(cmd.Context(), begun), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteNames completes the only argument of a command with the names of objects of a kind.
func (s *Plugin) CompleteNames(of Kind) cobra.CompletionFunc {
	return CompleteFirst(func(ctx context.Context, _ string) []string { return s.names(ctx, of) })
}

// MustComplete adds shell completion of a flag.
func MustComplete(cmd *cobra.Command, flag string, by cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, by); err != nil {
		panic(err) // the flag does not exist, which is a bug in this program
	}
}

// Words completes a flag with words.
func Words(all ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp)
}

// NamesOf completes a flag with the names of objects of a kind.
func (s *Plugin) NamesOf(of Kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return s.names(cmd.Context(), of), cobra.ShellCompDirectiveNoFileComp
	}
}

// DriverFlag adds --driver to a command.
func (s *Plugin) DriverFlag(cmd *cobra.Command, driver *string, usage string) {
	cmd.Flags().StringVar(driver, "driver", "", usage)
	MustComplete(cmd, "driver", s.NamesOf(kindDriver))
}

// names returns the names of objects of a kind in the chosen namespace, none if they cannot be read.
func (s *Plugin) names(ctx context.Context, of Kind) []string {
	namespace, err := s.Namespace(false)
	if err != nil {
		return nil
	}
	c, err := s.API()
	if err != nil {
		return nil
	}
	options := metav1.ListOptions{Limit: maxCompleted}
	switch of {
	case KindPV:
		return namesIn(c.Core.PersistentVolumes().List(ctx, options))
	case KindClaim:
		return namesIn(c.Core.PersistentVolumeClaims(namespace).List(ctx, options))
	case KindPod:
		return namesIn(c.Core.Pods(namespace).List(ctx, options))
	case KindNamespace:
		return namesIn(c.Core.Namespaces().List(ctx, options))
	case KindNode:
		return namesIn(c.Core.Nodes().List(ctx, options))
	case KindFence:
		return namesIn(c.Fencing.Fences.List(ctx, options))
	case KindPolicy:
		return namesIn(c.Fencing.Policies.List(ctx, options))
	case KindSet:
		return namesIn(c.Apps.StatefulSets(namespace).List(ctx, options))
	case kindDriver:
		return namesIn(c.Storage.CSIDrivers().List(ctx, options))
	case KindAny:
	}
	return nil
}

func namesIn(list runtime.Object, err error) (names []string) {
	if err != nil {
		return nil
	}
	_ = meta.EachListItem(list, func(o runtime.Object) error { // an item without metadata has no name
		if object, err := meta.Accessor(o); err == nil {
			names = append(names, object.GetName())
		}
		return nil
	})
	return names
}

// Kind is a kind of object that the plugin explains or completes.
type Kind uint8

const (
	// KindAny is a PV, or else a claim or a pod.
	KindAny Kind = iota
	KindPV
	KindClaim
	KindPod
	KindNamespace
	KindNode
	KindSet
	// KindFence, KindPolicy and kindDriver are only completed, not explained.
	KindFence
	KindPolicy
	kindDriver
)

// kinds holds the words for each kind, as kubectl takes them, and the shell completes the first. A NodeFence has the
// name of its node.
var kinds = map[Kind][]string{
	KindPV:        {"pv", "pvs", "persistentvolume", "persistentvolumes"},
	KindClaim:     {"pvc", "pvcs", "persistentvolumeclaim", "persistentvolumeclaims"},
	KindPod:       {"pod", "po", "pods"},
	KindNamespace: {"namespace", "ns", "namespaces"},
	KindNode:      {"node", "no", "nodes", "nodefence", "nodefences", "nodefence.csi-reclaimer.io"},
	KindSet:       {"statefulset", "sts", "statefulsets", "statefulsets.apps"},
}

// Word returns the word for a kind that the shell completes.
func (k Kind) Word() string { return kinds[k][0] }

// KindOf returns the kind that a word names.
func KindOf(word string) (Kind, bool) {
	for kind, words := range kinds {
		if slices.Contains(words, strings.ToLower(word)) {
			return kind, true
		}
	}
	return KindAny, false
}

// ParseObject parses KIND/NAME.
func ParseObject(arg string) (Kind, string, error) {
	of, name, found := strings.Cut(arg, "/")
	if kind, known := KindOf(of); found && known && name != "" && !strings.Contains(name, "/") {
		return kind, name, nil
	}
	return KindAny, "", fmt.Errorf("%q cannot be explained: write pv/NAME, pvc/NAME, pod/NAME, namespace/NAME, node/NAME "+
		"or statefulset/NAME", arg)
}
