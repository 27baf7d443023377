// Package library runs the ProvisionController of sig-storage-lib-external-provisioner on the caches of package
// provision, with limits: the library creates no PV, gets no event of a PV, and finds only claims that are kept whole.
package library

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	libcontroller "sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller/metrics"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/caches"
)

// Config configures the library's controller, and requires all fields except AlsoKnownAs.
type Config struct {
	// Driver is the provisioner's name, AlsoKnownAs lists further names of it.
	Driver      string
	AlsoKnownAs []string
	// Client serves the reads of the library, which writes no objects.
	Client kubernetes.Interface
	// Claims and Classes have to be filled before Run.
	Claims  *caches.Claims
	Classes cache.SharedIndexInformer
}

// Controller wraps the library's controller.
type Controller struct {
	inner  *libcontroller.ProvisionController
	claims *claimInformer
}

// New returns a controller that calls provisioner, whose Provision must always return an IgnoredError. New starts a
// broadcaster of events that cannot be stopped, and adds to client-go's global scheme.
func New(cfg Config, provisioner libcontroller.Provisioner) *Controller {
	c := &Controller{claims: newClaimInformer(cfg.Claims)}
	options := []func(*libcontroller.ProvisionController) error{
		libcontroller.LeaderElection(false),
		libcontroller.AddFinalizer(true),
		libcontroller.AdditionalProvisionerNames(cfg.AlsoKnownAs),
		libcontroller.FailedProvisionThreshold(0),            // never gives up
		libcontroller.MetricsInstance(metrics.New("unused")), // an IgnoredError counts as a failure there
		libcontroller.ClaimsInformer(c.claims),
		libcontroller.VolumesInformer(newVolumeInformer()),
		libcontroller.ClassesInformer(cfg.Classes),
		libcontroller.NodesLister(nodeLister{}),
	}
	c.inner = libcontroller.NewProvisionController(klog.Background(), libraryClient{cfg.Client}, cfg.Driver, provisioner,
		options...)
	return c
}

// Run works until ctx ends, and does not wait for calls in progress.
func (c *Controller) Run(ctx context.Context) { c.inner.Run(ctx) }

// Offer adds a claim to the library's queue.
func (c *Controller) Offer(claim *v1.PersistentVolumeClaim) { c.claims.handler.OnUpdate(claim, claim) }

// nodeLister answers the library's queries about nodes without a read and without an error, so that the library has no
// failure of its own to record.
type nodeLister struct{ corelisters.NodeLister }

// Get returns a node that has only a name.
func (nodeLister) Get(name string) (*v1.Node, error) {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}
