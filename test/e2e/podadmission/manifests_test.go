//go:build unix

package podadmission

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
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
	root, err := process.ModuleRoot()
	must(t, err)
	data, err := os.ReadFile(filepath.Join(root, "deploy", "manifests", file))
	must(t, err)
	return parse(t, data)
}

func parse(t *testing.T, data []byte) (all []object) {
	t.Helper()
	for reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		must(t, err)
		o := object{&unstructured.Unstructured{}}
		must(t, yaml.Unmarshal(text, &o.Object))
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
	t.Cleanup(func() {
		if err := remove(context.WithoutCancel(t.Context()), objects...); err != nil {
			t.Error(err)
		}
	})
}

// install applies what an operator applies for this version, and waits until it is in force.
func install(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	crd, policies := manifest(t, crdFile), manifest(t, policiesFile)
	removeAtEnd(t, crd...) // after the policies
	removeAtEnd(t, policies...)
	must(t, apply(ctx, crd...))
	waitEstablished(t)
	must(t, apply(ctx, policies...))
	if cluster.Version() == controlplane.V1_36 {
		hold := manifest(t, holdFile)
		removeAtEnd(t, hold...)
		must(t, apply(ctx, hold...))
	} else {
		installWebhook(t)
	}
	waitHolds(t)
}

// installWebhook starts volume-guard, and points the API server there, which finds no Service on this machine.
func installWebhook(t *testing.T) {
	t.Helper()
	address := startVolumeGuard(t)
	hooks := manifest(t, holdWebhookFile)
	removeAtEnd(t, hooks...)
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	edit(t, hooks[0], func(text string) string {
		const service = `"service":{"name":"volume-guard","namespace":"csi-reclaimer","path":"/admit/pod-hold","port":443}`
		if !strings.Contains(text, service) {
			t.Fatalf("no %s in %s", service, text)
		}
		return strings.ReplaceAll(text, service, `"url":"https://localhost:`+port+`/admit/pod-hold"`)
	})
	must(t, apply(t.Context(), hooks...))
}

// edit changes the JSON of an object.
func edit(t *testing.T, o object, change func(string) string) {
	t.Helper()
	text, err := o.MarshalJSON()
	must(t, err)
	must(t, o.UnmarshalJSON([]byte(change(string(text)))))
}

func waitEstablished(t *testing.T) {
	t.Helper()
	until(t, "VolumeLocks to be served", func() bool {
		return client.RESTClient().Get().AbsPath(paths["VolumeLock"]).Do(t.Context()).Error() == nil
	})
}
