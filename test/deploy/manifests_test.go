//go:build unix

package deploy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/restmapper"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

const (
	exampleFile = "example.yaml"
	// kustomization is the name of a file that lists others.
	kustomization = "kustomization.yaml"
)

// document is one object of a manifest, and the text that it was read from.
type document struct {
	*unstructured.Unstructured
	file string
	text []byte
}

func (d document) String() string { return fmt.Sprintf("%s: %s %q", d.file, d.GetKind(), d.GetName()) }

// manifests returns the objects of every file, in the order in which they are written.
func manifests(t *testing.T) []document {
	t.Helper()
	root := process.RootForTest(t)
	files, err := filepath.Glob(filepath.Join(root, "deploy", "manifests", "*"))
	if err != nil || len(files) < 5 {
		t.Fatalf("found %d manifests: %v", len(files), err)
	}
	var all []document
	for _, file := range files {
		if filepath.Base(file) == kustomization {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, documents(t, filepath.Base(file), data)...)
	}
	return all
}

// documents returns the objects of a file.
func documents(t *testing.T, file string, data []byte) (all []document) {
	t.Helper()
	for reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		d := document{Unstructured: &unstructured.Unstructured{}, file: file, text: text}
		if err := yaml.Unmarshal(text, &d.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(d.Object) > 0 { // else it has comments alone
			all = append(all, d)
		}
	}
}

// apply applies the text as kubectl apply --server-side --validate=strict does. namespace is for objects without one.
func apply(ctx context.Context, d document, text []byte, namespace string, dryRun bool) error {
	path, err := pathOf(d, namespace)
	if err != nil {
		return err
	}
	request := client.RESTClient().Patch(types.ApplyYAMLPatchType).
		AbsPath(path...).
		SetHeader("Accept", "application/json").
		Param("fieldManager", "test").Param("fieldValidation", metav1.FieldValidationStrict)
	if dryRun {
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	return request.Body(text).Do(ctx).Error()
}

// pathOf is where the API server has the object.
func pathOf(d document, namespace string) ([]string, error) {
	groups, err := restmapper.GetAPIGroupResources(client.Discovery())
	if err != nil {
		return nil, err
	}
	kind := d.GroupVersionKind()
	mapping, err := restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	path := []string{"/apis", kind.Group, kind.Version}
	if kind.Group == "" {
		path = []string{"/api", kind.Version}
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if d.GetNamespace() != "" {
			namespace = d.GetNamespace()
		}
		path = append(path, "namespaces", namespace)
	}
	return append(path, mapping.Resource.Resource, d.GetName()), nil
}

// install follows the head of the example, without the Deployment, which needs a kubelet.
func install(t *testing.T) (namespace string) {
	t.Helper()
	ctx := patiently(t)
	namespace = example(t).Namespace
	for _, file := range []string{exampleFile, "rbac-owner.yaml"} {
		for _, d := range manifests(t) {
			if d.file != file || d.GetKind() == "Deployment" {
				continue
			}
			if err := apply(ctx, d, d.text, namespace, false); err != nil {
				t.Fatalf("%s: %v", d, err)
			}
		}
	}
	return namespace
}

// makeNamespace makes a namespace unless it is there.
func makeNamespace(ctx context.Context, name string) error {
	_, err := client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// example returns the example's Deployment.
func example(t *testing.T) *appsv1.Deployment {
	t.Helper()
	deployment := &appsv1.Deployment{}
	exampleObject(t, "Deployment").into(t, deployment)
	return deployment
}

// exampleObject returns the example's only object of a kind.
func exampleObject(t *testing.T, kind string) document {
	t.Helper()
	var found []document
	for _, d := range manifests(t) {
		if d.file == exampleFile && d.GetKind() == kind {
			found = append(found, d)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s has %d objects of kind %s, want 1", exampleFile, len(found), kind)
	}
	return found[0]
}

func (d document) into(t *testing.T, o any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object, o); err != nil {
		t.Fatalf("%s: %v", d, err)
	}
}

// rules returns the rules of a Role or ClusterRole, nil for any other kind.
func (d document) rules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	if kind := d.GetKind(); kind != "Role" && kind != "ClusterRole" {
		return nil
	}
	var role rbacv1.Role // a ClusterRole has the same rules, and nothing else here
	d.into(t, &role)
	return role.Rules
}
