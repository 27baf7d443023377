package admission

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/certs"
)

func TestPermissions(t *testing.T) {
	keeper := certs.Config{Namespace: "ns", Secret: "tls", Webhooks: []string{WebhooksName}}
	want := map[string]bool{
		"get pods  ": true, "get persistentvolumeclaims  ": true,
		"get secrets ns tls": true, "create secrets ns ": true, "patch secrets ns tls": true,
		"get mutatingwebhookconfigurations  csi-reclaimer": true, "patch mutatingwebhookconfigurations  csi-reclaimer": true,
		"get validatingwebhookconfigurations  csi-reclaimer":   true,
		"patch validatingwebhookconfigurations  csi-reclaimer": true,
	}
	for _, r := range append(permissions(), keeper.Permissions()...) {
		name := r.Verb + " " + r.Resource + " " + r.Namespace + " " + r.Name
		if !want[name] || r.Without == "" || r.Unsafe {
			t.Errorf("%q: %q, unsafe %v", name, r.Without, r.Unsafe)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not asked for: %v", want)
	}
}
