//go:build unix

package deploy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/sidecar"
)

// manifests returns the objects of every file, by the file's name.
func manifests(t *testing.T) map[string][]*unstructured.Unstructured {
	t.Helper()
	root, err := process.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "deploy", "manifests", "*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("found %d manifests: %v", len(files), err)
	}
	all := map[string][]*unstructured.Unstructured{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
		for {
			o := &unstructured.Unstructured{}
			err := decoder.Decode(o)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			all[filepath.Base(file)] = append(all[filepath.Base(file)], o)
		}
	}
	return all
}

// warnings keeps what the API server warns of.
type warnings struct {
	mu   sync.Mutex
	said []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

// TestEveryManifestIsAcceptedAsItIs creates each object in a dry run in which an unknown or
// repeated field is an error.
func TestEveryManifestIsAcceptedAsItIs(t *testing.T) {
	ctx, config := start(t)
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(discovery.NewDiscoveryClient(client.Discovery().RESTClient()))
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	made := map[string]bool{}
	for file, list := range manifests(t) {
		for _, o := range list {
			if ns := o.GetNamespace(); ns != "" && !made[ns] {
				made[ns] = true
				if _, err := client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			kind := o.GroupVersionKind()
			mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			var to dynamic.ResourceInterface = objects.Resource(mapping.Resource)
			if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
				namespace := o.GetNamespace()
				if namespace == "" {
					namespace = "default"
				}
				to = objects.Resource(mapping.Resource).Namespace(namespace)
			}
			_, err = to.Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
			if err != nil && (o.GetKind() != "Namespace" || !apierrors.IsAlreadyExists(err)) {
				t.Errorf("%s: %s %q: %v", file, o.GetKind(), o.GetName(), err)
			}
		}
	}
}

func TestNoRuleGrantsMoreThanItNames(t *testing.T) {
	for file, list := range manifests(t) {
		for _, o := range list {
			var role rbacv1.ClusterRole // a Role has the same rules
			if kind := o.GetKind(); kind != "ClusterRole" && kind != "Role" {
				continue
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
				t.Fatal(err)
			}
			for _, rule := range role.Rules {
				for _, word := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs) {
					if strings.Contains(word, "*") {
						t.Errorf("%s: %s: a wildcard in %+v", file, o.GetName(), rule)
					}
				}
				if slices.Contains(rule.Resources, "secrets") && (o.GetKind() != "Role" || len(rule.ResourceNames) == 0) {
					t.Errorf("%s: %s: Secrets that are not named: %+v", file, o.GetName(), rule)
				}
			}
		}
	}
}

// TestTheDeploymentRunsUnderTheStrictestPodSecurity creates its pod in a namespace that enforces
// and warns of level restricted.
func TestTheDeploymentRunsUnderTheStrictestPodSecurity(t *testing.T) {
	ctx, config := start(t)
	heard := &warnings{}
	config.WarningHandler = heard
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range manifests(t)["example.yaml"] {
		if o.GetKind() != "Namespace" {
			continue
		}
		var namespace v1.Namespace
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &namespace); err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().Namespaces().Create(ctx, &namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	deployment := example(t)
	if _, err := client.CoreV1().ServiceAccounts(deployment.Namespace).Create(ctx,
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: deployment.Spec.Template.Spec.ServiceAccountName}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create := func(spec v1.PodSpec) error {
		_, err := client.CoreV1().Pods(deployment.Namespace).Create(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: spec},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	if err := create(deployment.Spec.Template.Spec); err != nil {
		t.Errorf("the pod is refused: %v", err)
	}
	if len(heard.said) != 0 {
		t.Errorf("the API server warns: %q", heard.said)
	}
	for i := range deployment.Spec.Template.Spec.Containers {
		careless := *deployment.Spec.Template.Spec.DeepCopy()
		careless.Containers[i].SecurityContext = nil
		if err := create(careless); !apierrors.IsForbidden(err) {
			t.Errorf("without the security context of container %d: %v, want it refused, or this test shows nothing", i, err)
		}
	}
}

// TestTheDeploymentsFlagsAreKnown runs csi-reclaimer with them; it ends at once where there is
// no cluster, and before that where a flag is wrong.
func TestTheDeploymentsFlagsAreKnown(t *testing.T) {
	binary, err := sidecar.Build(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	for _, container := range example(t).Spec.Template.Spec.Containers {
		if container.Name != "csi-reclaimer" {
			continue
		}
		p, err := process.Start(process.Command{Path: binary, Args: container.Args})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		select {
		case <-p.Done():
		case <-time.After(time.Minute):
			t.Fatal("csi-reclaimer runs although there is no cluster")
		}
		if log := p.LogTail(20); !strings.Contains(log, "find the cluster") {
			t.Errorf("it ended for another reason than the missing cluster:\n%s", log)
		}
		return
	}
	t.Error("no container csi-reclaimer")
}

func example(t *testing.T) *appsv1.Deployment {
	t.Helper()
	for _, o := range manifests(t)["example.yaml"] {
		if o.GetKind() == "Deployment" {
			deployment := &appsv1.Deployment{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, deployment); err != nil {
				t.Fatal(err)
			}
			return deployment
		}
	}
	t.Fatal("no Deployment in example.yaml")
	return nil
}

func start(t *testing.T) (context.Context, *rest.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	cluster, err := controlplane.Start(ctx, controlplane.V1_36, controlplane.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return ctx, cluster.Admin()
}
