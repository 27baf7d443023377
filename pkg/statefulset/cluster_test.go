package statefulset

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// answeredBy returns a client whose server answers all calls with answer.
func answeredBy(t *testing.T, answer http.HandlerFunc) apiServer {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	clients := must.Get(kube.NewClients(&rest.Config{Host: server.URL}))(t)
	return apiServer{clients}
}

// outcome leaves out the record of a read.
func outcome[R any](_ R, found bool, err error) (bool, error) { return found, err }

// The 404 of a proxy that cannot find the API server is no evidence.
func TestNotFoundOnlyFromAPIServer(t *testing.T) {
	page := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "404 page not found", http.StatusNotFound) }
	status := func(w http.ResponseWriter, r *http.Request) {
		path := strings.Split(r.URL.Path, "/")
		group := ""
		if strings.HasPrefix(r.URL.Path, "/apis/") {
			group = path[2]
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
			Details: &metav1.StatusDetails{Group: group, Kind: path[len(path)-2], Name: path[len(path)-1]}})
	}
	reads := map[string]func(apiServer) (found bool, err error){
		"claim": func(a apiServer) (bool, error) { return outcome(a.readClaim(t.Context(), "ns", "data-db-0")) },
		"pod":   func(a apiServer) (bool, error) { return outcome(a.readPod(t.Context(), "ns", "db-0")) },
		"set":   func(a apiServer) (bool, error) { return outcome(a.readSet(t.Context(), "ns", "db")) },
	}
	for what, read := range reads {
		for by, c := range map[string]struct {
			answer http.HandlerFunc
			fails  bool
		}{"an API server": {status, false}, "a proxy": {page, true}} {
			t.Run(fmt.Sprintf("%s by %s", what, by), func(t *testing.T) {
				if found, err := read(answeredBy(t, c.answer)); found || (err != nil) != c.fails {
					t.Errorf("found %v, error %v", found, err)
				}
			})
		}
	}
}

// An admission policy may revert a change in the same write.
func TestRevertedWriteFails(t *testing.T) {
	ask := statefulset.Ask{Namespace: "ns", Name: "data-db-0", UID: "u", ResourceVersion: "7",
		Mark:   statefulset.Mark{Set: "db", UID: "s", WhenScaled: statefulset.Delete, Claim: "u"},
		Owners: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "s"}}}
	bare := ask
	bare.Mark, bare.Owners = statefulset.Mark{}, nil
	const marked = `{"csi-reclaimer.io/statefulset":"db/s/0/Delete/u"}`
	for sentence, c := range map[string]struct {
		ask                 statefulset.Ask
		annotations, owners string
		undone              bool
	}{
		"it stays":              {ask, marked, `[{"uid":"s"}]`, false},
		"the mark is gone":      {ask, `{}`, `[{"uid":"s"}]`, true},
		"the owner is gone":     {ask, marked, `[]`, true},
		"another mark":          {ask, `{"csi-reclaimer.io/statefulset":"db/s/1/Delete/u"}`, `[{"uid":"s"}]`, true},
		"a mark of another":     {ask, `{"csi-reclaimer.io/statefulset":"db/s/0/Delete/v"}`, `[{"uid":"s"}]`, true},
		"another owner":         {ask, marked, `[{"uid":"t"}]`, true},
		"nothing is left":       {bare, `{}`, `[]`, false},
		"the mark is left":      {bare, marked, `[]`, true},
		"a mark that is none":   {bare, `{"csi-reclaimer.io/statefulset":""}`, `[]`, true},
		"the owner is left":     {bare, `{}`, `[{"uid":"s"}]`, true},
		"others' are no matter": {bare, `{"other":"x"}`, `[]`, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			a := answeredBy(t, func(w http.ResponseWriter, r *http.Request) {
				sent, _ := io.ReadAll(r.Body)
				want := `"annotations":{"csi-reclaimer.io/statefulset":null},"ownerReferences":null`
				if c.ask.Owners != nil {
					want = `"annotations":` + marked + `,"ownerReferences":[{"apiVersion":"apps/v1"`
				}
				if !strings.Contains(string(sent), want) {
					t.Errorf("sent %s, want %s", sent, want)
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, `{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"data-db-0",`+
					`"annotations":%s,"ownerReferences":%s}}`, c.annotations, c.owners)
			})
			if err := a.patchClaim(t.Context(), c.ask); errors.Is(err, kube.ErrUndone) != c.undone || err != nil != c.undone {
				t.Error(err)
			}
		})
	}
	refusing := answeredBy(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
	if err := refusing.patchClaim(t.Context(), ask); err == nil || errors.Is(err, kube.ErrUndone) {
		t.Error(err)
	}
	if err := refusing.patchWoken(t.Context(), statefulset.Set{Namespace: "ns", Name: "db", UID: "s"}, nil); err == nil {
		t.Error("a patch that is refused succeeds")
	}
	for value, annotations := range map[string]string{"x": `{}`, "": `{"csi-reclaimer.io/woken":"x"}`} {
		a := answeredBy(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"kind":"StatefulSet","apiVersion":"apps/v1","metadata":{"annotations":%s}}`, annotations)
		})
		want := ptr.To(value)
		if value == "" {
			want = nil
		}
		if err := a.patchWoken(t.Context(), statefulset.Set{Namespace: "ns", Name: "db", UID: "s"}, want); !errors.Is(err,
			kube.ErrUndone) {
			t.Errorf("annotation %q: %v", value, err)
		}
	}
}
