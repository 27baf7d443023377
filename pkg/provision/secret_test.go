package provision

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// TestSecretsAreNotLogged reads a Secret in a program whose log has the bodies of answers.
func TestSecretsAreNotLogged(t *testing.T) {
	const value = "swordfish"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&v1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			Data: map[string][]byte{"key": []byte(value)}})
	}))
	defer server.Close()
	core := must.Get(kube.NewClients(&rest.Config{Host: server.URL}))(t).Core
	var log strings.Builder
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log),
		textlogger.Verbosity(8))))
	values, err := apiServer{core: core}.readSecret(ctx, v1.SecretReference{Namespace: "ns", Name: "key"})
	if err != nil || values["key"] != value {
		t.Errorf("the Secret is %v, %v", values, err)
	}
	logged := func() bool { return strings.Contains(log.String(), base64.StdEncoding.EncodeToString([]byte(value))) }
	if logged() {
		t.Errorf("the log has the Secret:\n%s", log.String())
	}
	if _, err := core.Secrets("ns").Get(ctx, "key", metav1.GetOptions{}); err != nil || !logged() {
		t.Errorf("the log has no bodies at all: %v\n%s", err, log.String())
	}
}
