//go:build unix

package deploy

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// certManagerModule has the kinds of cert-manager, of which nothing is compiled.
const certManagerModule, certManagerGroup = "github.com/cert-manager/cert-manager@v1.18.2", "cert-manager.io"

// TestCertificateOfOthers has volume-guard read the Secret that the chart names, and issue nothing.
func TestCertificateOfOthers(t *testing.T) {
	for name, secret := range map[string]string{"with cert-manager": guard + "-certificate", "with a certificate": "tls"} {
		all := render(t, guardValues()[name]...)
		args := argsOf(t, all, guard)
		for _, want := range []string{"--webhook-issue-certificate=false", "--webhook-secret=" + secret} {
			if !slices.Contains(args, want) {
				t.Errorf("%s: no %s in %q", name, want, args)
			}
		}
		if rules := find(t, all, "Role", "volume-guard-webhooks").rules(t); len(rules) != 1 ||
			!slices.Equal(rules[0].ResourceNames, []string{secret}) || !slices.Equal(rules[0].Verbs, []string{"get"}) {
			t.Errorf("%s: volume-guard may %+v", name, rules)
		}
	}
}

// TestManifestsUseCertificateOfOthers: with the manifests, changed as the page says, volume-guard has the permissions
// and arguments of the chart.
func TestManifestsUseCertificateOfOthers(t *testing.T) {
	const secret, role = "webhook-tls", "volume-guard-webhooks"
	page := string(read(t, "..", "docs", "how-to", "protect-at-once.md"))
	if !strings.Contains(page, "such as `"+secret+"`") {
		t.Errorf("the page names no Secret %q", secret)
	}
	all := render(t, "webhooks.pods=true", "webhooks.certificate.existingSecret="+secret)
	for _, arg := range argsOf(t, all, guard) {
		issues := strings.HasPrefix(arg, "--webhook-issue-certificate") || strings.HasPrefix(arg, "--webhook-secret")
		if issues && !strings.Contains(page, "`"+arg+"`") {
			t.Errorf("the page does not name %s", arg)
		}
	}
	var rules []rbacv1.PolicyRule
	for _, rule := range find(t, manifestsOf(t, certificateFile), "Role", role).rules(t) {
		if slices.Contains(rule.Verbs, "create") {
			continue
		}
		rule.Verbs = slices.DeleteFunc(rule.Verbs, func(verb string) bool { return verb == "patch" })
		for i, name := range rule.ResourceNames {
			if name == guard+"-webhooks" {
				rule.ResourceNames[i] = secret
			}
		}
		rules = append(rules, rule)
	}
	if want := find(t, all, "Role", role).rules(t); !reflect.DeepEqual(rules, want) {
		t.Errorf("the manifest permits %s, and the chart %s", pretty(rules), pretty(want))
	}
}

// TestCertManagerIssuesForService: the certificate is for the Service that the API server calls, and in the Secret that
// volume-guard reads. cert-manager's kind accepts it, and refuses a field that it does not know.
func TestCertManagerIssuesForService(t *testing.T) {
	all := render(t, append(guardValues()["with cert-manager"], "fullnameOverride=keeper",
		"webhooks.certificate.certManager.issuerRef.kind=ClusterIssuer")...)
	certificate := find(t, all, "Certificate", "keeper")
	service := findAs[v1.Service](t, all, "Service", "keeper")
	names, _, _ := unstructured.NestedStringSlice(certificate.Object, "spec", "dnsNames")
	if want := []string{service.Name + "." + service.Namespace + ".svc"}; !slices.Equal(names, want) {
		t.Errorf("it is for %q, want %q", names, want)
	}
	secret, _, _ := unstructured.NestedString(certificate.Object, "spec", "secretName")
	args := argsOf(t, all, "keeper")
	if !slices.Contains(args, "--webhook-secret="+secret) {
		t.Errorf("it is in Secret %q, and the arguments are %q", secret, args)
	}
	makeGuardHome(t)
	installCertificates(t)
	ctx := patiently(t)
	if err := applyServed(t, certificate); err != nil {
		t.Error(err)
	}
	wrong := bytes.ReplaceAll(certificate.text, []byte("dnsNames:"), []byte("dnsName:"))
	if err := apply(ctx, certificate, wrong, guardHome, true); err == nil {
		t.Error("another field is accepted")
	}
}

// installCertificates installs the kind Certificate. The labels of the file are templates of cert-manager's chart.
func installCertificates(t *testing.T) {
	t.Helper()
	module, err := process.ModuleDir(patiently(t), certManagerModule)
	must(t, err)
	text, err := os.ReadFile(filepath.Join(module, "deploy", "crds", "crd-certificates.yaml"))
	must(t, err)
	for _, crd := range documents(t, certManagerModule, text) {
		crd.SetLabels(nil)
		cleaned, err := crd.MarshalJSON()
		must(t, err)
		installKind(t, crd, cleaned)
	}
}
