package main

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// maxCompleted bounds how many names the shell completes.
const maxCompleted = 500

// complete returns the completions of an object, without those that cannot be read.
func (s *shared) complete(ctx context.Context, begun string) (words []string) {
	of, _, named := strings.Cut(begun, "/")
	if !named {
		for _, kind := range []kind{kindPV, kindClaim, kindPod, kindNamespace} {
			words = append(words, kinds[kind][0]+"/")
		}
		return words
	}
	kind, _, err := parseObject(of + "/x")
	if err != nil {
		return nil
	}
	for _, name := range s.names(ctx, kind) {
		if word := of + "/" + name; strings.HasPrefix(word, begun) {
			words = append(words, word)
		}
	}
	return words
}

// names returns the names of objects of a kind, in the namespace that is asked for; none if they cannot be read.
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
	}
	return nil
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
