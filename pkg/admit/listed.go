package admit

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// Listed follows the ConfigMap of [Parameters], for the webhook. The API server's policy reads it by itself.
type Listed struct {
	key           cache.ObjectName
	maps          *kube.Cache[map[string]string]
	authorization authorizationv1.AuthorizationV1Interface
}

// NewListed returns a Listed of the namespace, in the cluster that config describes, which is copied. Whether the
// ConfigMap is missing is a metric, registered where metrics says (nil for nowhere). Nothing is started.
func NewListed(config *rest.Config, namespace string, metrics prometheus.Registerer) (*Listed, error) {
	if config == nil || namespace == "" {
		return nil, errors.New("follow which drivers' PVs are protected: no cluster is given, or no namespace")
	}
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	l := &Listed{key: cache.NewObjectName(namespace, PolicyName), authorization: clients.Authorization}
	l.maps = kube.NewCacheOf(kube.Selection{Namespace: namespace, Name: PolicyName},
		clients.Core.RESTClient(), "configmaps", &v1.ConfigMap{}, recordListed, unheard{})
	if metrics != nil {
		if err := metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "csi_reclaimer_admission_parameters_missing",
			Help: "1 while there is no ConfigMap " + PolicyName + ", so that no PV is protected in the write that makes it one to be protected.",
		}, l.missing)); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return l, nil
}

// Run follows the ConfigMap until ctx ends.
func (l *Listed) Run(ctx context.Context) { l.maps.Run(ctx) }

// Synced tells whether it was looked for.
func (l *Listed) Synced() bool { return l.maps.Synced() }

// Finalizers returns what it holds, nothing while it is missing: see [Finalizers]. It is safe for concurrent use.
func (l *Listed) Finalizers() map[string]string {
	finalizers, _ := l.maps.Get(l.key.String())
	return finalizers
}

func (l *Listed) missing() float64 {
	if _, found := l.maps.Get(l.key.String()); found || !l.maps.Synced() {
		return 0
	}
	return 1
}

// Missing returns those of the rights on the ConfigMap that the API server does not grant; see
// [reclaim.Missing].
func (l *Listed) Missing(ctx context.Context) ([]reclaim.Right, error) {
	var rights []reclaim.Right
	for _, verb := range []string{"list", "watch"} {
		rights = append(rights, reclaim.Right{
			Resource: "configmaps", Verb: verb, Namespace: l.key.Namespace, Name: l.key.Name,
			Without: "no PV is protected by the webhook, for nobody can tell which drivers' are to be",
		})
	}
	return reclaim.Missing(ctx, l.authorization, rights)
}

func recordListed(object runtime.Object, _ bool) (_ map[string]string, keep bool, err error) {
	o, ok := object.(*v1.ConfigMap)
	if !ok {
		return nil, false, fmt.Errorf("watch ConfigMaps: got a %T", object)
	}
	return maps.Clone(o.Data), true, nil
}

// unheard is for a cache that is only looked into.
type unheard struct{}

func (unheard) Added(map[string]string)         {}
func (unheard) Updated(_, _ map[string]string)  {}
func (unheard) Deleted(map[string]string, bool) {}
