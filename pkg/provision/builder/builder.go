// Package builder builds the CreateVolume requests of claims for a real cluster and driver: it reads what package
// request decides from.
package builder

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/snapshot"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// errTopologyChanged: a request would have a wrong topology.
var errTopologyChanged = errors.New("build a request: whether the driver reports topology " +
	"(VOLUME_ACCESSIBILITY_CONSTRAINTS) has changed since the start")

// Capable reports what a driver advertises now; csidriver.Driver is one.
type Capable interface {
	Name() string
	// Known returns an error while it is not known what the driver advertises.
	Known() error
	Has(capability csi.ControllerServiceCapability_RPC_Type) bool
	Offers(service csi.PluginCapability_Service_Type) bool
}

// Snapshots reads VolumeSnapshots; snapshots.Reader is one.
type Snapshots interface {
	// Read reads one live, with its content; nil if it does not exist. An error says of which it is.
	Read(ctx context.Context, name types.NamespacedName) (*request.Snapshot, error)
}

// Grants reads ReferenceGrants; grants.Reader is one.
type Grants interface {
	// In reads those of a namespace live. An error says that it is not known what is granted.
	In(ctx context.Context, namespace string) ([]request.Grant, error)
}

// Config holds the settings of a Builder. The zero value is usable.
type Config struct {
	// Settings are what volumes depend on.
	Settings request.Settings
	// Snapshots reads VolumeSnapshots. Default: no claim is made from one.
	Snapshots Snapshots
	// Grants reads ReferenceGrants, which are needed with Settings.CrossNamespace. Default: nothing is granted.
	Grants Grants
	// Node is the node on which all volumes are made, and beside which no other is looked at. Default:
	// all nodes of the cluster.
	Node *volume.Node
	// Nodes lists where the driver's nodes are; the Builder watches them. Default: its own; the Node.
	Nodes *nodes.Lister
	// IgnoreTopology treats the driver's volumes as reachable from everywhere, even if it reports topology.
	IgnoreTopology bool
}

// Builder settles what a driver is asked for as package request has it: it reads what a request depends
// on. What is read for one claim is read live; where the nodes are is watched, if that matters to
// the driver. A read that failed is no fact: its error is returned, and there is no request.
type Builder struct {
	cfg     Config
	driver  Capable
	clients kube.Clients
	// topology: volumes are not reachable from everywhere. It does not change, because the nodes are watched then.
	topology bool
	// nodes is nil where it does not matter where the nodes are.
	nodes *nodes.Lister
	// discovery returns the resources that the API server serves in storage.k8s.io/v1.
	discovery func(ctx context.Context) (*metav1.APIResourceList, error)
}

// New returns the RequestBuilder of a driver on the cluster that config describes, which is copied.
// Other capabilities of the driver than topology may change while the Builder is used. Nothing is started.
func New(config *rest.Config, driver Capable, cfg Config) (*Builder, error) {
	switch {
	case config == nil:
		return nil, errors.New("create a request builder: no cluster is given")
	case driver == nil:
		return nil, errors.New("create a request builder: no driver is given")
	}
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	switch {
	case cfg.Nodes == nil && cfg.Node != nil:
		cfg.Nodes = nodes.At(cfg.Node.Name, cfg.Node.Segments)
	case cfg.Nodes == nil:
		if cfg.Nodes, err = nodes.New(config, driver.Name()); err != nil {
			return nil, err
		}
	}
	return newBuilder(clients, driver, cfg)
}

func newBuilder(clients kube.Clients, driver Capable, cfg Config) (*Builder, error) {
	if err := cfg.Settings.Validate(); err != nil {
		return nil, fmt.Errorf("create a request builder: %w", err)
	}
	b := &Builder{cfg: cfg, driver: driver, clients: clients}
	b.discovery = b.discover
	b.topology = b.describe().Plugin[topologyService]
	switch {
	case b.topology:
		b.nodes = cfg.Nodes
	case cfg.Node != nil:
		return nil, errors.New("create a request builder: volumes are to be created on one node, but the driver does not " +
			"report topology (VOLUME_ACCESSIBILITY_CONSTRAINTS)")
	}
	return b, nil
}

const topologyService = csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS

// describe returns which of the capabilities that CSI knows the driver has now.
func (b *Builder) describe() request.Driver {
	driver := b.driver
	d := request.Driver{
		Name:       driver.Name(),
		Plugin:     map[csi.PluginCapability_Service_Type]bool{},
		Controller: map[csi.ControllerServiceCapability_RPC_Type]bool{},
	}
	for number := range csi.PluginCapability_Service_Type_name {
		if service := csi.PluginCapability_Service_Type(number); driver.Offers(service) {
			d.Plugin[service] = true
		}
	}
	for number := range csi.ControllerServiceCapability_RPC_Type_name {
		if capability := csi.ControllerServiceCapability_RPC_Type(number); driver.Has(capability) {
			d.Controller[capability] = true
		}
	}
	if b.cfg.IgnoreTopology {
		delete(d.Plugin, topologyService)
	}
	return d
}

// Watch keeps what is known of nodes up to date until ctx ends.
func (b *Builder) Watch(ctx context.Context) {
	if b.nodes == nil {
		<-ctx.Done()
		return
	}
	b.nodes.Watch(ctx)
}

// Follow has changed called whenever a node comes, goes or changes its place. It must not block. It is to be called
// before Watch.
func (b *Builder) Follow(changed func()) {
	if b.nodes != nil {
		b.nodes.Follow(changed)
	}
}

// Synced reports whether all nodes are known that there were when Watch began.
func (b *Builder) Synced() bool { return b.nodes == nil || b.nodes.Synced() }

// Permissions are what a Builder needs to be allowed.
func (b *Builder) Permissions() []permission.Permission {
	const storage = "storage.k8s.io"
	var rights []permission.Permission
	driver := b.describe()
	if driver.Controller[csi.ControllerServiceCapability_RPC_MODIFY_VOLUME] {
		rights = append(rights, permission.Permission{Group: storage, Resource: "volumeattributesclasses", Verb: "get",
			Without: "claims that name a VolumeAttributesClass get no volume"})
	}
	if driver.Controller[csi.ControllerServiceCapability_RPC_CLONE_VOLUME] {
		rights = append(rights, permission.Permission{Resource: "persistentvolumeclaims", Verb: "get",
			Without: "no claim is cloned"})
	}
	if b.cfg.Snapshots != nil && driver.Controller[csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT] {
		for _, resource := range []string{"volumesnapshots", "volumesnapshotcontents"} {
			rights = append(rights, snapshot.Permission(resource, "get", "no snapshot is restored"))
		}
		rights = append(rights, snapshot.Permission("volumesnapshots", "update",
			"a VolumeSnapshot can be deleted while a volume is restored from it, and one on which a provisioner left its "+
				"finalizer cannot"))
	}
	if b.cfg.Settings.CrossNamespace {
		rights = append(rights, permission.Permission{Group: "gateway.networking.k8s.io", Resource: "referencegrants",
			Verb: "list", Without: "no claim gets its data from another namespace"})
	}
	if b.nodes == nil || b.cfg.Node != nil { // a node knows itself
		return rights
	}
	rights = append(rights, b.nodes.Permissions(
		"no claim gets a volume, because the driver's nodes are not known")...)
	return append(rights, permission.Permission{Group: storage, Resource: "csinodes", Verb: "get",
		Without: "a node that has just joined counts as one without the driver"})
}

// HasNode implements provision.Locator. A node that the caches do not show is read live. Where topology does not matter
// to the driver, no node does.
func (b *Builder) HasNode(ctx context.Context, name string) (bool, error) {
	if b.nodes == nil {
		return true, nil
	}
	node, err := b.nodes.Node(ctx, name, nil)
	return node != nil && node.Registered, err
}

// PVName returns the name of a claim's PV, and of its volume.
func (b *Builder) PVName(claim types.UID) string {
	name, err := request.VolumeName(b.cfg.Settings, claim)
	if err != nil {
		return "" // of a claim without UID, which no API server has
	}
	return name
}

// Build returns the request for a claim.
func (b *Builder) Build(ctx context.Context, want request.Options) (*inflight.Request, error) {
	f := request.Facts{Claim: want.Claim, Class: want.Class, Driver: b.describe(), Settings: b.cfg.Settings}
	if err := b.driver.Known(); err != nil { // after its capabilities were read
		return nil, fmt.Errorf("build a request: %w", err)
	}
	if f.Driver.Plugin[topologyService] != b.topology {
		return nil, errTopologyChanged
	}
	need, err := request.Needs(f)
	if err != nil {
		return nil, err
	}
	if err := b.gather(ctx, &f, need, want.Node); err != nil {
		return nil, err
	}
	plan, err := request.NewPlan(f)
	if err != nil {
		return nil, err
	}
	if len(plan.Outdated) > 0 {
		klog.FromContext(ctx).V(2).Info("The StorageClass has deprecated parameters; use those that begin with "+
			"csi.storage.k8s.io/", "storageClass", want.Class.Name, "parameters", plan.Outdated)
	}
	o := &inflight.Request{
		Node: want.SelectedNode(), Create: plan.Request, Secret: plan.Secret, MayReschedule: plan.MayReschedule,
		PV: plan.Template, Topology: plan.Topology, Migrated: plan.Migrated,
	}
	if source := plan.Source; source != (request.SourceRef{}) {
		o.Source = &inflight.Source{Kind: string(source.Kind), Namespace: source.Namespace, Name: source.Name,
			UID: source.UID}
	}
	return o, nil
}

// PV returns the PersistentVolume of the volume that the driver made for a request.
func (b *Builder) PV(o inflight.Request, made *csi.Volume) (*v1.PersistentVolume, error) {
	// A driver can have been replaced by one with topology while the request was in flight.
	plan := request.Plan{Request: o.Create, Template: o.PV, Topology: o.Topology || b.topology, Migrated: o.Migrated,
		Driver: b.driver.Name()}
	pv, err := plan.PV(&csi.CreateVolumeResponse{Volume: made})
	if err == nil {
		err = b.checkHere(pv)
	}
	return pv, err
}

// Ignores returns why others provision the claim, nil where they do not.
func (b *Builder) Ignores(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass) error {
	_, err := request.Needs(request.Facts{Claim: claim, Class: class, Driver: b.describe(), Settings: b.cfg.Settings})
	if request.RemediationOf(err) == request.RemediationIgnore {
		return err
	}
	return nil
}

// checkHere refuses a volume that is not said to be on the node that made it, and nowhere else: no node
// would ever delete it.
func (b *Builder) checkHere(pv *v1.PersistentVolume) error {
	if b.cfg.Node == nil || b.cfg.Node.Reach(pv.Spec.NodeAffinity) == volume.ReachHere {
		return nil
	}
	return fmt.Errorf("the driver made a volume that is not in the place of node %q alone, %v (accessible_topology of "+
		"CreateVolume and of NodeGetInfo differ)", b.cfg.Node.Name, b.cfg.Node.Segments)
}

// gather adds to the facts what is needed.
func (b *Builder) gather(ctx context.Context, f *request.Facts, need request.Need, node *v1.Node) (err error) {
	if need.AttributesClass != "" {
		if f.Attributes, f.AttributesUnserved, err = b.attributes(ctx, need.AttributesClass); err != nil {
			return err
		}
	}
	if need.GrantsIn != "" && b.cfg.Grants != nil {
		if f.Source.Grants, err = b.cfg.Grants.In(ctx, need.GrantsIn); err != nil {
			return err
		}
	}
	if need.SourceClaim.Name != "" {
		if f.Source.Claim, f.Source.PV, err = b.source(ctx, need.SourceClaim); err != nil {
			return err
		}
	}
	if need.Snapshot.Name != "" {
		f.Source.Unserved = b.cfg.Snapshots == nil
		if !f.Source.Unserved {
			if f.Source.Snapshot, err = b.cfg.Snapshots.Read(ctx, need.Snapshot); err != nil {
				return err
			}
		}
	}
	if need.SelectedNode != "" {
		if f.Selected, err = b.nodes.Node(ctx, need.SelectedNode, node); err != nil {
			return err
		}
	}
	if need.Nodes {
		f.Nodes, err = b.nodes.Nodes()
	}
	return err
}

// source reads a claim and the PV that it is bound to.
func (b *Builder) source(ctx context.Context, name types.NamespacedName) (*v1.PersistentVolumeClaim,
	*v1.PersistentVolume, error) {
	claim, err := b.clients.Core.PersistentVolumeClaims(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	claim, err = orNil(claim, err, "claim", name.String())
	if err != nil || claim == nil || claim.Spec.VolumeName == "" {
		return claim, nil, err
	}
	pv, err := b.clients.Core.PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	pv, err = orNil(pv, err, "PV", claim.Spec.VolumeName)
	return claim, pv, err
}

// orNil makes the answer that there is no such object nil, as which it is a fact.
func orNil[T any](object *T, err error, kind, name string) (*T, error) {
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s %q: %w", kind, name, err)
	}
	return object, nil
}
