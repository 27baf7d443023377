package web

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/page"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/view"
	"github.com/csi-reclaimer/csi-reclaimer/internal/web/watch"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Config holds the settings of a Server. Prefix and Hosts are required, but Authorize can replace Hosts.
type Config struct {
	// Prefix is the first segment of every path, without slashes: a Token, or a fixed word if each request is authorized.
	Prefix string
	// Hosts lists the accepted values of the header Host, with the port; empty accepts any. Only a server that authorizes
	// each request may leave it empty.
	Hosts []string
	// Authorize, if set, is called before each request below Prefix, and every 30 seconds for each open stream. If it
	// returns false for a request, it must have answered it; if it returns false for a stream, the stream ends, and its
	// output is dropped. It is called concurrently, and decides by the headers.
	Authorize        func(w http.ResponseWriter, r *http.Request) bool
	Cluster, Version string
	// Role is the Role of explain.Config. Driver limits the rows of PVs to one driver; empty shows all.
	Role   volume.Role
	Driver string
	// LeakPort is the port of the sidecars' --http-endpoint; 0 disables reading leak reports.
	LeakPort int
	// Streams limits the number of open streams. Default: 32.
	Streams int
	// Clock defaults to the real clock; only tests replace it.
	Clock clock.WithTicker
}

// Token returns a random Prefix of 256 bits.
func Token() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Validate returns an error if a required setting is missing or Prefix has a slash.
func (c Config) Validate() error {
	switch {
	case c.Prefix == "" || strings.Contains(c.Prefix, "/"):
		return errors.New("serve the page: want a prefix without slashes")
	case len(c.Hosts) == 0 && c.Authorize == nil:
		return errors.New("serve the page: want the hosts that are answered, or a check of each request")
	}
	return nil
}

// Server serves the page, and its methods are safe for concurrent use.
type Server struct {
	// Checker finds missing permissions, which the page names, too.
	permission.Checker
	cfg    Config
	hub    *hub
	prefix [sha256.Size]byte
}

// New returns a Server of the cluster that config describes, and copies config. The cluster is only read while a
// client has the page open, and for five minutes after the last one has closed it.
func New(config *rest.Config, cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Streams == 0 {
		cfg.Streams = 32
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	config = rest.CopyConfig(config)
	client, err := authorizationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create a client for SelfSubjectAccessReviews: %w", err)
	}
	begin := func() (source, error) {
		return watch.New(config, watch.Config{Role: cfg.Role, Driver: cfg.Driver, LeakPort: cfg.LeakPort, Clock: cfg.Clock})
	}
	if _, err := begin(); err != nil { // errors in config show now
		return nil, err
	}
	return &Server{Checker: permission.NewChecker(client, watch.Permissions()), cfg: cfg,
		prefix: sha256.Sum256([]byte(cfg.Prefix)), hub: newHub(begin, cfg.Clock, view.State{
			Cluster: cfg.Cluster, Version: cfg.Version, Docs: view.DocsAddress(cfg.Version)})}, nil
}

// Run reads the cluster while clients are connected, until ctx ends, and returns when all goroutines that it started
// have ended. Streams end with it. It must only be called once, and ServeHTTP answers the requests.
func (s *Server) Run(ctx context.Context) { s.hub.run(ctx) }

// Serve calls Run, serves the page on the listener until ctx ends, and closes the listener.
func (s *Server) Serve(ctx context.Context, on net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	server := &http.Server{Handler: s, ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	running.Go(func() {
		<-ctx.Done()
		ending, done := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer done()
		if server.Shutdown(ending) != nil {
			_ = server.Close() // a client that does not read
		}
	})
	err := server.Serve(on)
	cancel()
	running.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the page: %w", err)
}

const (
	headerTimeout   = 10 * time.Second
	shutdownTimeout = 5 * time.Second
	maxHeader       = 1 << 16
	// recheck is the interval at which the authorization of an open stream is checked again.
	recheck = 30 * time.Second
)

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	if !s.fromHere(r) {
		http.Error(w, "forbidden: this page is only for its own address", http.StatusForbidden)
		return
	}
	first, rest, below := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	// Hashes make the comparison take the same time for any length.
	of := sha256.Sum256([]byte(first))
	if subtle.ConstantTimeCompare(of[:], s.prefix[:]) != 1 {
		http.NotFound(w, r)
		return
	}
	if s.cfg.Authorize != nil && !s.cfg.Authorize(w, r) {
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are answered", http.StatusMethodNotAllowed)
		return
	}
	if !below {
		http.Redirect(w, r, "/"+s.cfg.Prefix+"/", http.StatusPermanentRedirect)
		return
	}
	s.serve(w, r, rest)
}

// protect sets the headers by which a browser isolates this page from other pages.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "+
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Embedder-Policy", "require-corp")
}

// fromHere reports whether a browser sends the request for this page. Host has to be this server; after DNS rebinding
// it is the other site's name. Origin and Sec-Fetch-Site, if present, have to name this page, except for a link that
// opens it.
//
// If any Host is accepted, the origin's scheme may be https although the request has no TLS, because a proxy may end
// it.
func (s *Server) fromHere(r *http.Request) bool {
	if len(s.cfg.Hosts) > 0 && !slices.Contains(s.cfg.Hosts, r.Host) {
		return false
	}
	var own []string
	if r.TLS == nil {
		own = append(own, "http://"+r.Host)
	}
	if r.TLS != nil || len(s.cfg.Hosts) == 0 {
		own = append(own, "https://"+r.Host)
	}
	for _, origin := range r.Header.Values("Origin") {
		if !slices.Contains(own, origin) {
			return false
		}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none": // none: the person typed or opened the address outside of any page
		return true
	}
	// A link on another page may open this page, because the other page cannot read the result. A link to a stream would
	// keep the stream open.
	return strings.TrimSuffix(r.URL.Path, "/") == "/"+s.cfg.Prefix &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, path string) {
	switch api, is := strings.CutPrefix(path, "api/"); {
	case !is:
		s.file(w, r, path)
	case api == "list":
		s.stream(w, r, func(ctx context.Context, to *stream, _ source) error { return to.list(ctx, s.hub) })
	default:
		s.object(w, r, api)
	}
}

func (s *Server) file(w http.ResponseWriter, r *http.Request, name string) {
	file, ok := page.Get(name)
	if !ok || file.ContentType == "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", file.ContentType)
	_, _ = w.Write(file.Content) // an error means that the client is gone
}

// object answers api/object/KIND/NAMESPACE/NAME.
func (s *Server) object(w http.ResponseWriter, r *http.Request, path string) {
	parts := strings.Split(path, "/")
	if len(parts) != 4 || parts[0] != "object" || parts[2] == "" || parts[3] == "" {
		notFound(w, "there is no "+path)
		return
	}
	ref := view.Ref{Kind: view.Kind(parts[1]), Namespace: parts[2], Name: parts[3]}
	if ref.Namespace == "-" {
		ref.Namespace = ""
	}
	if !slices.Contains(watch.Kinds(), ref.Kind) {
		notFound(w, fmt.Sprintf("there is no page of kind %q", ref.Kind))
		return
	}
	s.stream(w, r, func(ctx context.Context, to *stream, cluster source) error {
		shown, err := cluster.Open(ctx, ref)
		if err != nil {
			return err
		}
		defer shown.Close()
		return to.object(ctx, s.hub, shown)
	})
}

func notFound(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": text}) // the client is gone
}

// stream answers with server-sent events while the client stays connected and authorized.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, run func(context.Context, *stream, source) error) {
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "text/event-stream")
		return
	}
	cluster, done, err := s.hub.look(s.cfg.Streams)
	if err != nil {
		w.Header().Set("Retry-After", "5")
		http.Error(w, fmt.Sprintf("no stream can be opened (%d at most): %v", s.cfg.Streams, err),
			http.StatusServiceUnavailable)
		return
	}
	defer done()
	ctx, end := s.whileAuthorized(r.Context(), r)
	defer end()
	_ = run(ctx, newStream(w, s.cfg.Clock), cluster) // an error means that the client is gone
}

// whileAuthorized returns a context that ends with ctx, or when the request is no longer authorized.
func (s *Server) whileAuthorized(ctx context.Context, r *http.Request) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	if s.cfg.Authorize == nil {
		return ctx, cancel
	}
	r = r.WithContext(ctx)
	var checking sync.WaitGroup
	checking.Go(func() {
		defer cancel() // also after a panic
		_ = panics.Contain(ctx, func() {
			for allowed := true; allowed; allowed = s.cfg.Authorize(dropped{}, r) {
				select {
				case <-ctx.Done():
					return
				case <-s.cfg.Clock.After(recheck):
				}
			}
		}, "part", "authorization of a stream")
	})
	return ctx, func() {
		cancel()
		checking.Wait()
	}
}

type dropped struct{}

func (dropped) Header() http.Header            { return http.Header{} }
func (dropped) Write(text []byte) (int, error) { return len(text), nil }
func (dropped) WriteHeader(int)                {}
