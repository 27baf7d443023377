// Package builder builds the CreateVolume requests of claims for a real cluster and driver. It reads the facts from
// which package request decides.
//
// Stability: for embedders. Until version 1.0 it changes only with a minor release, and CHANGELOG.md lists each change.
package builder

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
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

// errTopologyChanged means that a request would have a wrong topology.
var errTopologyChanged = errors.New("build a request: whether the driver reports topology " +
	"(VOLUME_ACCESSIBILITY_CONSTRAINTS) has changed since the start")

// Capable reports the capabilities that a driver currently advertises; csidriver.Driver is one, and Fixed
// another.
type Capable interface {
	Name() string
	// Known returns an error while the driver's capabilities are unknown.
	Known() error
	Has(capability csi.ControllerServiceCapability_RPC_Type) bool
	Offers(service csi.PluginCapability_Service_Type) bool
}

// Snapshots reads VolumeSnapshots; snapshot.Reader is one.
type Snapshots interface {
	// Read reads a snapshot live, with its content; nil if it does not exist, or an error that names the object.
	Read(ctx context.Context, name types.NamespacedName) (*request.Snapshot, error)
}

// Grants reads ReferenceGrants; grants.Reader is one.
type Grants interface {
	// In lists the ReferenceGrants of a namespace live. An error means that the grants are unknown.
	In(ctx context.Context, namespace string) ([]request.Grant, error)
}

// Config holds the settings of a Builder, and its zero value is usable.
type Config struct {
	// Settings are the flags that volumes depend on.
	Settings request.Settings
	// Snapshots reads VolumeSnapshots; if nil, claims with a snapshot as source get no volume.
	Snapshots Snapshots
	// Grants reads ReferenceGrants, which Settings.CrossNamespace requires; if nil, no source is granted.
	Grants Grants
	// Node is the only node on which volumes are created. Default nil: all nodes of the cluster.
	Node *volume.Node
	// Nodes lists the topology of the driver's nodes; the Builder watches it. Default: a Lister of Node or, if that is
	// nil, of the driver's nodes.
	Nodes *nodes.Lister
	// IgnoreTopology treats the driver's volumes as accessible from all nodes, even if the driver reports topology.
	IgnoreTopology bool
}

// Builder builds requests with package request, and reads the objects that a request depends on. Objects of a single
// claim are read live; the nodes are watched if the driver reports topology. A failed read is not a fact: Build returns
// its error instead of a request.
type Builder struct {
	cfg    Config
	driver Capable
	client kubernetes.Interface
	// topology means that volumes are not accessible from all nodes. It is constant, because the nodes are watched only
	// then.
	topology bool
	// nodes is nil if the topology of nodes does not matter.
	nodes *nodes.Lister
}

// New returns the RequestBuilder of a driver on the cluster of config, which is copied, without starting a watch. The
// driver's capabilities except topology may change while the Builder is used.
func New(config *rest.Config, driver Capable, cfg Config) (*Builder, error) {
	if config == nil {
		return nil, errors.New("create a request builder: nil rest.Config")
	}
	client, err := kube.NewClientset(config)
	if err != nil {
		return nil, err
	}
	return NewForClient(client, driver, cfg)
}

// NewForClient is New with a client that the caller has made, such as a fake clientset in a test.
func NewForClient(client kubernetes.Interface, driver Capable, cfg Config) (*Builder, error) {
	switch {
	case client == nil:
		return nil, errors.New("create a request builder: nil client")
	case driver == nil:
		return nil, errors.New("create a request builder: nil driver")
	}
	if err := cfg.Settings.Validate(); err != nil {
		return nil, fmt.Errorf("create a request builder: %w", err)
	}
	switch {
	case cfg.Nodes == nil && cfg.Node != nil:
		cfg.Nodes = nodes.At(cfg.Node.Name, cfg.Node.Segments)
	case cfg.Nodes == nil:
		cfg.Nodes = nodes.NewForClient(client, driver.Name())
	}
	b := &Builder{cfg: cfg, driver: driver, client: client}
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

// Node returns Config.Node, nil for the whole cluster.
func (b *Builder) Node() *volume.Node { return b.cfg.Node }

// describe returns the capabilities of the driver that CSI knows, as currently advertised.
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

// Watch keeps the nodes up to date until ctx ends.
func (b *Builder) Watch(ctx context.Context) {
	if b.nodes == nil {
		<-ctx.Done()
		return
	}
	b.nodes.Watch(ctx)
}

// Follow registers changed, which is called whenever a node appears, disappears or changes its topology, and must not
// block. Follow must be called before Watch.
func (b *Builder) Follow(changed func()) {
	if b.nodes != nil {
		b.nodes.Follow(changed)
	}
}

// Synced reports whether all nodes are known that existed when Watch began.
func (b *Builder) Synced() bool { return b.nodes == nil || b.nodes.Synced() }

// Permissions returns the permissions that a Builder needs.
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

// HasNode implements provision.Locator, and reads a node live that the caches do not show. HasNode always returns true
// if the driver does not report topology.
func (b *Builder) HasNode(ctx context.Context, name string) (bool, error) {
	if b.nodes == nil {
		return true, nil
	}
	node, err := b.nodes.Node(ctx, name, nil)
	return node != nil && node.Registered, err
}

// PVName returns the name of a claim's PV and volume.
func (b *Builder) PVName(claim types.UID) string {
	name, err := request.VolumeName(b.cfg.Settings, claim)
	if err != nil {
		return "" // for a claim without UID, which no API server has
	}
	return name
}

// Build returns the request for a claim.
func (b *Builder) Build(ctx context.Context, want request.Options) (*inflight.Request, error) {
	f := request.Facts{Name: want.Name, Claim: want.Claim, Class: want.Class, Driver: b.describe(),
		Settings: b.cfg.Settings}
	if err := b.driver.Known(); err != nil { // after the capabilities were read
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
		klog.FromContext(ctx).V(2).Info("The StorageClass has deprecated parameters; use the ones with the prefix "+
			"csi.storage.k8s.io/", "storageClass", want.Class.Name, "parameters", plan.Outdated)
	}
	o := &inflight.Request{
		Node: want.SelectedNode(), Create: plan.Request, Secret: plan.Secret, MayReschedule: plan.MayReschedule,
		PV: plan.Template, Topology: plan.Topology, Migrated: plan.Migrated,
	}
	if source := plan.Source; source != (volume.SourceRef{}) {
		o.Source = &source
	}
	return o, nil
}

// PV returns the PersistentVolume of the volume that the driver created for a request.
func (b *Builder) PV(o inflight.Request, made *csi.Volume) (*v1.PersistentVolume, error) {
	// The driver may have been replaced by a version with topology while the request was in flight.
	plan := request.Plan{Request: o.Create, Template: o.PV, Topology: o.Topology || b.topology, Migrated: o.Migrated,
		Driver: b.driver.Name()}
	pv, err := plan.PV(&csi.CreateVolumeResponse{Volume: made})
	if err == nil {
		err = b.checkHere(pv)
	}
	return pv, err
}

// Ignores returns an error if another program provisions the claim, and otherwise nil.
func (b *Builder) Ignores(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass) error {
	_, err := request.Needs(request.Facts{Claim: claim, Class: class, Driver: b.describe(), Settings: b.cfg.Settings})
	if request.RemediationOf(err) == request.RemediationIgnore {
		return err
	}
	return nil
}

// checkHere refuses a volume whose topology is not exactly the node that created it, because no node would ever delete
// it.
func (b *Builder) checkHere(pv *v1.PersistentVolume) error {
	if b.cfg.Node == nil || b.cfg.Node.Reach(pv.Spec.NodeAffinity) == volume.ReachHere {
		return nil
	}
	return fmt.Errorf("the driver made a volume that is not in the place of node %q alone, %v (accessible_topology of "+
		"CreateVolume and of NodeGetInfo differ)", b.cfg.Node.Name, b.cfg.Node.Segments)
}

// gather reads the needed objects and adds them to the facts.
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

func (b *Builder) source(ctx context.Context, name types.NamespacedName) (*v1.PersistentVolumeClaim,
	*v1.PersistentVolume, error) {
	core := b.client.CoreV1()
	claim, err := kube.Read(ctx, kube.Claim, name.Namespace, name.Name,
		core.PersistentVolumeClaims(name.Namespace).Get)
	if err != nil || claim == nil || claim.Spec.VolumeName == "" {
		return claim, nil, err
	}
	pv, err := kube.Read(ctx, kube.PV, "", claim.Spec.VolumeName, core.PersistentVolumes().Get)
	return claim, pv, err
}

// attributes reads a VolumeAttributesClass, nil if it does not exist. Only for a missing class, and each time anew, it
// asks whether the API server serves the kind, because the cluster may be upgraded in between.
func (b *Builder) attributes(ctx context.Context, name string) (_ *storagev1.VolumeAttributesClass, unserved bool,
	err error) {
	class, err := b.client.StorageV1().VolumeAttributesClasses().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		return class, false, nil
	case !apierrors.IsNotFound(err):
		return nil, false, fmt.Errorf("read VolumeAttributesClass %q: %w", name, err)
	}
	served, err := b.ServesAttributesClasses(ctx)
	return nil, !served, err
}

// ServesAttributesClasses asks the API server's discovery whether it serves VolumeAttributesClasses in
// storage.k8s.io/v1, as Kubernetes 1.34 and newer do. Every authenticated user may read the discovery.
func (b *Builder) ServesAttributesClasses(ctx context.Context) (bool, error) {
	list, err := discovery.ToServerResourcesInterfaceWithContext(b.client.Discovery()).
		ServerResourcesForGroupVersionWithContext(ctx, storagev1.SchemeGroupVersion.String())
	if err != nil {
		return false, fmt.Errorf("ask whether VolumeAttributesClasses are served: %w", err)
	}
	return slices.ContainsFunc(list.APIResources,
		func(r metav1.APIResource) bool { return r.Name == "volumeattributesclasses" }), nil
}

// Fixed is the Capable of a driver whose capabilities never change, such as one that calls its storage system without
// CSI. It creates and deletes volumes, and the fields have its further capabilities.
type Fixed struct {
	// Driver is the driver's name, which its PVs have as spec.csi.driver. Required.
	Driver string
	// Controller lists further capabilities, such as CLONE_VOLUME. Default none.
	Controller []csi.ControllerServiceCapability_RPC_Type
	// Topology means that not every node can use every volume. Then a request has the topology segments of nodes, as the
	// driver's kubelet plugin registers them in the CSINodes, and CreateVolume returns those of the volume.
	Topology bool
}

// Name returns the driver's name.
func (f Fixed) Name() string { return f.Driver }

// Known returns an error if the driver has no name.
func (f Fixed) Known() error {
	if f.Driver == "" {
		return errors.New("the driver's name is empty")
	}
	return nil
}

// Has reports whether the driver has a capability of CSI's controller service.
func (f Fixed) Has(capability csi.ControllerServiceCapability_RPC_Type) bool {
	return capability == csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME ||
		slices.Contains(f.Controller, capability)
}

// Offers reports whether the driver has a capability of a CSI plugin.
func (f Fixed) Offers(service csi.PluginCapability_Service_Type) bool {
	return service == csi.PluginCapability_Service_CONTROLLER_SERVICE || f.Topology && service == topologyService
}
