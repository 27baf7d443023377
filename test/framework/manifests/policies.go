package manifests

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// WaitPolicies waits until a single API server enforces the ValidatingAdmissionPolicies and bindings that were written
// before. It observes MutatingAdmissionPolicies and the parameters of policies apart.
//
// The API server compiles all policies of its caches at once, about each second, and a cache has the order of the
// writes. So a canary, a policy that is written last, is enforced last or together with the others. A probe of one
// policy shows nothing about later ones.
func WaitPolicies(ctx context.Context, config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	name := "canary-" + rand.String(8)
	policies, binding := admission(client, "validatingadmissionpolicies"), canaryBinding(name)
	bindings := admission(client, "validatingadmissionpolicybindings")
	if _, err := policies.Create(ctx, canary(name), metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := bindings.Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	probe := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"canary": name}}}}
	configMaps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).
		Namespace(metav1.NamespaceDefault)
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			_, err := configMaps.Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+name+"'"), nil
		})
	if err != nil {
		return fmt.Errorf("wait until the API server enforces its admission policies: %w", err)
	}
	if err := bindings.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	// The compilation that leaves the canary out began when all policies were in the cache. The one before it may have
	// found the bindings before their policies.
	if err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			_, err := configMaps.Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err == nil, nil
		}); err != nil {
		return fmt.Errorf("wait until the API server no longer enforces the canary: %w", err)
	}
	return policies.Delete(ctx, name, metav1.DeleteOptions{})
}

// admission returns a resource of the group of the policies.
func admission(client dynamic.Interface, resource string) dynamic.ResourceInterface {
	return client.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1",
		Resource: resource})
}

// canary returns a policy that refuses ConfigMaps with a label that has its name.
func canary(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"matchConstraints": map[string]any{
				"objectSelector": map[string]any{"matchLabels": map[string]any{"canary": name}},
				"resourceRules": []any{map[string]any{"apiGroups": []any{""}, "apiVersions": []any{"v1"},
					"operations": []any{"CREATE"}, "resources": []any{"configmaps"}}},
			},
			"validations": []any{map[string]any{"expression": "false"}},
		},
	}}
}

func canaryBinding(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"policyName": name, "validationActions": []any{"Deny"}},
	}}
}

// IsPolicy reports whether an object is a ValidatingAdmissionPolicy or the binding of one.
func IsPolicy(o *unstructured.Unstructured) bool {
	return strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy")
}
