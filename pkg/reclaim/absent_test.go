package reclaim

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// A 404 that does not name the claim, the PV or the Secret does not prove its absence.
func TestNotFoundFromProxyIsAnError(t *testing.T) {
	proxy := httptest.NewServer(http.NotFoundHandler())
	defer proxy.Close()
	clients, err := kube.NewClients(&rest.Config{Host: proxy.URL})
	if err != nil {
		t.Fatal(err)
	}
	a := apiServer{clients: clients, timeout: time.Minute}
	if _, err := a.readClaim(t.Context(), volume.ClaimRef{Namespace: "ns", Name: "data"}); err == nil {
		t.Error("the claim counts as gone")
	}
	if _, _, err := a.readPV(t.Context(), "pv"); err == nil {
		t.Error("the PV counts as gone")
	}
	if _, _, err := a.readSecret(t.Context(), volume.SecretRef{Namespace: "ns", Name: "key"}); err == nil {
		t.Error("the Secret counts as gone")
	}
}
