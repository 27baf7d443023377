package health

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection" // who leads
	_ "k8s.io/component-base/metrics/prometheus/restclient"              // metrics of calls to the API server
	_ "k8s.io/component-base/metrics/prometheus/workqueue"               // metrics of the work queues
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/authorization"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/leader"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
)

// Options are the flags for the HTTP port.
type Options struct {
	endpoint, oldEndpoint string
	metricsPath           string
	pprof                 bool
	authorize             bool
	// more holds the paths that the program adds.
	more map[string]http.Handler
}

// Serves reports whether the flags select a port.
func (o *Options) Serves() bool { return o.address() != "" }

// Authorizes reports whether all paths except those for health require authorization.
func (o *Options) Authorizes() bool { return o.Serves() && o.authorize }

// Handle adds a path, with all paths below it if it ends with a slash. It is called before Start.
func (o *Options) Handle(path string, handler http.Handler) {
	if o.more == nil {
		o.more = map[string]http.Handler{}
	}
	o.more[path] = handler
}

// Flags adds the flags that set o, with the names and defaults of the other kubernetes-csi sidecars.
func (o *Options) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&o.endpoint, "http-endpoint", "",
		"TCP address for /healthz, /readyz, /healthz/leader-election and the metrics, such as :8080. Default: none.")
	fs.StringVar(&o.oldEndpoint, "metrics-address", "",
		"Deprecated name of --http-endpoint.")
	fs.StringVar(&o.metricsPath, "metrics-path", "/metrics",
		"Path of the metrics.")
	fs.BoolVar(&o.pprof, "enable-pprof", false,
		"Serve profiles under /debug/pprof/, too. They reveal much about the process: use an address that no one else can "+
			"reach.")
	fs.BoolVar(&o.authorize, "http-authorization", false,
		"Authorize all requests to --http-endpoint except health checks: the API server reviews the bearer token of a "+
			"request (TokenReview), and whether its user may get the path as a non-resource URL (SubjectAccessReview). Needs "+
			"the ClusterRole system:auth-delegator.")
}

// Validate returns an error that names all invalid settings, or nil.
func (o *Options) Validate() error {
	var wrong settings.Wrong
	wrong.If(o.endpoint != "" && o.oldEndpoint != "",
		"--metrics-address is the deprecated name of --http-endpoint: set only one of them")
	wrong.If(!strings.HasPrefix(o.metricsPath, "/"), "--metrics-path=%q: must begin with /", o.metricsPath)
	wrong.If(o.authorize && !o.Serves(), "--http-authorization: nothing is served; set --http-endpoint")
	return wrong.Err()
}

// address returns the address of the port under either flag name, or "".
func (o *Options) address() string { return cmp.Or(o.endpoint, o.oldEndpoint) }

// Start serves on the port, if the flags select one, until ctx ends; running counts the server's goroutine. It also
// serves the metrics of Kubernetes' libraries, in addition to the given ones. With --http-authorization, filter
// authorizes requests.
func (o *Options) Start(ctx context.Context, running *sync.WaitGroup, filter *authorization.Filter, state *State,
	metrics ...prometheus.Gatherer) error {
	address := o.address()
	if address == "" {
		return nil
	}
	if o.taken(o.metricsPath) {
		return fmt.Errorf("--metrics-path=%s: another page has this path; set a different one", o.metricsPath)
	}
	handler := o.handler(filter, state, append(prometheus.Gatherers(metrics), legacyregistry.DefaultGatherer))
	on, err := net.Listen("tcp", address) // an address in use is an error before anything else starts
	if err != nil {
		return fmt.Errorf("listen on %q for health and metrics: %w", address, err)
	}
	running.Go(func() {
		if err := serve(ctx, on, handler); err != nil {
			klog.FromContext(ctx).Error(err, "Serving health and metrics failed")
		}
	})
	return nil
}

// taken reports whether another page than the metrics has the path.
func (o *Options) taken(path string) bool {
	_, more := o.more[path]
	return more || o.pprof && strings.HasPrefix(path, profiles) ||
		slices.Contains([]string{"/healthz", "/readyz", leader.HealthPath}, path)
}

// profiles is the path of the profiles, whose permission covers all paths below it.
const profiles = "/debug/pprof/"

// handler returns the handler for all paths of the port.
func (o *Options) handler(filter *authorization.Filter, state *State, metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/healthz", Health(state.Alive))
	mux.Handle("/readyz", Health(state.Alive, state.Ready))
	mux.Handle(leader.HealthPath, Health(state.Alive))
	// handle registers a pattern that requires the permission for path.
	handle := func(pattern, path string, handler http.Handler) {
		if o.authorize {
			handler = filter.Handler(path, handler)
		}
		mux.Handle(pattern, handler)
	}
	if o.pprof {
		for name, handler := range map[string]http.HandlerFunc{"": pprof.Index, "cmdline": pprof.Cmdline,
			"profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace} {
			handle(profiles+name, profiles, handler)
		}
	}
	for path, handler := range o.more {
		handle(path, path, handler)
	}
	all := prometheus.Gatherers{state.metrics(), metrics}
	handle(o.metricsPath, o.metricsPath, promhttp.HandlerFor(all, promhttp.HandlerOpts{}))
	return mux
}
