package capacity

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
)

// Driver reports free capacity, with errors that carry an errclass.Class. csidriver.Driver implements it.
type Driver interface {
	GetCapacity(ctx context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error)
}

// Nodes watches the cluster's nodes and the driver's topology on them; nodes.Lister implements it.
type Nodes interface {
	// Watch keeps the nodes up to date until ctx ends, and Synced reports whether the first list has arrived.
	Watch(ctx context.Context)
	Synced() bool
	// Permissions returns the permissions that Watch needs; without describes the effect of lacking them.
	Permissions(without string) []permission.Permission
	// Nodes returns all nodes, or an error while they are unknown.
	Nodes() ([]topology.Node, error)
	// Follow registers a function that is called for each change, and is itself called before Watch.
	Follow(changed func())
}

// Controller publishes the capacity of one driver as CSIStorageCapacity objects. Call Run once, with a context that
// ends with the leader election lease. Watch writes nothing to the cluster, and works on each replica.
type Controller struct {
	*controller.Controller
	permission.Checker
	cfg        Config
	driverName string
	driver     Driver
	cluster    cluster
	labels     labels.Set
	// nodes is nil for a driver without topology.
	nodes   Nodes
	classes cached[class]
	objects cached[Object]
	tracker *tracker

	items   *controller.Queue[WorkItem]
	surveys *controller.Queue[surveyKey]
}

// New returns a Controller for the named driver on the cluster of config, which New copies. The QPS and Burst of
// config apply to the capacity objects alone, and 0 means no limit. nodes is nil for a driver without topology: its
// volumes are accessible from every node, and each class has one object that says so. New sends no requests to the
// cluster or the driver; see Run.
func New(config *rest.Config, driverName string, driver Driver, nodes Nodes, cfg Config) (*Controller, error) {
	if config == nil {
		return nil, errors.New("create a capacity controller: nil rest.Config")
	}
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	owners, err := newOwners(config, cfg.Namespace)
	if err != nil {
		return nil, err
	}
	at := apiServer{clients.Storage.CSIStorageCapacities(cfg.Namespace), owners}
	c, err := newController(at, driverName, driver, nodes, cfg)
	if err != nil {
		return nil, err
	}
	c.Checker = permission.NewChecker(clients.Authorization, c.Permissions())
	ours := kube.Selection{Namespace: cfg.Namespace, Labels: c.labels.AsSelector().String()}
	storage := clients.Storage.RESTClient()
	classes := kube.NewCache(storage, "storageclasses", &storagev1.StorageClass{}, kube.RecordSome(c.recordClass),
		classChanges{c})
	objects := kube.NewCacheOf(ours, storage, "csistoragecapacities", &storagev1.CSIStorageCapacity{},
		kube.RecordSome(c.recordObject), objectChanges{c})
	c.classes, c.objects = classes, objects
	c.start(classes, objects)
	return c, c.register(cfg.Metrics)
}

func newController(at cluster, driverName string, driver Driver, nodes Nodes, cfg Config) (*Controller, error) {
	switch {
	case driverName == "":
		return nil, errors.New("create a capacity controller: the driver's name is empty")
	case driver == nil:
		return nil, errors.New("create a capacity controller: nil Driver")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("create a capacity controller: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Controller{
		cfg: cfg, driverName: driverName, driver: driver, cluster: at, labels: labelsOf(driverName, cfg.ManagedBy),
		nodes: nodes, tracker: newTracker(),
	}, nil
}

// start creates the queues and registers the caches to watch.
func (c *Controller) start(caches ...controller.Cache) {
	if c.nodes != nil {
		caches = append(caches, controller.Polled("nodes", c.nodes.Watch, c.nodes.Synced))
		c.nodes.Follow(c.enqueueSurvey)
	}
	c.Controller = controller.NewController("capacity", caches...)
	controller.Begin(c.Controller, c.begin)
	items := controller.Config{Name: "capacity", Workers: c.cfg.Workers, Clock: c.cfg.Clock}
	c.items = controller.NewQueue(c.Controller, items, c.reconcile)
	surveys := controller.Config{Name: "capacity-survey", Workers: 1, Clock: c.cfg.Clock}
	c.surveys = controller.NewQueue(c.Controller, surveys, c.survey)
}

func (c *Controller) begin(ctx context.Context) {
	klog.FromContext(ctx).Info("Publishing capacity", "driver", c.driverName, "namespace", c.cfg.Namespace,
		"pollInterval", c.cfg.PollInterval)
	c.enqueueSurvey()
}

// Changed marks capacity as outdated: a volume of the class was created or deleted, or could not be created for lack
// of space. at holds the topology segments from which the volume is accessible; if it is empty, the driver is asked
// again for all segments of the class. Changed may be called at any time, from any goroutine, and does not block.
func (c *Controller) Changed(class string, at []map[string]string) {
	for _, item := range c.tracker.markStale(class, at) {
		c.items.Enqueue(item)
	}
}

func (c *Controller) enqueueSurvey() { c.surveys.Enqueue(surveyKey{}) }

// segments returns the topology segments with nodes of the driver, and the empty segment for a driver without
// topology.
func (c *Controller) segments() (map[Segment]bool, error) {
	if c.nodes == nil {
		return map[Segment]bool{"": true}, nil
	}
	nodes, err := c.nodes.Nodes()
	if err != nil {
		return nil, fmt.Errorf("find the driver's nodes: %w", err)
	}
	there := map[Segment]bool{}
	for _, segments := range topology.Segments(nodes) {
		there[SegmentOf(segments)] = true
	}
	return there, nil
}

// Permissions returns the permissions that the Controller needs with its settings.
func (c *Controller) Permissions() []permission.Permission {
	const storage, nothing = "storage.k8s.io", "no capacity is published"
	var needed controller.Permissions
	needed.Add(storage, "storageclasses", nothing, "list", "watch")
	needed.Namespace = c.cfg.Namespace
	needed.Add(storage, "csistoragecapacities", nothing, "list", "watch", "create")
	needed.Add(storage, "csistoragecapacities", "the published capacity becomes outdated, and the scheduler uses it",
		"patch")
	needed.Add(storage, "csistoragecapacities", "the capacity of classes and segments that are gone stays", "delete")
	if c.nodes != nil {
		needed.All = append(needed.All, c.nodes.Permissions(nothing)...)
	}
	const unowned = "no capacity is published, because its owner is not known; --capacity-ownerref-level=-1 publishes " +
		"it without an owner"
	if c.cfg.Owner != nil {
		needed.Add("", "pods", unowned, "get")
	}
	if c.cfg.Owner != nil && c.cfg.Owner.Level > 1 {
		needed.Add("apps", "replicasets", unowned, "get")
	}
	return needed.All
}
