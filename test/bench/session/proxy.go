//go:build unix

package session

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Proxy passes the requests of a program to the API server, and counts them.
type Proxy struct {
	server *httptest.Server
	// Kubeconfig is the path of a kubeconfig file for the program.
	Kubeconfig string
	// keep selects the requests whose bodies are kept. Optional.
	keep func(*http.Request) bool

	mu      sync.Mutex
	bodies  [][]byte
	traffic Traffic
}

// Traffic counts the requests of a program and the answers. Its methods may be called on a copy.
type Traffic struct {
	// Calls counts the requests but watches by kind, such as "list pods", and conflicts the answers 409 to them.
	Calls     map[string]int
	Conflicts int
	// Received are the bytes of all answers by kind, watches included, and sent the bytes of all requests.
	Received map[string]int
	sent     int
}

func newTraffic() Traffic { return Traffic{Calls: map[string]int{}, Received: map[string]int{}} }

// Count returns the number of calls but those about Events and Leases, which are not made for single objects alone.
func (t Traffic) Count() (calls int) {
	for kind, n := range t.Calls {
		if _, resource, _ := strings.Cut(kind, " "); resource != "events" && resource != "leases" {
			calls += n
		}
	}
	return calls
}

// Bytes returns the bytes of all answers.
func (t Traffic) Bytes() (all int) {
	for _, n := range t.Received {
		all += n
	}
	return all
}

// StartProxy starts a proxy for the account of a kubeconfig file. The proxy has the credentials.
func (env *Environment) StartProxy(kubeconfig string, keep func(*http.Request) bool) (*Proxy, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	// Our programs ask for no compression. Without TLS, as here, client-go does it nevertheless.
	config.DisableCompression = true
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	p := &Proxy{keep: keep, traffic: newTraffic()}
	pass := &httputil.ReverseProxy{Transport: transport, ErrorLog: log.New(io.Discard, "", 0), ModifyResponse: p.answered,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Header.Del("Accept-Encoding") }}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := p.asked(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		pass.ServeHTTP(w, r)
	}))
	if p.Kubeconfig, err = env.Cluster.Kubeconfig(&rest.Config{Host: p.server.URL}); err != nil {
		p.server.Close()
		return nil, err
	}
	return p, nil
}

// asked counts a request.
func (p *Proxy) asked(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keep != nil && p.keep(r) {
		p.bodies = append(p.bodies, body)
	}
	p.traffic.sent += len(body)
	if kind := kindOf(r); !strings.HasPrefix(kind, "watch ") {
		p.traffic.Calls[kind]++
	}
	return nil
}

// answered counts an answer.
func (p *Proxy) answered(r *http.Response) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.StatusCode == http.StatusConflict {
		p.traffic.Conflicts++
	}
	r.Body = &counted{ReadCloser: r.Body, proxy: p, kind: kindOf(r.Request)}
	return nil
}

// counted is the body of an answer.
type counted struct {
	io.ReadCloser
	proxy *Proxy
	kind  string
}

func (c *counted) Read(into []byte) (int, error) {
	n, err := c.ReadCloser.Read(into)
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	c.proxy.traffic.Received[c.kind] += n
	return n, err
}

// kindOf names a request by verb and resource, with the subresource if it has one: "list pods", "patch pods/status".
func kindOf(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return strings.ToLower(r.Method) + " " + r.URL.Path
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	verb, resource := strings.ToLower(r.Method), parts[0]
	switch {
	case len(parts) > 2:
		resource += "/" + parts[2]
	case len(parts) == 1 && r.URL.Query().Get("watch") != "":
		verb = "watch"
	case len(parts) == 1 && r.Method == http.MethodGet:
		verb = "list"
	}
	return verb + " " + resource
}

// Take returns the traffic and the kept bodies since it was called last.
func (p *Proxy) Take() (Traffic, [][]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, bodies := p.traffic, p.bodies
	p.traffic, p.bodies = newTraffic(), nil
	return t, bodies
}

func (p *Proxy) Close() { p.server.Close() }

// ToLog reports whether a request writes to a Lease of the in-flight log.
func ToLog(r *http.Request) bool {
	return r.Method == http.MethodPut && strings.Contains(path.Base(r.URL.Path), "-in-flight-")
}
