package certs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// Config holds the settings of a Rotator.
type Config struct {
	// Namespace and Secret name the Secret that stores the certificates. Required.
	Namespace, Secret string
	// Names are the DNS names of the webhooks' Service (SERVICE.NAMESPACE.svc). Required.
	Names []string
	// External is set if others issue the certificate, such as cert-manager: the Secret is only read, and its key ca.crt
	// has the authorities to trust.
	External bool
	// Webhooks are the names of the webhook configurations, of either kind, that have to trust the certificate; missing
	// ones are skipped.
	Webhooks []string
	// Lifetime is the validity of a certificate, and RenewBefore the time before its expiry at which the next one is
	// issued. Default a year, and 30 days or a third of a shorter Lifetime.
	Lifetime, RenewBefore time.Duration
	// PollInterval is the time between reads of Secret and configurations. Default 1 minute.
	PollInterval time.Duration
	// PropagationDelay is the time in which all API servers observe a change of the authorities that they trust. Default 3
	// minutes.
	PropagationDelay time.Duration
	// Metrics registers the package's metrics. Default none.
	Metrics prometheus.Registerer
	// Clock is replaced in tests. Default the real clock.
	Clock clock.WithTicker
}

func (c Config) withDefaults() Config {
	const day = 24 * time.Hour
	c.Lifetime = cmp.Or(c.Lifetime, 365*day)
	c.RenewBefore = cmp.Or(c.RenewBefore, min(30*day, c.Lifetime/3))
	c.PollInterval = cmp.Or(c.PollInterval, time.Minute)
	c.PropagationDelay = cmp.Or(c.PropagationDelay, 3*time.Minute)
	c.Clock = settings.Clock(c.Clock)
	return c
}

// Validate returns an error that names every invalid setting.
func (c Config) Validate() error {
	full := c.withDefaults()
	var wrong settings.Wrong
	wrong.If(c.Namespace == "" || c.Secret == "", "namespace and secret: must name a Secret for the certificate")
	wrong.If(len(c.Names) == 0, "names: must have a DNS name for the certificate")
	wrong.If(full.PollInterval <= 0, "the poll interval is %v: must be positive", c.PollInterval)
	wrong.If(full.PropagationDelay <= 0, "the propagation delay is %v: must be positive", c.PropagationDelay)
	wrong.If(full.RenewBefore < 0 || full.RenewBefore >= full.Lifetime, "renewal %v before the end of a life of %v",
		full.RenewBefore, full.Lifetime)
	wrong.If(2*(full.PropagationDelay+full.PollInterval) > full.RenewBefore,
		"renewal %v before the end is too late for a propagation delay of %v and a poll interval of %v", full.RenewBefore,
		full.PropagationDelay, full.PollInterval)
	return wrong.Err()
}

// Rotator provides the certificate of one replica of the webhooks. Every replica runs one: if a write loses to another
// replica's, the API server refuses it, and the Rotator decides again.
type Rotator struct {
	permission.Checker
	cfg     Config
	cluster cluster
	issue   func(names []string, lifetime time.Duration) (*keyPair, error)
	loop    *controller.Queue[string]
	current atomic.Pointer[keyPair]

	// version is the version of the Secret that the last read found trusted, and since the time since when; only the
	// loop's worker uses them.
	version string
	since   time.Time
}

// New returns a Rotator on the cluster of config, which is copied; it starts nothing.
func New(config *rest.Config, cfg Config) (*Rotator, error) {
	if config == nil {
		return nil, errors.New("rotate certificates: nil rest.Config")
	}
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	r, err := newRotator(apiServer{cfg, clients}, cfg)
	if err != nil {
		return nil, err
	}
	r.Checker = permission.NewChecker(clients.Authorization, r.cfg.Permissions())
	return r, nil
}

func newRotator(at cluster, cfg Config) (*Rotator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("rotate certificates: %w", err)
	}
	r := &Rotator{cfg: cfg.withDefaults(), cluster: at, issue: issue}
	err := events.Register(cfg.Metrics, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "csi_reclaimer_webhook_certificate_expiration_timestamp_seconds",
		Help: "When the certificate that the webhooks present expires, in seconds since 1970, 0 for none.",
	}, r.expires))
	if err != nil {
		return nil, err
	}
	r.loop = controller.NewQueue(nil, controller.Config{Name: "certificates", Workers: 1, Clock: r.cfg.Clock}, r.work)
	return r, nil
}

func (r *Rotator) expires() float64 {
	if p := r.current.Load(); p != nil {
		return float64(p.NotAfter.Unix())
	}
	return 0
}

var errNoCertificate = errors.New("there is no certificate yet")

// Certificate returns the certificate for a new connection, as tls.Config.GetCertificate.
func (r *Rotator) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if p := r.current.Load(); p != nil {
		return p.TLS, nil
	}
	return nil, errNoCertificate
}

// Ready reports whether a certificate can be presented.
func (r *Rotator) Ready() bool { return r.current.Load() != nil }

// Run rotates the certificate until ctx ends, and returns when all its goroutines have ended; it is called once, on
// every replica.
func (r *Rotator) Run(ctx context.Context) {
	r.loop.Add(r.cfg.Secret)
	r.loop.Run(ctx)
}

// maxSteps bounds the steps of one round: issue, trust, one more step, and wait.
const maxSteps = 4

// work reads and acts until no step is due.
func (r *Rotator) work(ctx context.Context, _ string) controller.Result {
	again := controller.Every(r.cfg.PollInterval)
	for range maxSteps {
		a, err := r.step(ctx)
		switch {
		case ctx.Err() != nil:
			return controller.Done()
		case errors.Is(err, kube.ErrChanged):
			// Another replica was faster.
		case err != nil:
			klog.FromContext(ctx).Error(err, "The webhooks' certificate could not be rotated; retrying", "action", a)
			return controller.Backoff{First: min(time.Second, r.cfg.PollInterval), Max: r.cfg.PollInterval}.Retry()
		case a == wait:
			return again
		default:
			klog.FromContext(ctx).Info("Rotated the webhooks' certificate", "action", a)
		}
	}
	return again
}

// step reads the cluster, decides, and carries out one step.
func (r *Rotator) step(ctx context.Context) (action, error) {
	seen, err := r.cluster.read(ctx)
	if err != nil {
		return wait, err
	}
	s, err := r.observe(seen)
	if err != nil {
		return wait, err
	}
	a := decide(s, r.cfg.Clock.Now())
	switch a {
	case wait:
		return a, nil
	case trust:
		return a, r.trust(ctx, seen, s.State.bundle())
	case issueFirst, issueNext, promote, removeExpired:
	}
	issued, err := r.issuePair(a)
	if err != nil {
		return a, err
	}
	return a, r.cluster.writeSecret(ctx, s.State.after(a, issued, r.cfg.Clock.Now()).data(), seen.version)
}

// issuePair returns the pair that a step needs, nil for none. If the Secret was deleted, the presented pair is stored
// again, because it is trusted and a new pair would not be.
func (r *Rotator) issuePair(a action) (*keyPair, error) {
	if p := r.current.Load(); a == issueFirst && p.usable(r.cfg.Names, r.cfg.Clock.Now()) {
		return p, nil
	}
	if a == issueFirst || a == issueNext {
		return r.issue(r.cfg.Names, r.cfg.Lifetime)
	}
	return nil, nil
}

// observe returns the facts for a state of the cluster, and presents the certificate of the Secret.
func (r *Rotator) observe(seen clusterState) (facts, error) {
	state, err := r.cfg.stateIn(seen.secret, r.cfg.Clock.Now())
	if err != nil {
		return facts{}, fmt.Errorf("use Secret %s/%s of others: %w", r.cfg.Namespace, r.cfg.Secret, err)
	}
	s := facts{
		Known: true, State: state, Names: r.cfg.Names, External: r.cfg.External, RenewBefore: r.cfg.RenewBefore,
		PropagationDelay: r.cfg.PropagationDelay,
	}
	if s.State.Current != nil {
		r.current.Store(s.State.Current)
	}
	s.Trusted = len(outdated(seen.configs, s.State.bundle())) == 0
	if !s.Trusted {
		r.version, r.since = "", time.Time{}
	} else if r.version != seen.version {
		r.version, r.since = seen.version, r.cfg.Clock.Now()
	}
	s.Since = r.since
	return s, nil
}

// outdated returns the configurations that do not have the bundle.
func outdated(configs []webhookConfig, bundle []byte) (others []webhookConfig) {
	for _, h := range configs {
		for _, trusted := range h.bundles {
			if !bytes.Equal(trusted, bundle) {
				others = append(others, h)
				break
			}
		}
	}
	return others
}

func (r *Rotator) trust(ctx context.Context, seen clusterState, bundle []byte) error {
	for _, h := range outdated(seen.configs, bundle) {
		if err := r.cluster.writeBundle(ctx, h, bundle); err != nil {
			return err
		}
	}
	return nil
}
