package reclaim

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// A 404 that does not name the claim, the PV or the Secret does not prove its absence, in answer to a write neither.
func TestNotFoundFromProxyIsAnError(t *testing.T) {
	proxy := httptest.NewServer(http.NotFoundHandler())
	defer proxy.Close()
	clients, err := kube.NewClients(&rest.Config{Host: proxy.URL})
	if err != nil {
		t.Fatal(err)
	}
	a := apiServer{clients: clients}
	if _, err := a.readClaim(t.Context(), volume.ClaimRef{Namespace: "ns", Name: "data"}); err == nil {
		t.Error("the claim counts as gone")
	}
	if _, _, err := a.readPV(t.Context(), "pv"); err == nil {
		t.Error("the PV counts as gone")
	}
	if _, _, err := a.readSecret(t.Context(), volume.SecretRef{Namespace: "ns", Name: "key"}); err == nil {
		t.Error("the Secret counts as gone")
	}
	pv := released().PV
	_, err = a.patchFinalizers(t.Context(), pv, nil, []string{volume.Finalizer}, false)
	for _, err := range []error{err, a.deletePV(t.Context(), pv)} {
		if err == nil || errors.Is(err, kube.ErrGone) {
			t.Errorf("the written PV counts as gone: %v", err)
		}
	}
}
