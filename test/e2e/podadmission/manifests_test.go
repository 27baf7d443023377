//go:build unix

package podadmission

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// The manifests, in the order in which they are applied.
const (
	crdFile         = "pod-safety-crd.yaml"
	policiesFile    = "pod-safety-policies.yaml"
	holdFile        = "pod-safety-hold.yaml"
	holdWebhookFile = "pod-safety-hold-webhook.yaml"
)

// object is one object of a manifest.
type object struct{ *unstructured.Unstructured }

// paths are where the API server has each kind.
var paths = map[string]string{
	"CustomResourceDefinition":         "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
	"ValidatingAdmissionPolicy":        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
	"ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
	"MutatingAdmissionPolicy":          "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
	"MutatingAdmissionPolicyBinding":   "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
	"MutatingWebhookConfiguration":     "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
	"VolumeLock":                       "/apis/csi-reclaimer.io/v1alpha1/volumelocks",
}

func (o object) path() string { return path.Join(paths[o.GetKind()], o.GetName()) }

// manifest returns the objects of a file.
func manifest(t *testing.T, file string) []object {
	t.Helper()
	all, err := readManifest(file)
	must(t, err)
	return all
}

func readManifest(file string) ([]object, error) {
	root, err := process.ModuleRoot()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(root, "deploy", "manifests", file))
	if err != nil {
		return nil, err
	}
	return parseObjects(data)
}

func parse(t *testing.T, text string) []object {
	t.Helper()
	all, err := parseObjects([]byte(text))
	must(t, err)
	return all
}

func parseObjects(data []byte) (all []object, _ error) {
	for reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		o := object{&unstructured.Unstructured{}}
		if err == nil {
			err = yaml.Unmarshal(text, &o.Object)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
}

// apply does what kubectl apply --server-side does.
func apply(ctx context.Context, objects ...object) error {
	for _, o := range objects {
		text, err := o.MarshalJSON()
		if err != nil {
			return err
		}
		err = client.RESTClient().Patch(types.ApplyYAMLPatchType).AbsPath(o.path()).
			SetHeader("Accept", "application/json").Param("fieldManager", "test").Param("force", "true").
			Param("fieldValidation", metav1.FieldValidationStrict).Body(text).Do(ctx).Error()
		if err != nil {
			return fmt.Errorf("apply %s %q: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// remove deletes the objects in their order.
func remove(ctx context.Context, objects ...object) error {
	for _, o := range objects {
		err := client.RESTClient().Delete().AbsPath(o.path()).SetHeader("Accept", "application/json").Do(ctx).Error()
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s %q: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// removeAtEnd removes the objects when the test has ended.
func removeAtEnd(t *testing.T, objects ...object) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() { must(t, remove(ctx, objects...)) })
}

// live returns an object as it is, so that it can be created again.
func live(t *testing.T, o object) object {
	t.Helper()
	text, err := client.RESTClient().Get().AbsPath(o.path()).Do(t.Context()).Raw()
	must(t, err)
	now := object{&unstructured.Unstructured{}}
	must(t, now.UnmarshalJSON(text))
	now.SetResourceVersion("")
	now.SetUID("")
	now.SetManagedFields(nil)
	return now
}

// edit changes the JSON of an object.
func edit(t *testing.T, o object, change func(string) string) {
	t.Helper()
	text, err := o.MarshalJSON()
	must(t, err)
	must(t, o.UnmarshalJSON([]byte(change(string(text)))))
}
