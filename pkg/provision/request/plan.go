package request

import (
	"cmp"
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
)

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
	Source SourceRef
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
	o.Source = source.withUID(f.Source)
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
func (f Facts) request(name string, source SourceRef, p parameters) (request *csi.CreateVolumeRequest, err error) {
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

// WithSecrets returns the request with the Secret's data, which must not be logged.
func (o Plan) WithSecrets(data map[string]string) *csi.CreateVolumeRequest {
	request := proto.CloneOf(o.Request)
	request.Secrets = maps.Clone(data)
	return request
}
