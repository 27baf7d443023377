package web

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

const host = "127.0.0.1:18000"

// newServer returns a Server whose API server does not exist.
func newServer(t *testing.T, cfg Config) *Server {
	t.Helper()
	cfg.Prefix = "secret"
	if cfg.Hosts == nil && cfg.Authorize == nil {
		cfg.Hosts = []string{host}
	}
	s := must.Get(New(&rest.Config{Host: "http://127.0.0.1:1"}, cfg))(t)
	return s
}

// request is a browser's request for the page, with one change.
func request(path string, change func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	r.Host = host
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if change != nil {
		change(r)
	}
	return r
}

func TestServeHTTP(t *testing.T) {
	set := func(key, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(key, value) }
	}
	link := func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Sec-Fetch-Mode", "navigate")
		r.Header.Set("Sec-Fetch-Dest", "document")
	}
	for name, c := range map[string]struct {
		path   string
		change func(*http.Request)
		want   int
	}{
		"the page":                    {"/secret/", nil, http.StatusOK},
		"the page, without its slash": {"/secret", nil, http.StatusPermanentRedirect},
		"a file":                      {"/secret/app/main.js", nil, http.StatusOK},
		"HEAD":                        {"/secret/", func(r *http.Request) { r.Method = http.MethodHead }, http.StatusOK},
		"HEAD of a stream": {"/secret/api/list",
			func(r *http.Request) { r.Method = http.MethodHead }, http.StatusOK},
		"its own origin":         {"/secret/", set("Origin", "http://"+host), http.StatusOK},
		"a typed address":        {"/secret/", set("Sec-Fetch-Site", "none"), http.StatusOK},
		"an old browser":         {"/secret/", func(r *http.Request) { r.Header.Del("Sec-Fetch-Site") }, http.StatusOK},
		"a link on another page": {"/secret/", link, http.StatusOK},
		"the same without slash": {"/secret", link, http.StatusPermanentRedirect},

		"no token":              {"/", nil, http.StatusNotFound},
		"wrong token":           {"/secres/", nil, http.StatusNotFound},
		"part of the token":     {"/secre/", nil, http.StatusNotFound},
		"more than the token":   {"/secrets/", nil, http.StatusNotFound},
		"token in another case": {"/SECRET/", nil, http.StatusNotFound},
		"stream, wrong token":   {"/x/api/list", nil, http.StatusNotFound},

		"DNS rebinding":         {"/secret/", func(r *http.Request) { r.Host = "evil.example:18000" }, http.StatusForbidden},
		"another port":          {"/secret/", func(r *http.Request) { r.Host = "127.0.0.1:18001" }, http.StatusForbidden},
		"no Host":               {"/secret/", func(r *http.Request) { r.Host = "" }, http.StatusForbidden},
		"cross-origin fetch":    {"/secret/api/list", set("Origin", "https://evil.example"), http.StatusForbidden},
		"a sandboxed frame":     {"/secret/", set("Origin", "null"), http.StatusForbidden},
		"https where http is":   {"/secret/", set("Origin", "https://"+host), http.StatusForbidden},
		"cross-site, no origin": {"/secret/app/main.js", set("Sec-Fetch-Site", "cross-site"), http.StatusForbidden},
		"same-site, no origin":  {"/secret/app/main.js", set("Sec-Fetch-Site", "same-site"), http.StatusForbidden},
		"a frame on another one": {"/secret/", func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Mode", "navigate")
			r.Header.Set("Sec-Fetch-Dest", "iframe")
		}, http.StatusForbidden},
		"a link to a stream":  {"/secret/api/list", link, http.StatusForbidden},
		"a link to an object": {"/secret/api/object/pv/-/x", link, http.StatusForbidden},
		"two origins": {"/secret/", func(r *http.Request) {
			r.Header["Origin"] = []string{"http://" + host, "https://evil.example"}
		}, http.StatusForbidden},

		"POST":    {"/secret/", func(r *http.Request) { r.Method = http.MethodPost }, http.StatusMethodNotAllowed},
		"OPTIONS": {"/secret/api/list", func(r *http.Request) { r.Method = http.MethodOptions }, http.StatusMethodNotAllowed},
		"DELETE":  {"/secret/api/object/pv/-/x", func(r *http.Request) { r.Method = "DELETE" }, http.StatusMethodNotAllowed},

		"no such file":             {"/secret/none.js", nil, http.StatusNotFound},
		"a Go file":                {"/secret/page.go", nil, http.StatusNotFound},
		"a folder":                 {"/secret/app", nil, http.StatusNotFound},
		"the way up":               {"/secret/../server.go", nil, http.StatusNotFound},
		"the way up, encoded":      {"/secret/%2e%2e/server.go", nil, http.StatusNotFound},
		"no such API":              {"/secret/api/other", nil, http.StatusNotFound},
		"kind that does not exist": {"/secret/api/object/secret/default/x", nil, http.StatusNotFound},
		"kind without a page":      {"/secret/api/object/fence/-/x", nil, http.StatusNotFound},
		"object without a name":    {"/secret/api/object/pv/-/", nil, http.StatusNotFound},
		"object with too much":     {"/secret/api/object/pv/-/x/y", nil, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			newServer(t, Config{}).ServeHTTP(w, request(c.path, c.change))
			if w.Code != c.want {
				t.Errorf("status %d, want %d: %s", w.Code, c.want, w.Body)
			}
			if strings.Contains(w.Body.String(), "secret") && w.Code != http.StatusPermanentRedirect &&
				!strings.Contains(c.path, "/object/") {
				t.Errorf("the answer has the token: %s", w.Body)
			}
		})
	}
}

func TestSecurityHeaders(t *testing.T) {
	for _, path := range []string{"/secret/", "/secret/app/main.js", "/wrong/", "/secret/api/none"} {
		w := httptest.NewRecorder()
		newServer(t, Config{}).ServeHTTP(w, request(path, nil))
		for key, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
				"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
			"Cache-Control": "no-store", "Cross-Origin-Opener-Policy": "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp",
			"Access-Control-Allow-Origin": "",
		} {
			if got := w.Header().Get(key); got != want {
				t.Errorf("%s: %s is %q, want %q", path, key, got, want)
			}
		}
	}
}

func TestContentTypes(t *testing.T) {
	for path, want := range map[string]string{"": "text/html; charset=utf-8",
		"app/main.js":    "text/javascript; charset=utf-8",
		"style/list.css": "text/css; charset=utf-8"} {
		w := httptest.NewRecorder()
		newServer(t, Config{}).ServeHTTP(w, request("/secret/"+path, nil))
		if got := w.Header().Get("Content-Type"); got != want {
			t.Errorf("%q: Content-Type is %q, want %q", path, got, want)
		}
	}
}

func TestEachPathIsAuthorized(t *testing.T) {
	asked := 0
	s := newServer(t, Config{Authorize: func(w http.ResponseWriter, _ *http.Request) bool {
		asked++
		http.Error(w, "no", http.StatusUnauthorized)
		return false
	}})
	for i, path := range []string{"/secret/", "/secret", "/secret/app/main.js", "/secret/api/list",
		"/secret/api/object/pv/-/x"} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, request(path, nil))
		if w.Code != http.StatusUnauthorized || asked != i+1 {
			t.Errorf("%s: status %d, asked %d times", path, w.Code, asked)
		}
	}
}

// One proxy ends TLS, and the other is kubectl port-forward.
func TestOriginsBehindProxies(t *testing.T) {
	s := newServer(t, Config{Authorize: func(http.ResponseWriter, *http.Request) bool { return true }})
	for name, c := range map[string]struct {
		host, origin string
		tls          bool
		want         int
	}{
		"a proxy that ends TLS":         {"page.example", "https://page.example", false, http.StatusOK},
		"kubectl port-forward":          {"localhost:8001", "http://localhost:8001", false, http.StatusOK},
		"TLS of its own":                {"page.example", "https://page.example", true, http.StatusOK},
		"http where https is":           {"page.example", "http://page.example", true, http.StatusForbidden},
		"another origin":                {"page.example", "https://evil.example", false, http.StatusForbidden},
		"another port of the same host": {"localhost:8001", "http://localhost:8002", false, http.StatusForbidden},
		"a proxy that drops the host":   {"10.0.0.7:8080", "https://page.example", false, http.StatusForbidden},
		"an opaque origin":              {"page.example", "null", false, http.StatusForbidden},
	} {
		r := request("/secret/app/main.js", func(r *http.Request) {
			r.Host = c.host
			r.Header.Set("Origin", c.origin)
			if c.tls {
				r.TLS = &tls.ConnectionState{}
			}
		})
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%s: status %d, want %d: %s", name, w.Code, c.want, w.Body)
		}
	}
}

func TestToken(t *testing.T) {
	a, b := Token(), Token()
	if a == b || len(a) < 43 || strings.ContainsAny(a, "/+=") {
		t.Errorf("tokens are %q and %q", a, b)
	}
}

func TestInvalidConfig(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no prefix":                             {Hosts: []string{host}},
		"prefix with a slash":                   {Prefix: "a/b", Hosts: []string{host}},
		"neither hosts nor a check of requests": {Prefix: "a"},
	} {
		if _, err := New(&rest.Config{Host: "http://127.0.0.1:1"}, cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	before := goleak.IgnoreCurrent()
	on := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	s := newServer(t, Config{Authorize: func(http.ResponseWriter, *http.Request) bool { return true }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, on) }()
	// An open stream must not delay the end.
	answer, err := http.Get("http://" + on.Addr().String() + "/secret/api/list")
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("status %d, type %q", answer.StatusCode, answer.Header.Get("Content-Type"))
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Serve has not ended")
	}
	_ = answer.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	goroutines.ExpectEnded(t, before)
}
