package admission

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
)

// DriverWatcher watches the drivers that the configuration of [PVWebhooks] lists, for the webhook. To add a driver,
// only this configuration has to change. An API server that drops match conditions (before 1.28) stores a configuration
// that lists no driver, and no PV is changed.
type DriverWatcher struct {
	permission.Checker
	key     string
	configs *kube.Cache[configuredDrivers]
}

// configuredDrivers holds the drivers of a configuration.
type configuredDrivers struct {
	drivers Drivers
	// unreadable is true if one of its webhooks has other match conditions.
	unreadable bool
}

// NewDriverWatcher returns a DriverWatcher of the cluster of config, which is copied. It registers a metric for an
// unreadable configuration with metrics, unless that is nil, and starts nothing.
func NewDriverWatcher(config *rest.Config, metrics prometheus.Registerer) (*DriverWatcher, error) {
	if config == nil {
		return nil, errors.New("watch the drivers whose PVs are protected: nil rest.Config")
	}
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	l := &DriverWatcher{Checker: permission.NewChecker(clients.Authorization, driverPermissions()),
		key: cache.NewObjectName("", WebhooksName).String()}
	l.configs = kube.NewCacheOf(kube.Selection{Name: WebhooksName}, clients.Admission.RESTClient(),
		"mutatingwebhookconfigurations", &admissionv1.MutatingWebhookConfiguration{}, configuredDriversOf,
		kube.OnChange[configuredDrivers](func(_, _ configuredDrivers) {}))
	if metrics != nil {
		if err := metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "csi_reclaimer_admission_drivers_unreadable",
			Help: "1 while MutatingWebhookConfiguration " + WebhooksName +
				" has match conditions from which its drivers cannot be read, so that the webhook protects none of them.",
		}, l.unreadable)); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return l, nil
}

// Run watches the configuration until ctx ends.
func (l *DriverWatcher) Run(ctx context.Context) { l.configs.Run(ctx) }

// Synced reports whether the configuration was listed.
func (l *DriverWatcher) Synced() bool { return l.configs.Synced() }

// Drivers returns the drivers that the configuration lists, and none while it is missing; it is safe for concurrent
// use.
func (l *DriverWatcher) Drivers() Drivers {
	found, _ := l.configs.Get(l.key)
	return found.drivers
}

func (l *DriverWatcher) unreadable() float64 {
	if found, _ := l.configs.Get(l.key); found.unreadable {
		return 1
	}
	return 0
}

// driverPermissions returns the permissions that a DriverWatcher needs.
func driverPermissions() (needed []permission.Permission) {
	for _, verb := range []string{"list", "watch"} {
		needed = append(needed, permission.Permission{
			Group: admissionv1.GroupName, Resource: "mutatingwebhookconfigurations", Verb: verb, Name: WebhooksName,
			Without: "the webhook protects no PV, because its drivers are not known",
		})
	}
	return needed
}

func configuredDriversOf(object runtime.Object, _ bool) (_ configuredDrivers, keep bool, err error) {
	o, ok := object.(*admissionv1.MutatingWebhookConfiguration)
	if !ok {
		return configuredDrivers{}, false, fmt.Errorf("watch MutatingWebhookConfigurations: got a %T", object)
	}
	found := configuredDrivers{drivers: Drivers{}}
	for _, role := range roles() {
		for i := range o.Webhooks {
			if o.Webhooks[i].Name != pvWebhookName(role) {
				continue
			}
			drivers, err := driversIn(o.Webhooks[i].MatchConditions)
			if err != nil {
				klog.Background().Error(err, "The webhook protects no PV: its drivers cannot be read", "webhook",
					o.Webhooks[i].Name)
				found.unreadable = true
			}
			found.drivers[role] = drivers
		}
	}
	return found, true, nil
}
