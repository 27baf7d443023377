// Package library runs the ProvisionController of sig-storage-lib-external-provisioner on the caches of package
// provision, and keeps it from what it must not do: it creates no PV, gets no event of a PV, and finds only claims that
// are kept whole.
package library

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	libcontroller "sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller/metrics"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/caches"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Config holds what the library's controller works with. All but Node and AlsoKnownAs is required.
type Config struct {
	// Driver is the provisioner's name, AlsoKnownAs others that count as it.
	Driver      string
	AlsoKnownAs []string
	Workers     int
	// Node is the one whose volumes alone are made, nil for the whole cluster.
	Node *volume.Node
	// Client reads for the library, which writes nothing.
	Client  kubernetes.Interface
	Limiter workqueue.TypedRateLimiter[any]
	Claims  *caches.Claims
	Classes cache.SharedIndexInformer
	// PVsSynced reports whether Stored is complete; Stored whether the PV of a claim exists.
	PVsSynced func() bool
	Stored    func(claim types.UID) bool
}

// Controller is the library's controller.
type Controller struct {
	inner  *libcontroller.ProvisionController
	claims *claimInformer
}

// New returns a controller that calls provisioner, whose Provision is to return an IgnoredError whatever comes of it.
// New starts a broadcaster of events that cannot be ended, and adds to
// client-go's global scheme.
func New(cfg Config, provisioner libcontroller.Provisioner) *Controller {
	c := &Controller{claims: newClaimInformer(cfg.Claims)}
	options := []func(*libcontroller.ProvisionController) error{
		libcontroller.LeaderElection(false),
		libcontroller.AddFinalizer(true),
		libcontroller.AdditionalProvisionerNames(cfg.AlsoKnownAs),
		libcontroller.FailedProvisionThreshold(0), // never gives up
		libcontroller.RateLimiter(cfg.Limiter),
		libcontroller.Threadiness(cfg.Workers),
		libcontroller.MetricsInstance(metrics.New("unused")), // an IgnoredError counts as a failure there
		libcontroller.ClaimsInformer(c.claims),
		libcontroller.VolumesInformer(newVolumeInformer(cfg.PVsSynced, cfg.Stored)),
		libcontroller.ClassesInformer(cfg.Classes),
	}
	c.inner = libcontroller.NewProvisionController(klog.Background(), libraryClient{cfg.Client}, cfg.Driver, provisioner,
		append(options, libcontroller.NodesLister(nodeLister{node: cfg.Node}))...)
	return c
}

// Run works until ctx ends. It does not wait for calls in progress.
func (c *Controller) Run(ctx context.Context) { c.inner.Run(ctx) }

// Offer adds a claim to the library's queue.
func (c *Controller) Offer(claim *v1.PersistentVolumeClaim) { c.claims.handler.OnUpdate(claim, claim) }

// FindClaim returns a claim as the library finds it by its UID, nil if it does not.
func (c *Controller) FindClaim(uid types.UID) (*v1.PersistentVolumeClaim, error) {
	found, err := c.claims.GetIndexer().ByIndex("", string(uid))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	claim, _ := found[0].(*v1.PersistentVolumeClaim)
	return claim, nil
}

// nodeLister answers the library's questions about nodes without a read: it fails for none, so that the library has
// no failure of its own to record.
type nodeLister struct {
	corelisters.NodeLister
	// node is the one whose volumes alone are made, nil for the whole cluster.
	node *volume.Node
}

// Get returns a node of which only the name is known, but for the own one.
func (l nodeLister) Get(name string) (*v1.Node, error) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if l.node != nil && l.node.Name == name {
		node.Labels = l.node.Segments
	}
	return node, nil
}
