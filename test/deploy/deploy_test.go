//go:build unix

package deploy

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	shipped "github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

const (
	secretsFile = "rbac-secrets-example.yaml"
	// certificateFile has the permissions for the certificate of volume-guard's webhooks.
	certificateFile = "rbac-volume-guard-webhooks.yaml"
	accountKind     = rbacv1.ServiceAccountKind
)

// TestManifestsAreAccepted applies each object in a dry run with strict field validation.
func TestManifestsAreAccepted(t *testing.T) {
	ctx := patiently(t)
	if err := shipped.Apply(ctx, cluster.Admin(), shipped.NodeFencingCRD); err != nil { // an example has one of its kinds
		t.Fatal(err)
	}
	for _, d := range manifests(t) {
		if namespace := d.GetNamespace(); namespace != "" {
			must(t, makeNamespace(ctx, namespace))
		}
		if err := apply(ctx, d, d.text, metav1.NamespaceDefault, true); err != nil {
			t.Errorf("%s: %v", d, err)
		}
		for what, line := range map[string]string{
			"an unknown field": "nobodyKnowsThis: true\n",
			"a repeated field": "kind: " + d.GetKind() + "\n",
		} {
			if err := apply(ctx, d, slices.Concat(bytes.TrimRight(d.text, "\n"), []byte("\n"+line)), metav1.NamespaceDefault,
				true); err == nil {
				t.Errorf("%s: accepted with %s: this test shows nothing", d, what)
			}
		}
	}
}

func TestNoWildcardRules(t *testing.T) {
	granting := 0
	for _, d := range manifests(t) {
		for _, rule := range d.rules(t) {
			granting++
			for _, word := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.ResourceNames,
				rule.NonResourceURLs) {
				if strings.Contains(word, "*") {
					t.Errorf("%s: a wildcard in %+v", d, rule)
				}
			}
			if !slices.ContainsFunc(rule.Resources, func(r string) bool { return strings.HasPrefix(r, "secrets") }) {
				continue
			}
			named := d.GetKind() == "Role" && len(rule.ResourceNames) > 0
			read := d.file == secretsFile && named && d.GetNamespace() != "" && slices.Equal(rule.Verbs, []string{"get"})
			// The webhooks' own certificate. A rule cannot name the Secret before its creation.
			kept := d.file == certificateFile && d.GetKind() == "Role" &&
				(named && slices.Equal(rule.Verbs, []string{"get", "patch"}) || slices.Equal(rule.Verbs, []string{"create"}))
			if !read && !kept {
				t.Errorf("%s: only %s may grant Secrets, to be read, by name, in one namespace, and %s one to be kept: %+v", d,
					secretsFile, certificateFile, rule)
			}
		}
	}
	if granting == 0 {
		t.Error("no rules were found: this test shows nothing")
	}
}

// TestRolesGrantExpectedPermissions checks the differences between the roles. The end-to-end tests show that the
// programs use all of their permissions and need no others.
func TestRolesGrantExpectedPermissions(t *testing.T) {
	for role, want := range map[string][]string{
		"owner": {"get", "list", "watch", "create", "patch", "delete"},
		// the provisioner beside deletes PVs; the companion finishes an owner's entries in flight
		"companion": {"get", "list", "watch", "patch", "get", "create"},
		// no PV is written, but the observer finishes an owner's entries in flight
		"observer": {"list", "watch", "get", "create"},
	} {
		cluster, namespaced, err := rbac.Rules(role)
		must(t, err)
		var verbs []string
		for _, rule := range cluster {
			if slices.Contains(rule.Resources, "persistentvolumes") {
				verbs = append(verbs, rule.Verbs...)
			}
		}
		if !slices.Equal(verbs, want) {
			t.Errorf("%s may %q PVs, want %q", role, verbs, want)
		}
		if len(namespaced) != 1 || !slices.Equal(namespaced[0].Resources, []string{"leases"}) {
			t.Errorf("%s may in the driver's namespace: %+v, want Leases alone", role, namespaced)
		}
	}
	if _, _, err := rbac.Rules("nobody"); err == nil {
		t.Error("rules for a role that is none")
	}
}

// TestBindingsReferToExistingObjects is needed because the API server accepts a binding of a missing role or account.
func TestBindingsReferToExistingObjects(t *testing.T) {
	all := manifests(t)
	there := func(kind, name string) bool {
		return slices.ContainsFunc(all, func(d document) bool { return d.GetKind() == kind && d.GetName() == name })
	}
	bindings := 0
	for _, d := range all {
		if kind := d.GetKind(); kind != "RoleBinding" && kind != "ClusterRoleBinding" {
			continue
		}
		bindings++
		var binding rbacv1.RoleBinding
		d.into(t, &binding)
		if !there(binding.RoleRef.Kind, binding.RoleRef.Name) {
			t.Errorf("%s binds %s %q, which no manifest has", d, binding.RoleRef.Kind, binding.RoleRef.Name)
		}
		for _, subject := range binding.Subjects {
			// The account of the Secrets' example is the reader's own.
			if d.file != secretsFile && (subject.Kind != accountKind || !there(accountKind, subject.Name)) {
				t.Errorf("%s binds to %s %q, which no manifest has", d, subject.Kind, subject.Name)
			}
		}
	}
	if bindings == 0 {
		t.Error("no bindings were found: this test shows nothing")
	}
}

// hearingClient returns a client, and the warnings that the API server gives it.
func hearingClient(t *testing.T) (*kubernetes.Clientset, *suite.Warnings) {
	t.Helper()
	heard := &suite.Warnings{}
	config := rest.CopyConfig(cluster.Admin())
	config.WarningHandler = heard
	of, err := kubernetes.NewForConfig(config)
	must(t, err)
	return of, heard
}

// TestDeploymentMeetsRestrictedPodSecurity creates the Deployment's pod in the example's namespace, which enforces the
// level restricted and warns of violations.
func TestDeploymentMeetsRestrictedPodSecurity(t *testing.T) {
	ctx := patiently(t)
	namespace := installExample(t)
	client, heard := hearingClient(t)
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	create := func(spec v1.PodSpec) error {
		_, err := client.CoreV1().Pods(namespace).Create(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: spec},
			dryRun)
		return err
	}
	if err := create(example(t).Spec.Template.Spec); err != nil {
		t.Errorf("the pod is refused: %v", err)
	}
	if _, err := client.AppsV1().Deployments(namespace).Create(ctx, example(t), dryRun); err != nil {
		t.Errorf("the Deployment is refused: %v", err)
	}
	if said := heard.Take(); len(said) != 0 {
		t.Errorf("the API server warns: %q", said)
	}

	// The counter-check: without a security context, the API server refuses the pod, and warns of the Deployment, on which
	// nothing is enforced. Its admission observes the labels of the namespace with a watch of its own.
	bare := example(t).Spec.Template.Spec
	bare.SecurityContext = nil
	until(t, "a pod without a security context is refused", func() bool { return create(bare) != nil })
	heard.Take()
	careless := map[string]func(*v1.PodSpec){
		"the pod's": func(spec *v1.PodSpec) { spec.SecurityContext = nil },
	}
	for i, container := range example(t).Spec.Template.Spec.Containers {
		careless[container.Name+"'s"] = func(spec *v1.PodSpec) { spec.Containers[i].SecurityContext = nil }
	}
	for whose, forget := range careless {
		deployment := example(t)
		forget(&deployment.Spec.Template.Spec)
		if err := create(deployment.Spec.Template.Spec); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(),
			"PodSecurity") {
			t.Errorf("without %s security context: %v, want it refused", whose, err)
		}
		if _, err := client.AppsV1().Deployments(namespace).Create(ctx, deployment, dryRun); err != nil {
			t.Errorf("Deployment without %s security context: %v", whose, err)
		}
		if said := heard.Take(); len(said) == 0 {
			t.Errorf("Deployment without %s security context: no warning was heard", whose)
		}
	}
}
