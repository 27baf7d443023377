//go:build unix

package podadmission

import (
	"context"
	"fmt"
	"path"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
)

// The manifests, in the order in which they are applied.
const (
	crdFile         = manifests.PodSafetyCRD
	policiesFile    = manifests.PodSafetyPolicies
	holdFile        = manifests.PodSafetyHold
	holdWebhookFile = manifests.PodSafetyHoldWebhook
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

func readManifest(file string) ([]object, error) { return asObjects(manifests.Read(file)) }

func parse(t *testing.T, text string) []object {
	t.Helper()
	all, err := asObjects(manifests.Parse([]byte(text)))
	must(t, err)
	return all
}

func asObjects(from []*unstructured.Unstructured, err error) (all []object, _ error) {
	for _, o := range from {
		all = append(all, object{o})
	}
	return all, err
}

// apply acts as kubectl apply --server-side.
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

// live returns the current object, so that it can be created again.
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
