//go:build controlplane && unix

package agents

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m, serveCustomKinds)) }

// serveCustomKinds makes the API server serve customKinds.
func serveCustomKinds(ctx context.Context) error {
	client, err := dynamic.NewForConfig(apiserver.Admin())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for kind, namespaced := range customKinds {
		resource, single := meta.UnsafeGuessKindToResource(kind)
		scope := map[bool]string{false: "Cluster", true: "Namespaced"}[namespaced]
		crd := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": resource.GroupResource().String(), "annotations": map[string]any{
				"api-approved.kubernetes.io": "unapproved, for tests"}},
			"spec": map[string]any{"group": kind.Group, "scope": scope,
				"names": map[string]any{"kind": kind.Kind, "plural": resource.Resource, "singular": single.Resource},
				"versions": []any{map[string]any{"name": kind.Version, "served": true, "storage": true,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object",
						"x-kubernetes-preserve-unknown-fields": true}}}}},
		}}
		crds := client.Resource(schema.GroupVersionResource{
			Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
		if _, err := crds.Create(ctx, crd, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create the CRD of %s: %w", kind.Kind, err)
		}
	}
	for kind := range customKinds { // after all were created: each takes some time
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			_, err := client.Resource(resource).List(ctx, metav1.ListOptions{})
			return err == nil, nil
		})
		if err != nil {
			return fmt.Errorf("wait for kind %s: %w", kind.Kind, err)
		}
	}
	return nil
}

// newRealBench is a namespace and a node of a real API server.
func newRealBench(t *testing.T) *bench {
	t.Helper()
	of := apiserver.New(t, "fencing-", nil)
	objects, err := dynamic.NewForConfig(apiserver.Admin())
	of.Must(err)
	b := &bench{T: t, Runner: NewRunner(of.Client, objects, without("")), namespace: of.Namespace,
		node: "node-of-" + of.Namespace, fence: types.UID("of-" + of.Namespace)}
	return b.prepare()
}

func TestAgentsOnAPIServer(t *testing.T) {
	for name, life := range lives {
		t.Run(name, func(t *testing.T) { life(newRealBench(t)) })
	}
}

// Another writer changes a NetworkFence between our read and our write.
func TestChangedNetworkFenceIsNotWritten(t *testing.T) {
	b := newRealBench(t)
	ask := b.ask(b.storage("class-" + b.namespace))
	b.must(b.Start(b.Context(), ask))
	of, _, err := networkFences{b.Runner}.find(b.Context(), ask)
	b.must(err)
	before := b.theFence(ask)
	b.carriesOut(ask, "Succeeded", "fencing operation successful")
	spec := map[string]any{"fenceState": "Unfenced"}
	if err := of.patch(b.Context(), ask, before, spec, nil); !apierrors.IsConflict(err) {
		b.Errorf("the error is %v", err)
	}
	if state := text(b.theFence(ask), "spec", "fenceState"); state != "Fenced" {
		b.Errorf("the state is %s", state)
	}
}

// An object is deleted and created again with the same name between our read and our deletion.
func TestRecreatedObjectIsNotDeleted(t *testing.T) {
	b := newRealBench(t)
	ask := b.ask(b.remedy())
	b.must(b.Start(b.Context(), ask))
	before := b.theRemediation()
	b.vanish(remediationVersion, "Remediation", b.node)
	b.must(b.Start(b.Context(), ask))
	err := b.resource(remediationVersion, "Remediation").Delete(b.Context(), b.node, only(before))
	if !apierrors.IsConflict(err) || b.theRemediation() == nil {
		b.Errorf("the error is %v", err)
	}
}

// A template may have affinities of its own.
func TestTemplateWithAffinities(t *testing.T) {
	b := newRealBench(t)
	b.template("own", func(s *v1.PodSpec) {
		s.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
				{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "a", Operator: v1.NodeSelectorOpExists}}}}}}}
	})
	b.must(b.Start(b.Context(), b.ask(b.job("own"))))
	b.must(b.Start(b.Context(), b.ask(b.job("own"), undo)))
	if all := b.theJobs(); len(all) != 2 || !strings.Contains(fmt.Sprint(all[0].Spec.Template.Spec.Affinity), b.node) {
		b.Errorf("%d Jobs", len(all))
	}
}
