package admission

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// The tests here also cover the manifests that users apply.
func TestManifestsMatchCode(t *testing.T) {
	const namespace = "csi-reclaimer"
	service := Service{Namespace: namespace, Name: "volume-guard"}
	one := Drivers{volume.RoleOwner: {driver}}
	for file, objects := range map[string][]any{
		"admission-policy.yaml":      {Policy(volume.RoleOwner, driver), Binding(volume.RoleOwner)},
		"volume-guard-webhooks.yaml": {nil, PVWebhooks(service, one), PodWebhooks(service)}, // after the Service
	} {
		data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "manifests", file))
		if err != nil {
			t.Fatal(err)
		}
		reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for _, want := range objects {
			text, err := reader.Read()
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				continue
			}
			var got, wanted map[string]any
			if err := yaml.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			wire, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal(wire, &wanted); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wanted, got); diff != "" {
				t.Errorf("%s differs (-code +manifest):\n%s", file, diff)
			}
		}
	}
}

// The failure of any webhook or policy admits the write after a bounded wait.
func TestFailuresAdmitWrites(t *testing.T) {
	service := Service{Namespace: "ns", Name: "guard"}
	policies := map[string]*admissionv1.FailurePolicyType{}
	timeouts := map[string]*int32{}
	for _, role := range roles() {
		policies[Policy(role).Name] = Policy(role).Spec.FailurePolicy
		if b := Binding(role); b.Spec.ParamRef != nil || b.Spec.PolicyName != Policy(role).Name ||
			Policy(role).Spec.ParamKind != nil {
			t.Errorf("%v: the binding %+v", role, b.Spec)
		}
	}
	for _, hook := range PVWebhooks(service, known).Webhooks {
		policies[hook.Name], timeouts[hook.Name] = hook.FailurePolicy, hook.TimeoutSeconds
	}
	for _, hook := range PodWebhooks(service).Webhooks {
		policies[hook.Name], timeouts[hook.Name] = hook.FailurePolicy, hook.TimeoutSeconds
	}
	if len(policies) != 6 {
		t.Fatalf("%d were read", len(policies))
	}
	for name, policy := range policies {
		if policy == nil || *policy != admissionv1.Ignore {
			t.Errorf("%s: failure policy %v", name, policy)
		}
	}
	for name, seconds := range timeouts {
		if seconds == nil || *seconds > 5 {
			t.Errorf("%s: timeout %v", name, seconds)
		}
	}
	if hooks := PVWebhooks(service, Drivers{volume.RoleOwner: nil}).Webhooks; len(hooks) != 0 {
		t.Errorf("without drivers the API server asks %+v", hooks)
	}
	port := PVWebhooks(service, known).Webhooks[0].ClientConfig.Service.Port
	if port == nil || *port != 443 {
		t.Errorf("port %v", port)
	}
}

// This holds for any names: no name ends its literal.
func TestDriversRoundTrip(t *testing.T) {
	for sentence, c := range map[string]struct{ drivers, want []string }{
		"one":                   {[]string{driver}, []string{driver}},
		"none":                  {nil, []string{}},
		"sorted, and each once": {[]string{"b", "a", "b"}, []string{"a", "b"}},
		"names with characters that CEL knows": {[]string{`a"])||true||(d in ["`, "b\\n\n\u2028<é"},
			[]string{`a"])||true||(d in ["`, "b\\n\n\u2028<é"}},
	} {
		for _, role := range roles() {
			all := conditions(role, c.drivers)
			if len(c.want) == 0 && !strings.Contains(all[4].Expression, "exists(d, d in [])") {
				t.Errorf("%s: the condition is no CEL: %s", sentence, all[4].Expression)
			}
			got, err := driversIn(all)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%s: %q, %v, want %q", sentence, got, err, c.want)
			}
		}
	}
}

// An unknown list is not an empty list.
func TestForeignDriverConditionIsAnError(t *testing.T) {
	with := func(change func(string) string) []admissionv1.MatchCondition {
		all := conditions(volume.RoleOwner, []string{driver})
		for i := range all {
			if all[i].Name == driverCondition {
				all[i].Expression = change(all[i].Expression)
			}
		}
		return all
	}
	for sentence, c := range map[string]struct {
		conditions []admissionv1.MatchCondition
		want       []string
	}{
		"no conditions":      {nil, nil},
		"another expression": {with(func(string) string { return `true` }), nil},
		"another end":        {with(func(s string) string { return s + " || true" }), nil},
		"another beginning":  {with(func(s string) string { return "true || " + s }), nil},
		"a list of CEL's own": {with(func(s string) string {
			return strings.ReplaceAll(s, `"`+driver+`"`,
				`'`+driver+`'`)
		}), nil},
		"a list that nothing begins": {with(func(string) string { return `["a"]` + afterDrivers }), nil},
		"a list that nothing ends":   {with(func(string) string { return beforeDrivers + `["a"]` }), nil},
		"with spaces around it":      {with(func(s string) string { return "\n" + s + "\n" }), []string{driver}},
		"on one line": {with(func(s string) string { return beforeDrivers + `["a", "b"]` + afterDrivers }),
			[]string{"a", "b"}},
	} {
		got, err := driversIn(c.conditions)
		if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) || err != nil &&
			!errors.Is(err, errUnknownCondition) {
			t.Errorf("%s: %q, %v, want %q", sentence, got, err, c.want)
		}
	}
}
