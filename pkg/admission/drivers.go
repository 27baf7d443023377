package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
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
		"mutatingwebhookconfigurations", &admissionv1.MutatingWebhookConfiguration{}, kube.RecordAll(configuredDriversOf),
		kube.OnChange[configuredDrivers](func(_, _ configuredDrivers) {}))
	return l, events.Register(metrics, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "csi_reclaimer_admission_drivers_unreadable",
		Help: "1 while MutatingWebhookConfiguration " + WebhooksName +
			" has match conditions from which its drivers cannot be read, so that the webhook protects none of them.",
	}, l.unreadable))
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

func configuredDriversOf(o *admissionv1.MutatingWebhookConfiguration) configuredDrivers {
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
	return found
}

// DriverPolicy reads whether the policy of a role is in force for a driver; its methods are safe for concurrent use.
type DriverPolicy struct {
	permission.Checker
	admission admissionclient.AdmissionregistrationV1Interface
	driver    string
	role      volume.Role
}

// NewDriverPolicy returns a DriverPolicy in the cluster of config, which is copied, where role is RoleOwner or
// RoleCompanion.
func NewDriverPolicy(config *rest.Config, driver string, role volume.Role) (*DriverPolicy, error) {
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	return &DriverPolicy{permission.NewChecker(clients.Authorization, driverPolicyPermissions(role)), clients.Admission,
		driver, role}, nil
}

// Since returns the time since when policy and binding have been unchanged, by the API server's clock and to the
// second. found is false if one of them is missing, or if the policy does not list the driver. Since is meant for
// [reclaim.Config.AdmissionPolicy].
func (p *DriverPolicy) Since(ctx context.Context) (since time.Time, found bool, _ error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	name := policyName(p.role)
	policy, err := readIfExists(ctx, policyKind, name, p.admission.MutatingAdmissionPolicies().Get)
	if err != nil {
		return time.Time{}, false, err
	}
	binding, err := readIfExists(ctx, bindingKind, name, p.admission.MutatingAdmissionPolicyBindings().Get)
	if err != nil || policy == nil || binding == nil {
		return time.Time{}, false, err
	}
	drivers, err := driversIn(policy.Spec.MatchConditions)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("read the drivers of %s/%s: %w", policyKind, name, err)
	}
	since = lastChange(&policy.ObjectMeta)
	if bound := lastChange(&binding.ObjectMeta); bound.After(since) {
		since = bound
	}
	return since, slices.Contains(drivers, p.driver), nil
}

// lastChange returns the time at which an object was created or last written.
func lastChange(o *metav1.ObjectMeta) time.Time {
	last := o.CreationTimestamp.Time
	for _, f := range o.ManagedFields {
		if f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}

// driverPolicyPermissions returns the permissions that a DriverPolicy needs.
func driverPolicyPermissions(role volume.Role) (needed []permission.Permission) {
	for _, resource := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		needed = append(needed, permission.Permission{
			Group: admissionv1.GroupName, Resource: resource, Verb: "get", Name: policyName(role),
			Without: "PVs that are bound without the finalizer although an admission policy should have added it are not " +
				"noticed",
		})
	}
	return needed
}
