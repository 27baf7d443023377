package admission

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/access"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
)

// Listed follows the drivers that the configuration of [PVWebhooks] lists, for the webhook: whoever adds a driver
// changes that configuration alone. An API server that drops match conditions (before 1.28) stores a
// configuration that lists no driver, and no PV is changed.
type Listed struct {
	key           string
	configs       *kube.Cache[listed]
	authorization authorizationv1.AuthorizationV1Interface
}

// listed is what is kept of a configuration.
type listed struct {
	drivers Drivers
	// unreadable: a webhook of it has other match conditions.
	unreadable bool
}

// NewListed returns a Listed of the cluster that config describes, which is copied. Whether the configuration cannot be
// read is a metric, registered where metrics says (nil for nowhere). Nothing is started.
func NewListed(config *rest.Config, metrics prometheus.Registerer) (*Listed, error) {
	if config == nil {
		return nil, errors.New("follow which drivers' PVs are protected: no cluster is given")
	}
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	admission, err := admissionclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for admissionregistration.k8s.io/v1: %w", err)
	}
	l := &Listed{key: cache.NewObjectName("", WebhooksName).String(), authorization: clients.Authorization}
	l.configs = kube.NewCacheOf(kube.Selection{Name: WebhooksName}, admission.RESTClient(),
		"mutatingwebhookconfigurations", &admissionv1.MutatingWebhookConfiguration{}, recordListed, unheard{})
	if metrics != nil {
		if err := metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "csi_reclaimer_admission_drivers_unreadable",
			Help: "1 while MutatingWebhookConfiguration " + WebhooksName + " has match conditions from which its drivers cannot be read, so that the webhook protects none of them.",
		}, l.unreadable)); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return l, nil
}

// Run follows the configuration until ctx ends.
func (l *Listed) Run(ctx context.Context) { l.configs.Run(ctx) }

// Synced tells whether it was looked for.
func (l *Listed) Synced() bool { return l.configs.Synced() }

// Drivers returns the drivers that it lists, none while it is missing. It is safe for concurrent use.
func (l *Listed) Drivers() Drivers {
	found, _ := l.configs.Get(l.key)
	return found.drivers
}

func (l *Listed) unreadable() float64 {
	if found, _ := l.configs.Get(l.key); found.unreadable {
		return 1
	}
	return 0
}

// Missing returns those of the rights on the configuration that the API server does not grant; see
// [access.Missing].
func (l *Listed) MissingPermissions(ctx context.Context) ([]access.Permission, error) {
	var rights []access.Permission
	for _, verb := range []string{"list", "watch"} {
		rights = append(rights, access.Permission{
			Group: admissionv1.GroupName, Resource: "mutatingwebhookconfigurations", Verb: verb, Name: WebhooksName,
			Without: "the webhook protects no PV, because it does not know of which drivers",
		})
	}
	return access.Missing(ctx, l.authorization, rights)
}

func recordListed(object runtime.Object, _ bool) (_ listed, keep bool, err error) {
	o, ok := object.(*admissionv1.MutatingWebhookConfiguration)
	if !ok {
		return listed{}, false, fmt.Errorf("watch MutatingWebhookConfigurations: got a %T", object)
	}
	found := listed{drivers: Drivers{}}
	for _, role := range roles() {
		for i := range o.Webhooks {
			if o.Webhooks[i].Name != pvWebhookName(role) {
				continue
			}
			drivers, err := driversIn(o.Webhooks[i].MatchConditions)
			if err != nil {
				klog.Background().Error(err, "The webhook protects no PV: its drivers cannot be read", "webhook", o.Webhooks[i].Name)
				found.unreadable = true
			}
			found.drivers[role] = drivers
		}
	}
	return found, true, nil
}

// unheard is for a cache that is only looked into.
type unheard struct{}

func (unheard) Added(listed)         {}
func (unheard) Updated(_, _ listed)  {}
func (unheard) Deleted(listed, bool) {}
