package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1 "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
)

// maxCompleted limits the names that the shell completes.
const maxCompleted = 500

// complete returns the completions of KIND/NAME, or of NAME after a kind, none if the objects cannot be read.
func (s *shared) complete(ctx context.Context, args []string, begun string) (words []string) {
	of, _, named := strings.Cut(begun, "/")
	if !named && len(args) > 0 {
		if kind, known := kindOf(args[0]); known {
			return s.names(ctx, kind)
		}
	}
	if !named {
		for _, kind := range []kind{kindPV, kindClaim, kindPod, kindNamespace, kindNode, kindSet} {
			words = append(words, kinds[kind][0]+"/")
		}
		return words
	}
	kind, known := kindOf(of)
	if !known {
		return nil
	}
	return s.completions(ctx, begun, of, kind)
}

// completions returns the objects of a kind, as KIND/NAME, that begin with begun.
func (s *shared) completions(ctx context.Context, begun, word string, of kind) (words []string) {
	for _, name := range s.names(ctx, of) {
		if word := word + "/" + name; strings.HasPrefix(word, begun) {
			words = append(words, word)
		}
	}
	return words
}

// completeObject returns the completions of KIND/NAME for kind word, with the names of objects of kind names.
func (s *shared) completeObject(ctx context.Context, begun string, word, names kind) []string {
	of, _, named := strings.Cut(begun, "/")
	if !named {
		return []string{kinds[word][0] + "/"}
	}
	if kind, _, err := parseObject(of + "/x"); err != nil || kind != word {
		return nil
	}
	return s.completions(ctx, begun, of, names)
}

// completeNames completes the only argument of a command with the names of objects of a kind.
func (s *shared) completeNames(of kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return s.names(cmd.Context(), of), cobra.ShellCompDirectiveNoFileComp
	}
}

// mustCompleteBy adds shell completion of a flag with the names of objects of a kind.
func (s *shared) mustCompleteBy(cmd *cobra.Command, flag string, of kind) {
	err := cmd.RegisterFlagCompletionFunc(flag,
		func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return s.names(cmd.Context(), of), cobra.ShellCompDirectiveNoFileComp
		})
	if err != nil {
		panic(err) // the flag does not exist, which is a bug in this program
	}
}

// completeSet returns the completions of a StatefulSet, none if StatefulSets cannot be read.
func (s *shared) completeSet(ctx context.Context, begun string) (words []string) {
	of, _, named := strings.Cut(begun, "/")
	if !named {
		return []string{setWords()[0] + "/"}
	}
	if _, err := parseSet(of + "/x"); err != nil {
		return nil
	}
	return s.completions(ctx, begun, of, kindSet)
}

// names returns the names of objects of a kind in the chosen namespace, none if they cannot be read.
func (s *shared) names(ctx context.Context, of kind) []string {
	namespace, err := s.namespace()
	if err != nil {
		return nil
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
	switch of {
	case kindPV:
		return namesOf(core.PersistentVolumes().List(ctx, options))
	case kindClaim:
		return namesOf(core.PersistentVolumeClaims(namespace).List(ctx, options))
	case kindPod:
		return namesOf(core.Pods(namespace).List(ctx, options))
	case kindNamespace:
		return namesOf(core.Namespaces().List(ctx, options))
	case kindNode:
		return namesOf(core.Nodes().List(ctx, options))
	case kindFence, kindPolicy:
		return fenceNames(ctx, config, of, options)
	case kindSet:
		if apps, err := appsv1.NewForConfig(config); err == nil {
			return namesOf(apps.StatefulSets(namespace).List(ctx, options))
		}
	case kindDriver:
		if storage, err := storagev1.NewForConfig(config); err == nil {
			return namesOf(storage.CSIDrivers().List(ctx, options))
		}
	case kindAny:
	}
	return nil
}

func fenceNames(ctx context.Context, config *rest.Config, of kind, options metav1.ListOptions) []string {
	fencing, err := client.New(config)
	switch {
	case err != nil:
		return nil
	case of == kindFence:
		return namesOf(fencing.Fences.List(ctx, options))
	}
	return namesOf(fencing.Policies.List(ctx, options))
}

func namesOf(list runtime.Object, err error) (names []string) {
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
