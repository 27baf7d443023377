package podsafety

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// The removal ends with the first error.
func TestRemovalOrder(t *testing.T) {
	const (
		policy, webhook, binding = "mutatingadmissionpolicybinding", "mutatingwebhookconfiguration",
			"validatingadmissionpolicybinding"
	)
	of := map[string]struct {
		remove func(context.Context, *rest.Config) ([]string, error)
		all    []string
	}{
		"the hold": {RemoveAdmission, []string{policy + "/" + Name, webhook + "/" + Name, binding + "/" + StaysName}},
		"the gate": {RemoveGateAdmission, []string{binding + "/" + GateRequiredName, policy + "/" + GateName,
			webhook + "/" + GateName, binding + "/" + GateStaysName, binding + "/" + LockStaysName}},
	}
	for what, c := range of {
		for sentence, status := range map[string]int{"exists": 200, "does not exist": 404, "may not be deleted": 403} {
			for n, name := range c.all {
				asked, deleted, err := removeWith(t, c.remove, name, status)
				wantAsked, wantDeleted := c.all, c.all
				switch status {
				case http.StatusNotFound:
					wantDeleted = slices.Concat(c.all[:n], c.all[n+1:])
				case http.StatusForbidden:
					wantAsked, wantDeleted = c.all[:n+1], c.all[:n]
				}
				if !slices.Equal(asked, wantAsked) || !slices.Equal(deleted, wantDeleted) {
					t.Errorf("%s, %s %s: deleted %q after %q, want %q after %q", what, name, sentence, deleted, asked, wantDeleted,
						wantAsked)
				}
				if (err == nil) != (status != http.StatusForbidden) ||
					err != nil && !strings.Contains(err.Error(), "delete "+name) {
					t.Errorf("%s, %s %s: %v", what, name, sentence, err)
				}
			}
		}
	}
}

func TestRemovalNeedsClient(t *testing.T) {
	config := &rest.Config{Host: "localhost", TLSClientConfig: rest.TLSClientConfig{CAFile: "none"}}
	for _, remove := range []func(context.Context, *rest.Config) ([]string, error){RemoveAdmission, RemoveGateAdmission} {
		if _, err := remove(t.Context(), config); err == nil || !strings.Contains(err.Error(), "create an HTTP client") {
			t.Error(err)
		}
	}
}

// removeWith returns the objects that an API server was asked to delete, and the deleted ones, if it answers with the
// status for one of them.
func removeWith(t *testing.T, remove func(context.Context, *rest.Config) ([]string, error), name string,
	status int) (asked, deleted []string, err error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind, object, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/admissionregistration.k8s.io/v1/"), "/")
		what := strings.TrimSuffix(kind, "s") + "/" + object
		if r.Method != http.MethodDelete {
			t.Errorf("%s %s", r.Method, what)
		}
		asked = append(asked, what)
		w.Header().Set("Content-Type", "application/json")
		if what == name {
			w.WriteHeader(status)
		}
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1"}`))
	}))
	defer server.Close()
	deleted, err = remove(t.Context(), &rest.Config{Host: server.URL})
	return asked, deleted, err
}
