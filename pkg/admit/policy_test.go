package admit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// TestTheManifestsAreTheCode: who applies the manifests gets what is tested here.
func TestTheManifestsAreTheCode(t *testing.T) {
	const namespace = "csi-reclaimer"
	service := Service{Namespace: namespace, Name: "volume-guard"}
	for file, objects := range map[string][]any{
		"admission-policy.yaml":      {Policy(), Binding(namespace), Parameters(namespace, map[string]string{driver: finalizer})},
		"volume-guard-webhooks.yaml": {nil, PVWebhooks(service), PodWebhooks(service)}, // after the Service
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

// TestNothingHereCanStopACluster: whatever is asked of a webhook or a policy, its failure lets
// the write through, and it is waited for only so long.
func TestNothingHereCanStopACluster(t *testing.T) {
	service := Service{Namespace: "ns", Name: "guard"}
	policies := map[string]*admissionv1.FailurePolicyType{Policy().Name: Policy().Spec.FailurePolicy}
	timeouts := map[string]*int32{}
	for _, hook := range PVWebhooks(service).Webhooks {
		policies[hook.Name], timeouts[hook.Name] = hook.FailurePolicy, hook.TimeoutSeconds
	}
	for _, hook := range PodWebhooks(service).Webhooks {
		policies[hook.Name], timeouts[hook.Name] = hook.FailurePolicy, hook.TimeoutSeconds
	}
	if len(policies) != 4 {
		t.Fatalf("%d were looked at", len(policies))
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
	if action := Binding("ns").Spec.ParamRef.ParameterNotFoundAction; action == nil || *action != admissionv1.AllowAction {
		t.Errorf("without the parameters: %v", action)
	}
	port := PVWebhooks(service).Webhooks[0].ClientConfig.Service.Port
	if port == nil || *port != 443 {
		t.Errorf("port %v", port)
	}
}
