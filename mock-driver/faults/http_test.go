package faults

import (
	gocmp "cmp"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestPlanOverHTTP(t *testing.T) {
	e := engine(t)
	s := httptest.NewServer(e.Handler())
	defer s.Close()
	c := Client{Address: s.Listener.Addr().String()}
	want := Plan{Rules: []Rule{{Name: "one", Method: "DeleteVolume", Action: Hang}}}
	must.OK(t, c.Set(t.Context(), want))
	got, err := c.Status(t.Context())
	if err != nil || !cmp.Equal(got.Plan, want) || !slices.Equal(got.Counters, []Counter{{Rule: "one"}}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := c.Set(t.Context(), Plan{Rules: []Rule{{Method: "Nope", Action: Hang}}}); err == nil {
		t.Error("a bad plan is accepted")
	}
	must.OK(t, c.Clear(t.Context()))
	if got := e.Status(); len(got.Plan.Rules) > 0 {
		t.Errorf("after clearing: got %+v", got)
	}
}

func TestRefusedRequests(t *testing.T) {
	for name, c := range map[string]struct {
		method, path, host, body string
		want                     int
	}{
		"a plan that is wrong": {method: http.MethodPut, body: `{"rules":[{}]}`, want: http.StatusBadRequest},
		"a plan that is too large": {method: http.MethodPut, body: strings.Repeat(" ", maxPlan+1),
			want: http.StatusRequestEntityTooLarge},
		"a method that means nothing": {method: http.MethodPost, want: http.StatusMethodNotAllowed},
		"another path":                {method: http.MethodGet, path: "/", want: http.StatusNotFound},
		"a host name made for us": {method: http.MethodPut, host: "evil.example.com:1234", body: `{"rules":[]}`,
			want: http.StatusForbidden},
		"a host that is not loopback": {method: http.MethodDelete, host: "10.0.0.1:1234", want: http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			e := engine(t, Rule{Method: "*", Action: Hang})
			r := httptest.NewRequest(c.method, gocmp.Or(c.path, Path), strings.NewReader(c.body))
			r.Host = gocmp.Or(c.host, "127.0.0.1:1234")
			w := httptest.NewRecorder()
			e.Handler().ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, c.want)
			}
			if len(e.Status().Plan.Rules) != 1 {
				t.Error("the plan was changed")
			}
		})
	}
}

func TestListenOnlyOnLoopback(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "10.0.0.1:0", "example.com:0", "127.0.0.1", ""} {
		if l, err := Listen(address); err == nil {
			_ = l.Close()
			t.Errorf("%q is listened on", address)
		}
	}
	l := must.Get(Listen("127.0.0.1:0"))(t)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
