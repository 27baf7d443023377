// Package manifests applies files of deploy/manifests, as an operator does.
package manifests

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// The manifests of pod safety.
const (
	PodSafetyCRD      = "pod-safety-crd.yaml"
	PodSafetyPolicies = "pod-safety-policies.yaml"
	PodSafetyHold     = "pod-safety-hold.yaml"
	// PodSafetyHoldWebhook is for API servers before 1.36, in place of PodSafetyHold.
	PodSafetyHoldWebhook = "pod-safety-hold-webhook.yaml"
)

// The manifests of single-node.
const (
	SingleNodePolicies = "single-node-policies.yaml"
	SingleNodeGate     = "single-node-gate.yaml"
	// SingleNodeGateWebhook is for API servers before 1.36, in place of SingleNodeGate.
	SingleNodeGateWebhook = "single-node-gate-webhook.yaml"
)

// The manifests of node fencing.
const (
	NodeFencingCRD    = "node-fencing-crd.yaml"
	NodeFencingPolicy = "node-fencing-policy.yaml"
	NodeFencingRoles  = "node-fencing-roles.yaml"
)

// NodeFencing returns the manifests of node fencing in the order in which they are applied.
func NodeFencing() []string { return []string{NodeFencingCRD, NodeFencingPolicy, NodeFencingRoles} }

// PodSafety returns the manifests of pod safety that an API server of this version takes without a webhook, in the
// order in which they are applied. Before 1.36 none adds the finalizer to new pods.
func PodSafety(v controlplane.Version) []string {
	if v.Before(controlplane.V1_36) {
		return []string{PodSafetyCRD, PodSafetyPolicies}
	}
	return []string{PodSafetyCRD, PodSafetyPolicies, PodSafetyHold}
}

// SingleNode returns the manifests of single-node that an API server of this version takes without a webhook, in the
// order in which they are applied. Before 1.36 none adds the gate to new pods, and a pod with a claim that is created
// without it is refused.
func SingleNode(v controlplane.Version) []string {
	if v.Before(controlplane.V1_36) {
		return []string{SingleNodePolicies}
	}
	return []string{SingleNodePolicies, SingleNodeGate}
}

// ApplyWebhooks applies files of webhook configurations. A program on this machine serves the webhooks, at a port of
// localhost, and not behind a Service. Fields that the API server does not know are errors.
func ApplyWebhooks(ctx context.Context, config *rest.Config, port string, files ...string) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	resource := admission(client, "mutatingwebhookconfigurations")
	for _, file := range files {
		objects, err := Read(file)
		if err != nil {
			return err
		}
		for _, o := range objects {
			if err := toLocalhost(o, port); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			text, err := o.MarshalJSON()
			if err == nil {
				_, err = resource.Patch(ctx, o.GetName(), types.ApplyYAMLPatchType, text, metav1.PatchOptions{
					FieldManager: "operator", Force: ptr.To(true), FieldValidation: metav1.FieldValidationStrict})
			}
			if err != nil {
				return fmt.Errorf("apply %s: %s %q: %w", file, o.GetKind(), o.GetName(), err)
			}
		}
	}
	return nil
}

// toLocalhost points the webhooks of a configuration to a port of this machine.
func toLocalhost(o *unstructured.Unstructured, port string) error {
	list, _, err := unstructured.NestedSlice(o.Object, "webhooks")
	if err != nil {
		return err
	}
	for _, hook := range list {
		hook, _ := hook.(map[string]any)
		path, _, err := unstructured.NestedString(hook, "clientConfig", "service", "path")
		if err != nil {
			return err
		}
		hook["clientConfig"] = map[string]any{"url": "https://localhost:" + port + path}
		hook["timeoutSeconds"] = int64(30) // the longest possible, for a slow machine
	}
	return unstructured.SetNestedSlice(o.Object, list, "webhooks")
}

// Apply applies the objects of files of deploy/manifests in their order, by server-side apply. It returns once the
// kinds that they define are served, and their ValidatingAdmissionPolicies enforced.
func Apply(ctx context.Context, config *rest.Config, files ...string) error {
	var all []*unstructured.Unstructured
	for _, file := range files {
		objects, err := Read(file)
		if err != nil {
			return err
		}
		all = append(all, objects...)
	}
	return ApplyObjects(ctx, config, all...)
}

// ApplyObjects is Apply for objects from elsewhere.
func ApplyObjects(ctx context.Context, config *rest.Config, objects ...*unstructured.Unstructured) error {
	return ApplyIn(ctx, config, metav1.NamespaceDefault, objects...)
}

// ApplyIn is ApplyObjects with a namespace for objects that name none.
func ApplyIn(ctx context.Context, config *rest.Config, namespace string,
	objects ...*unstructured.Unstructured) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kinds))
	policies := false
	for _, o := range objects {
		if err := apply(ctx, client, mapper, namespace, o); err != nil {
			return fmt.Errorf("apply %s %q: %w", o.GetKind(), o.GetName(), err)
		}
		policies = policies || IsPolicy(o)
	}
	if !policies {
		return nil
	}
	return WaitPolicies(ctx, config)
}

func apply(ctx context.Context, client dynamic.Interface, mapper meta.ResettableRESTMapper,
	namespace string, o *unstructured.Unstructured) error {
	mapping, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
	if err != nil {
		return err
	}
	var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = client.Resource(mapping.Resource).Namespace(cmp.Or(o.GetNamespace(), namespace))
	}
	as := metav1.ApplyOptions{FieldManager: "operator", Force: true}
	if _, err := resource.Apply(ctx, o.GetName(), o, as); err != nil {
		return err
	}
	if o.GetKind() != "CustomResourceDefinition" {
		return nil
	}
	defer mapper.Reset()
	return waitServed(ctx, client, o)
}

// waitServed waits until the kind of a CustomResourceDefinition is served.
func waitServed(ctx context.Context, client dynamic.Interface, crd *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	first, _ := versions[0].(map[string]any)
	version, _, _ := unstructured.NestedString(first, "name")
	kind := schema.GroupVersionResource{Group: group, Version: version, Resource: plural}
	var last error
	served := func(ctx context.Context) (bool, error) {
		_, last = client.Resource(kind).List(ctx, metav1.ListOptions{Limit: 1})
		return last == nil, nil
	}
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, served)
	if err != nil {
		return fmt.Errorf("wait until %s are served: %w: %w", kind, err, last)
	}
	return nil
}

// Read returns the objects of a file of deploy/manifests.
func Read(file string) ([]*unstructured.Unstructured, error) {
	root, err := process.ModuleRoot()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(root, "deploy", "manifests", file))
	if err != nil {
		return nil, err
	}
	objects, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return objects, nil
}

// Parse returns the objects of a manifest.
func Parse(data []byte) (objects []*unstructured.Unstructured, _ error) {
	for reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		o := &unstructured.Unstructured{}
		if err == nil {
			err = yaml.Unmarshal(text, &o.Object)
		}
		if err != nil {
			return nil, err
		}
		if len(o.Object) > 0 { // a part of comments alone
			objects = append(objects, o)
		}
	}
}

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
