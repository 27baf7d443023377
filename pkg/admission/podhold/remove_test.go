package podhold

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// TestRemoveAdmissionBeginsWithWhatAddsTheFinalizer, and ends with the first error.
func TestRemoveAdmissionBeginsWithWhatAddsTheFinalizer(t *testing.T) {
	const (
		policy  = "mutatingadmissionpolicybindings/" + Name
		webhook = "mutatingwebhookconfigurations/" + Name
		stays   = "validatingadmissionpolicybindings/" + StaysName
	)
	for sentence, c := range map[string]struct {
		// status is what the API server answers, 200 by default.
		status        map[string]int
		asked         []string
		deleted       string
		errorContains string
	}{
		"all exist": {asked: []string{policy, webhook, stays},
			deleted: "mutatingadmissionpolicybinding/" + Name + " mutatingwebhookconfiguration/" + Name +
				" validatingadmissionpolicybinding/" + StaysName},
		"none exists": {status: map[string]int{policy: 404, webhook: 404, stays: 404},
			asked: []string{policy, webhook, stays}},
		"one may not be deleted": {status: map[string]int{webhook: 403}, asked: []string{policy, webhook},
			deleted: "mutatingadmissionpolicybinding/" + Name, errorContains: "delete mutatingwebhookconfiguration/" + Name},
	} {
		var asked []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			what := strings.TrimPrefix(r.URL.Path, "/apis/admissionregistration.k8s.io/v1/")
			if r.Method != http.MethodDelete {
				t.Errorf("%s %s", r.Method, what)
			}
			asked = append(asked, what)
			w.Header().Set("Content-Type", "application/json")
			if status := c.status[what]; status != 0 {
				w.WriteHeader(status)
			}
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1"}`))
		}))
		deleted, err := RemoveAdmission(t.Context(), &rest.Config{Host: server.URL})
		server.Close()
		if (err == nil) != (c.errorContains == "") || err != nil && !strings.Contains(err.Error(), c.errorContains) {
			t.Errorf("%s: %v", sentence, err)
		}
		if got := strings.Join(deleted, " "); got != c.deleted || !slices.Equal(asked, c.asked) {
			t.Errorf("%s: deleted %q after %q, want %q after %q", sentence, got, asked, c.deleted, c.asked)
		}
	}
}
