package explain

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// A claim may name any PV, and a pod any claim.
func TestObjectOfImpossibleNameIsAbsent(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	c := must.Get(Live(&rest.Config{Host: server.URL}, volume.RoleOwner))(t)
	if got := c.NamedPVs(t.Context(), []string{"a/b"}); !got.OK() || got.Value["a/b"] != nil {
		t.Errorf("PVs: %+v", got)
	}
	if got := Optional(c.Claim(t.Context(), "ns", "a/b")); !got.OK() || got.Value != nil {
		t.Errorf("claim: %+v", got)
	}
	if got := Optional(c.Class(t.Context(), "a/b")); !got.OK() || got.Value != nil {
		t.Errorf("class: %+v", got)
	}
	if got := Optional(c.Node(t.Context(), "a/b")); !got.OK() || got.Value != nil {
		t.Errorf("node: %+v", got)
	}
	if got := Optional(c.KubeletLease(t.Context(), "a/b")); !got.OK() || got.Value != nil {
		t.Errorf("Lease: %+v", got)
	}
	if got := Optional(c.PV(t.Context(), "a")); got.OK() {
		t.Errorf("a 404 without an object: %+v", got)
	}
}
