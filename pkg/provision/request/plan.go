package request

import (
	"cmp"
	"errors"
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Need lists the objects to read before NewPlan. It does not include the Secret, whose name NewPlan returns.
type Need struct {
	// Snapshot and SourceClaim name the source of the claim's data, which is read with its content or PV; at most one is
	// set.
	Snapshot, SourceClaim types.NamespacedName
	// GrantsIn is the namespace whose ReferenceGrants are needed, empty for none.
	GrantsIn string
	// AttributesClass is the name of a VolumeAttributesClass, empty for none.
	AttributesClass string
	// SelectedNode is the name of a node that is needed with its CSINode, empty for none.
	SelectedNode string
	// Nodes means that all nodes and CSINodes are needed.
	Nodes bool
}

// Needs returns the objects to read for the plan. It uses only Claim, Class, Driver and Settings, and returns an error
// if these suffice to refuse the claim.
func Needs(f Facts) (Need, error) {
	f, source, err := f.prepared()
	if err != nil {
		return Need{}, err
	}
	var need Need
	if f.readsAttributes() {
		need.AttributesClass = f.attributesClass()
	}
	if source != (volume.SourceRef{}) && source.Namespace != f.Claim.Namespace {
		need.GrantsIn = source.Namespace
	}
	switch source.Kind {
	case volume.SourceSnapshot:
		need.Snapshot = nameOf(source)
	case volume.SourceClaim:
		need.SourceClaim = nameOf(source)
	case volume.SourceNone:
	}
	if f.Driver.topology() {
		need.SelectedNode = f.selectedNode()
		where := f.where()
		if need.SelectedNode != "" {
			where.Selected = &topology.Node{Name: need.SelectedNode}
		}
		need.Nodes = where.NeedsNodes()
	}
	return need, nil
}

// prepared makes the checks of Needs and NewPlan that need no further reads. The returned facts have a class in CSI
// terms, and settings with defaults.
func (f Facts) prepared() (Facts, volume.SourceRef, error) {
	none := volume.SourceRef{}
	f.Settings = f.Settings.withDefaults()
	for _, check := range []func() error{f.checkOurs, f.checkClass, f.checkClaim} {
		if err := check(); err != nil {
			return f, none, err
		}
	}
	source, err := f.sourceRef()
	if err != nil {
		return f, none, err
	}
	if err := f.checkDriver(source); err != nil {
		return f, none, err
	}
	if f.Class, err = f.translatedClass(); err != nil {
		return f, none, err
	}
	return f, source, nil
}

// Plan is one volume to create, immutable and without references to the facts. Once its request was sent, the same plan
// can be sent again until the outcome is known, even if the facts have changed and NewPlan would now fail.
type Plan struct {
	// Request is the request to the driver without its secrets, so that it can be logged.
	Request *csi.CreateVolumeRequest
	// Secret is the Secret for CreateVolume, and for the DeleteVolume that reverts it, nil if none is needed. The calls
	// must not be made without a missing Secret.
	Secret *v1.SecretReference
	// Source is the snapshot or claim that the volume is created from, and that has to exist until then. The zero value
	// stands for an empty volume.
	Source volume.SourceRef
	// Migrated means that the class belongs to an in-tree plugin.
	Migrated bool
	// MayReschedule means that another node may have room when the driver answers ResourceExhausted.
	MayReschedule bool
	// Outdated lists the deprecated parameters of the class, for a warning.
	Outdated []string

	// Driver is the driver's name. Topology reports whether the accessibility of its volumes depends on the node;
	// otherwise accessible_topology in its answers is ignored.
	Driver   string
	Topology bool
	// Template is the PV without the fields that the driver's answer adds: handle, attributes, capacity and node affinity.
	Template *v1.PersistentVolume
}

// NewPlan returns the plan for a claim, or an *Error with the reason. The error proves nothing about a CreateVolume
// that was sent before.
func NewPlan(f Facts) (Plan, error) {
	f, source, err := f.prepared()
	if err != nil {
		return Plan{}, err
	}
	o := Plan{Driver: f.Driver.Name, Topology: f.Driver.topology(), Migrated: f.migrates()}
	o.MayReschedule = o.Topology && f.selectedNode() != ""
	o.Source = withUID(source, f.Source)
	name, err := f.volumeName()
	if err != nil {
		return Plan{}, err
	}
	p, err := parametersOf(f.Class.Parameters)
	if err != nil {
		return Plan{}, err
	}
	o.Outdated = p.outdated
	p.fsType = cmp.Or(p.fsType, f.Settings.DefaultFSType)
	if o.Request, err = f.request(name, source, p); err != nil {
		return Plan{}, err
	}
	secrets, err := f.secrets(name)
	if err != nil {
		return Plan{}, err
	}
	o.Secret = secrets.provisioner
	o.Template = f.volume(o.Request, p.fsType, secrets)
	return o, nil
}

// request returns the request to the driver (CSI spec, "CreateVolume"). It sets no upper limit of the size: Kubernetes
// enforces none for claims, and PVs may be larger.
func (f Facts) request(name string, source volume.SourceRef,
	p parameters) (request *csi.CreateVolumeRequest, err error) {
	request = &csi.CreateVolumeRequest{
		Name:          name,
		CapacityRange: &csi.CapacityRange{RequiredBytes: f.size()},
		Parameters:    maps.Clone(p.forDriver),
	}
	if f.Settings.ExtraCreateMetadata {
		request.Parameters[parameterClaimName] = f.Claim.Name
		request.Parameters[parameterClaimNamespace] = f.Claim.Namespace
		request.Parameters[parameterPVName] = name
	}
	if request.VolumeCapabilities, err = f.capabilities(p.fsType); err != nil {
		return nil, err
	}
	if request.MutableParameters, err = f.mutableParameters(); err != nil {
		return nil, err
	}
	if request.VolumeContentSource, err = f.contentSource(source); err != nil {
		return nil, err
	}
	if request.AccessibilityRequirements, err = f.requirement(); err != nil {
		return nil, err
	}
	return request, nil
}

// where returns the facts about the volume's topology.
func (f Facts) where() topology.Facts {
	return topology.Facts{
		Claim: f.Claim.Name, Allowed: f.Class.AllowedTopologies, Selected: f.Selected, Nodes: f.Nodes,
		Strict: f.Settings.StrictTopology, SkipImmediate: f.Settings.SkipImmediateTopology,
	}
}

// requirement returns the volume's topology requirement, nil if the driver's volumes are accessible from all nodes.
func (f Facts) requirement() (*csi.TopologyRequirement, error) {
	if !f.Driver.topology() {
		return nil, nil
	}
	where, selected := f.where(), f.selectedNode()
	switch {
	case selected == "":
		where.Selected = nil
	case f.Selected == nil || f.Selected.Name != selected:
		return nil, refuse(ReasonNodeUnfit,
			"node %q, selected for claim %q, does not exist; another node must be selected", selected, f.claimName())
	}
	requirement, err := topology.Require(where)
	switch {
	case err == nil:
		return requirement, nil
	case errors.Is(err, topology.ErrNode):
		return nil, refuse(ReasonNodeUnfit, "claim %q: %w; another node must be selected", f.claimName(), err)
	case errors.Is(err, topology.ErrClass):
		return nil, refuse(ReasonTopologyUnknown, "claim %q: %w; the claim needs a StorageClass whose allowedTopologies "+
			"name keys of the driver's CSINode objects", f.claimName(), err)
	case errors.Is(err, topology.ErrKeys):
		return nil, refuse(ReasonTopologyUnknown, "claim %q: %w; have its node part report a topology, or set "+
			"--feature-gates=Topology=false if all nodes reach its volumes", f.claimName(), err)
	default:
		return nil, refuse(ReasonTopologyUnknown,
			"claim %q: %w; check that the driver's node pods run, and check its CSINode objects", f.claimName(), err)
	}
}
