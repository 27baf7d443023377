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
	"slices"
	"strings"
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
	files, err := filepath.Glob(inDeploy(t, "manifests", "*"))
	if err != nil || len(files) < 5 {
		t.Fatalf("found %d manifests: %v", len(files), err)
	}
	var all []document
	for _, file := range files {
		if filepath.Base(file) == kustomization {
			continue
		}
		data, err := os.ReadFile(file)
		must(t, err)
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

// manifestsOf returns the objects of files in this order, in lists with a semicolon between them. A list may end with
// a kind: then it has those alone.
func manifestsOf(t *testing.T, files string) (all []document) {
	t.Helper()
	there := manifests(t)
	for part := range strings.SplitSeq(files, ";") {
		names := strings.Fields(part)
		kind := ""
		if last := len(names) - 1; last >= 0 && !strings.HasSuffix(names[last], ".yaml") {
			kind, names = names[last], names[:last]
		}
		for _, name := range names {
			for _, d := range there {
				if d.file == name && (kind == "" || d.GetKind() == kind) {
					all = append(all, d)
				}
			}
		}
	}
	return all
}

// find returns the object of a kind with this name. Without a name, it is the only one of its kind.
func find(t *testing.T, all []document, kind, name string) document {
	t.Helper()
	found := slices.DeleteFunc(slices.Clone(all), func(d document) bool {
		return d.GetKind() != kind || name != "" && d.GetName() != name
	})
	if len(found) == 0 || name == "" && len(found) > 1 {
		t.Fatalf("%d objects %s %q", len(found), kind, name)
	}
	return found[0]
}

// findAs returns that object as T.
func findAs[T any](t *testing.T, all []document, kind, name string) *T {
	t.Helper()
	o := new(T)
	find(t, all, kind, name).into(t, o)
	return o
}

// install applies objects. namespace is for those without one.
func install(t *testing.T, namespace string, all []document) {
	t.Helper()
	for _, d := range all {
		if err := apply(patiently(t), d, d.text, namespace, false); err != nil {
			t.Fatalf("%s: %v", d, err)
		}
	}
}

// expectAccepted tries objects in a dry run, in which an unknown field is an error. Their namespaces are made.
func expectAccepted(t *testing.T, name string, all []document) {
	t.Helper()
	ctx := patiently(t)
	for _, d := range all {
		if namespace := d.GetNamespace(); namespace != "" {
			must(t, makeNamespace(ctx, namespace))
		}
		if err := apply(ctx, d, d.text, guardHome, true); err != nil {
			t.Errorf("%s: %s: %v", name, d, err)
		}
	}
}

// removeDocument deletes the object, if it exists.
func removeDocument(ctx context.Context, d document) error {
	path, err := pathOf(d, guardHome)
	if err == nil {
		err = client.RESTClient().Delete().AbsPath(path...).Do(ctx).Error()
	}
	return ignoreNotFound(err)
}

// installExample follows the head of the example, without the Deployment, which needs a kubelet.
func installExample(t *testing.T) (namespace string) {
	t.Helper()
	namespace = example(t).Namespace
	install(t, namespace, slices.DeleteFunc(manifestsOf(t, exampleFile+" rbac-owner.yaml"),
		func(d document) bool { return d.GetKind() == "Deployment" }))
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
	return findAs[appsv1.Deployment](t, manifestsOf(t, exampleFile), "Deployment", "")
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
