package grants

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

const path = "/apis/gateway.networking.k8s.io/v1beta1/namespaces/shop/referencegrants"

// serve returns a reader of a server with this answer.
func serve(t *testing.T, code int, body string) *Reader {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path || r.URL.RawQuery != "limit=500" {
			t.Errorf("asked %s", r.URL)
		}
		if strings.HasPrefix(body, "{") {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	r := must.Get(New(&rest.Config{Host: server.URL}))(t)
	return r
}

func list(specs ...string) string {
	var items []string
	for _, spec := range specs {
		items = append(items, `{"apiVersion":"gateway.networking.k8s.io/v1beta1","kind":"ReferenceGrant","metadata":{"namespace":"shop","name":"g"},"spec":`+spec+`}`)
	}
	return `{"apiVersion":"gateway.networking.k8s.io/v1beta1","kind":"ReferenceGrantList","metadata":{},"items":[` +
		strings.Join(items, ",") + `]}`
}

func TestIn(t *testing.T) {
	got, err := serve(t, 200, list(`{"from":[{"group":"","kind":"PersistentVolumeClaim","namespace":"team"}],
		"to":[{"group":"snapshot.storage.k8s.io","kind":"VolumeSnapshot"},{"group":"","kind":"PersistentVolumeClaim","name":"data"}]}`, `{}`)).In(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	want := []request.Grant{{
		Namespace: "shop", Name: "g", From: []request.GrantFrom{{Kind: "PersistentVolumeClaim", Namespace: "team"}},
		To: []request.GrantTo{{Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshot"},
			{Kind: "PersistentVolumeClaim", Name: "data"}},
	}, {Namespace: "shop", Name: "g"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got, err := serve(t, 200, list()).In(t.Context(), "shop"); len(got) != 0 || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

func TestUnknownGrantsAreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		code         int
		body         string
		notInstalled bool
		forbidden    bool
	}{
		"not installed": {404, "404 page not found\n", true, false},
		"forbidden": {403, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`,
			false, true},
		"in trouble":        {500, "oops", false, false},
		"no list":           {200, "<html>", false, false},
		"of another form":   {200, list(`{"from":"anybody"}`), false, false},
		"a name of no text": {200, list(`{"from":[],"to":[{"kind":1}]}`), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := serve(t, c.code, c.body).In(t.Context(), "shop")
			if got != nil || err == nil || errors.Is(err, ErrNotInstalled) != c.notInstalled ||
				apierrors.IsForbidden(err) != c.forbidden {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	if got, err := serve(t, 200, list()).In(t.Context(), ""); got != nil || err == nil {
		t.Errorf("of all namespaces: %v, %v", got, err)
	}
}
