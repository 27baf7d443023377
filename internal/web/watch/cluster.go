package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Config holds the settings of a Cluster, and its zero value is usable.
type Config struct {
	// Role is the Role of explain.Config. Driver limits the rows of PVs to one driver; empty shows all.
	Role   volume.Role
	Driver string
	// Namespace limits claims and pods to one namespace, which serves those who may not list all. PVs of claims in other
	// namespaces are then not decided on, and fences miss the pods of other namespaces.
	Namespace string
	// Locks also reads the facts about the locks of claims.
	Locks bool
	// LeakPort is the port on which the sidecars serve /leaks; 0 disables reading leak reports.
	LeakPort int
	// Clock defaults to the real clock; only tests replace it.
	Clock clock.Clock
}

// Cluster holds the watch caches of a cluster, and its methods are safe for concurrent use.
type Cluster struct {
	// Source reads the objects without a cache live.
	explain.Source
	cfg Config
	// cluster reads from the caches.
	cluster explain.Cluster
	changed chan struct{}

	pvs         *table[pv]
	claims      *table[*v1.PersistentVolumeClaim]
	pods        *table[explain.Pod]
	nodes       *table[*v1.Node]
	attachments *table[storagev1.VolumeAttachment]
	drivers     *table[string]
	csiNodes    *table[[]string]
	classes     *table[*storagev1.StorageClass]
	fences      *table[*v1alpha1.NodeFence]
	shards      *table[coordinationv1.Lease]

	pvRecords derived[[]explain.PV]
	onNodes   derived[[]string]
	inFlight  derived[explain.InFlightLogs]
	podsOf    derived[podIndex]

	mu     sync.Mutex
	run    func(*table[coordinationv1.Lease]) // nil before Run or Load
	leases map[types.NamespacedName]*table[coordinationv1.Lease]

	slow slow
}

// slow holds the data that is polled instead of watched.
type slow struct {
	mu        sync.Mutex
	admission explain.Read[admission.Coverage]
	minor     int
	leaks     map[string]leaks.Report
	leakErr   error
	// labels are those of the namespaces of Config.Namespace.
	labels     explain.Read[map[string]map[string]string]
	labelsRead time.Time
}

// New returns caches of the cluster that config describes. It copies config, and nothing is read before Run.
func New(config *rest.Config, cfg Config) (*Cluster, error) {
	if config == nil {
		return nil, errors.New("create watch caches: nil rest.Config")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	live, err := explain.Live(config, cfg.Role)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Source: live.Source, cfg: cfg, cluster: live, changed: make(chan struct{}, 1),
		leases: map[types.NamespacedName]*table[coordinationv1.Lease]{}}
	c.cluster.Source, c.cluster.Clock = c, cfg.Clock
	c.tables()
	return c, nil
}

func (c *Cluster) tables() {
	core, storage := c.cluster.Core.RESTClient(), c.cluster.Storage.RESTClient()
	all, own := kube.Selection{}, kube.Selection{Namespace: c.cfg.Namespace}
	c.pvs = newTable(c, kind{resource: "persistentvolumes", what: "PVs", open: "which PVs there are"}, all, core,
		&v1.PersistentVolume{}, kube.RecordAll(pvOf(c.cfg.Locks)), never)
	c.claims = newTable(c, kind{resource: "persistentvolumeclaims", what: "Claims", open: "which claims there are, and " +
		"which are gone"}, own, core, &v1.PersistentVolumeClaim{}, kube.RecordAll(trimmed[*v1.PersistentVolumeClaim]), never)
	c.pods = newTable(c, kind{resource: "pods", what: "Pods", open: "which pods use claims, and which are held"}, own,
		core, &v1.Pod{}, some(kube.RecordAll(explain.PodOf), matters), samePod)
	c.nodes = newTable(c, kind{resource: "nodes", what: "Nodes", open: "which nodes are down"}, all, core, &v1.Node{},
		kube.RecordAll(explain.NodeOf), sameNode)
	c.attachments = newTable(c, kind{resource: "volumeattachments", what: "VolumeAttachments", open: "which volumes are " +
		"attached"}, all, storage, &storagev1.VolumeAttachment{}, kube.RecordAll(attachmentOf), never)
	c.drivers = newTable(c, kind{resource: "csidrivers", what: "CSIDrivers", open: "which drivers are installed"}, all,
		storage, &storagev1.CSIDriver{}, kube.RecordAll((*storagev1.CSIDriver).GetName), sameName)
	c.csiNodes = newTable(c, kind{resource: "csinodes", what: "CSINodes", open: "which drivers the nodes run"}, all,
		storage, &storagev1.CSINode{}, kube.RecordAll(explain.DriversOf), slices.Equal[[]string])
	c.classes = newTable(c, kind{resource: "storageclasses", what: "StorageClasses", open: "which provisioner creates " +
		"the volume of a claim"}, all, storage, &storagev1.StorageClass{},
		kube.RecordAll(trimmed[*storagev1.StorageClass]), never)
	c.fences = newTable(c, kind{resource: client.FenceResource, what: "NodeFences", open: "which nodes are fenced",
		maybe: true}, all, c.cluster.Fencing.REST, &v1alpha1.NodeFence{},
		kube.RecordAll(unmanaged[*v1alpha1.NodeFence]), never)
	c.shards = newTable(c, kind{resource: "leases", what: "The in-flight log (Leases)", open: "which volumes are being " +
		"provisioned"}, kube.Selection{Labels: inflight.LabelLog + "=true"}, c.cluster.Coordination.RESTClient(),
		&coordinationv1.Lease{}, kube.RecordAll(leaseOf), never)
}

// Run keeps the caches up to date until ctx ends, and returns when all goroutines that it started have ended. It must
// only be called once.
func (c *Cluster) Run(ctx context.Context) {
	var all sync.WaitGroup
	start := func(run func(context.Context)) { all.Go(func() { run(ctx) }) }
	for _, run := range []func(context.Context){
		c.pvs.run, c.claims.run, c.pods.run, c.nodes.run, c.attachments.run,
		c.drivers.run, c.csiNodes.run, c.classes.run, c.fences.run, c.shards.run,
		c.contained("poll", c.poll), c.contained("leak reports", c.pollLeaks),
	} {
		start(run)
	}
	c.mu.Lock()
	c.run = func(t *table[coordinationv1.Lease]) { start(t.run) }
	for _, t := range c.leases {
		c.run(t)
	}
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.run = func(*table[coordinationv1.Lease]) {}
	c.mu.Unlock()
	all.Wait()
}

func (c *Cluster) contained(part string, run func(context.Context)) func(context.Context) {
	return func(ctx context.Context) { panics.Restart(ctx, c.cfg.Clock, part, run, func(error) {}) }
}

// Changed receives after a change that the page may show, and only one goroutine may receive from it.
func (c *Cluster) Changed() <-chan struct{} { return c.changed }

func (c *Cluster) touch() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// maxLeases limits the number of single Leases that are watched: two for each driver, and one for each fenced node.
const maxLeases = 500

// lease returns the watch cache of the Leases of one name, in one namespace or in all, and starts it at the first
// call. It returns nil if maxLeases is reached.
func (c *Cluster) lease(of types.NamespacedName) *table[coordinationv1.Lease] {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.leases[of]
	if t != nil || len(c.leases) >= maxLeases {
		return t
	}
	t = newTable(c, kind{resource: "leases", what: "Leases", open: "who leads, and whether a brake is on"},
		kube.Selection{Namespace: of.Namespace, Name: of.Name}, c.cluster.Coordination.RESTClient(), &coordinationv1.Lease{},
		kube.RecordAll(leaseOf), sameLease)
	c.leases[of] = t
	if c.run != nil {
		c.run(t)
	}
	return t
}

var errTooMany = fmt.Errorf("more than %d Leases would be watched", maxLeases)

func (c *Cluster) now() time.Time { return c.cfg.Clock.Now() }

// Load reads every kind once, page by page, in place of Run. It lists PVs before claims and claims before pods, so that
// a missing claim of a PV, or a missing pod of a claim, is newer evidence than the PV or the claim. It returns an error
// if the API server does not answer; Unread names the kinds that it refuses. ctx also bounds the reads of Leases that
// Facts makes. The number of requests depends on the number of drivers and fences, and not on the number of PVs.
func (c *Cluster) Load(ctx context.Context) error {
	c.mu.Lock()
	c.run = func(t *table[coordinationv1.Lease]) { _ = t.load(ctx) } // the table keeps the error
	c.mu.Unlock()
	minor := c.Source.Minor(ctx)
	c.slow.mu.Lock()
	c.slow.minor = minor
	c.slow.mu.Unlock()
	for _, load := range []func(context.Context) error{c.pvs.load, c.attachments.load, c.drivers.load, c.csiNodes.load,
		c.classes.load, c.shards.load, c.claims.load, c.pods.load, c.nodes.load, c.fences.load} {
		if err := load(ctx); err != nil && !refused(err) {
			return err
		}
	}
	return nil
}

// Failure returns the reason why a kind was never read, nil if each was read or refused, or may still be read.
func (c *Cluster) Failure() error {
	for _, h := range c.health() {
		if h.err != nil && !h.synced && !h.kind.maybe && !refused(h.err) {
			return fmt.Errorf("list %s: %w", h.kind.resource, h.err)
		}
	}
	return nil
}

// Unread returns the kinds that the API server refuses, and the questions that this leaves open.
func (c *Cluster) Unread() []string { return stateOf(c.health()).Unread }

// Cached returns a Cluster that reads from the caches, and Events from the API server.
func (c *Cluster) Cached() explain.Cluster { return c.cluster }

// errOtherNamespace means that only the claims of Config.Namespace are read.
var errOtherNamespace = errors.New("the claims of other namespaces were not read")

func (c *Cluster) beyond(namespace string) bool {
	return c.cfg.Namespace != "" && namespace != c.cfg.Namespace
}
