package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
)

// Config holds the settings of a Keeper.
type Config struct {
	// Namespace and Secret name where the certificates are stored. Required.
	Namespace, Secret string
	// Names are the DNS names of the webhooks' Service (SERVICE.NAMESPACE.svc). Required.
	Names []string
	// Webhooks are the names of the webhook configurations, of either kind, that are to trust the
	// certificate. Those that are not there are left out.
	Webhooks []string
	// Lifetime is how long a certificate is valid, RenewBefore how long before its end the next one is
	// made. Default a year and 30 days.
	Lifetime, RenewBefore time.Duration
	// Look is the time between two looks at Secret and configurations. Default 1 minute.
	Look time.Duration
	// Settle is how long it takes until all API servers know of a change of what they trust. Default
	// 3 minutes.
	Settle time.Duration
	// Metrics is where the package's metrics are registered. Default nowhere.
	Metrics prometheus.Registerer
	// Clock is replaced in tests. Default the real one.
	Clock clock.WithTicker
}

func (c Config) withDefaults() Config {
	const day = 24 * time.Hour
	if c.Lifetime == 0 {
		c.Lifetime = 365 * day
	}
	if c.RenewBefore == 0 {
		c.RenewBefore = min(30*day, c.Lifetime/3)
	}
	if c.Look == 0 {
		c.Look = time.Minute
	}
	if c.Settle == 0 {
		c.Settle = 3 * time.Minute
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return c
}

// Validate returns every setting that is wrong.
func (c Config) Validate() error {
	full := c.withDefaults()
	var wrong []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	add(c.Namespace == "" || c.Secret == "", "no Secret is named to store the certificate in")
	add(len(c.Names) == 0, "no name is given that the certificate is for")
	add(full.Look <= 0, "a look every %v", c.Look)
	add(full.Settle <= 0, "settle: %v is no time", c.Settle)
	add(full.RenewBefore < 0 || full.RenewBefore >= full.Lifetime, "renewal %v before the end of a life of %v", full.RenewBefore, full.Lifetime)
	add(2*(full.Settle+full.Look) > full.RenewBefore, "renewal %v before the end: too late, for it takes %v and a look every %v", full.RenewBefore, full.Settle, full.Look)
	return errors.Join(wrong...)
}

// Keeper keeps the certificate of one replica of the webhooks. Every replica runs one: a write that
// another was faster with is refused by the API server and decided anew.
type Keeper struct {
	cfg     Config
	cluster cluster
	// authorization tells what this program may do.
	authorization authorizationv1.AuthorizationV1Interface
	issue         func(names []string, lifetime time.Duration) (*Pair, error)
	loop          *controller.Loop[string]
	current       atomic.Pointer[Pair]

	// version and since are the Secret's version that was found trusted at the last look, and since
	// when. Only the loop's worker uses them.
	version string
	since   time.Time
}

// New returns a Keeper on the cluster that config describes, which is copied. Nothing is started.
func New(config *rest.Config, cfg Config) (*Keeper, error) {
	if config == nil {
		return nil, errors.New("keep certificates: no cluster is given")
	}
	at, err := newAPIServer(config, cfg)
	if err != nil {
		return nil, err
	}
	k, err := newKeeper(at, cfg)
	if err != nil {
		return nil, err
	}
	k.authorization = at.authorization
	return k, nil
}

func newKeeper(at cluster, cfg Config) (*Keeper, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("keep certificates: %w", err)
	}
	k := &Keeper{cfg: cfg.withDefaults(), cluster: at, issue: issue}
	if cfg.Metrics != nil {
		if err := cfg.Metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "csi_reclaimer_webhook_certificate_expiration_timestamp_seconds",
			Help: "When the certificate that the webhooks present ends, in seconds since 1970, 0 for none.",
		}, k.expires)); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	var err error
	k.loop, err = controller.New(controller.Config{Name: "certificates", Workers: 1, Clock: k.cfg.Clock}, k.work)
	return k, err
}

func (k *Keeper) expires() float64 {
	if p := k.current.Load(); p != nil {
		return float64(p.NotAfter.Unix())
	}
	return 0
}

var errNoCertificate = errors.New("there is no certificate yet")

// Certificate returns what to present at a new connection. It is for tls.Config.GetCertificate.
func (k *Keeper) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if p := k.current.Load(); p != nil {
		return p.TLS, nil
	}
	return nil, errNoCertificate
}

// Ready tells whether there is something to present.
func (k *Keeper) Ready() bool { return k.current.Load() != nil }

// Run keeps the certificate until ctx ends; it returns when everything it started has ended. It is
// called once, on every replica.
func (k *Keeper) Run(ctx context.Context) {
	k.loop.Add(k.cfg.Secret)
	k.loop.Run(ctx)
}

// maxSteps bounds the steps of one look: make, trust, and one more.
const maxSteps = 4

// work looks, and acts until there is nothing to do now.
func (k *Keeper) work(ctx context.Context, _ string) controller.Next {
	again := controller.Next{Backoff: controller.Backoff{First: k.cfg.Look, Max: k.cfg.Look}}
	for range maxSteps {
		a, err := k.step(ctx)
		switch {
		case ctx.Err() != nil:
			return controller.Next{}
		case errors.Is(err, kube.ErrChanged):
			// Another replica was faster.
		case err != nil:
			klog.FromContext(ctx).Error(err, "The webhooks' certificate could not be looked after; it is tried again", "action", a)
			return controller.Next{Backoff: controller.Backoff{First: min(time.Second, k.cfg.Look), Max: k.cfg.Look}}
		case a == Rest:
			return again
		default:
			klog.FromContext(ctx).Info("Looked after the webhooks' certificate", "action", a)
		}
	}
	return again
}

// step looks, decides and carries one step out.
func (k *Keeper) step(ctx context.Context) (Action, error) {
	seen, err := k.cluster.look(ctx)
	if err != nil {
		return Rest, err
	}
	s := k.observe(seen)
	a := Decide(s, k.cfg.Clock.Now())
	switch a {
	case Rest:
		return a, nil
	case Trust:
		return a, k.trust(ctx, seen, s.State.bundle())
	case MakeFirst, MakeNext, Promote, Retire:
	}
	made, err := k.make(a)
	if err != nil {
		return a, err
	}
	return a, k.cluster.store(ctx, s.State.after(a, made, k.cfg.Clock.Now()).data(), seen.version)
}

// make returns the pair that a step needs, nil for none. Where somebody took the Secret away, what is
// presented already is trusted, as none that is new would be.
func (k *Keeper) make(a Action) (*Pair, error) {
	if p := k.current.Load(); a == MakeFirst && p.usable(k.cfg.Names, k.cfg.Clock.Now()) {
		return p, nil
	}
	if a == MakeFirst || a == MakeNext {
		return k.issue(k.cfg.Names, k.cfg.Lifetime)
	}
	return nil, nil //nolint:nilnil // the other steps need none
}

// observe makes a Snapshot of what was seen, and has what the Secret says presented.
func (k *Keeper) observe(seen view) Snapshot {
	s := Snapshot{
		Known: true, State: stateOf(seen.secret), Names: k.cfg.Names, RenewBefore: k.cfg.RenewBefore, Settle: k.cfg.Settle,
	}
	if s.State.Current != nil {
		k.current.Store(s.State.Current)
	}
	s.Trusted = len(untrusting(seen.hooks, s.State.bundle())) == 0
	if !s.Trusted {
		k.version, k.since = "", time.Time{}
	} else if k.version != seen.version {
		k.version, k.since = seen.version, k.cfg.Clock.Now()
	}
	s.Since = k.since
	return s
}

func untrusting(hooks []hooks, bundle []byte) (others []hooks) {
	for _, h := range hooks {
		for _, trusted := range h.bundles {
			if !bytes.Equal(trusted, bundle) {
				others = append(others, h)
				break
			}
		}
	}
	return others
}

func (k *Keeper) trust(ctx context.Context, seen view, bundle []byte) error {
	for _, h := range untrusting(seen.hooks, bundle) {
		if err := k.cluster.trust(ctx, h, bundle); err != nil {
			return err
		}
	}
	return nil
}
