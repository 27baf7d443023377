package request

import (
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
)

// Plan is one volume to be made. It keeps no reference to the facts it was planned from, and
// nothing changes it: once its request was sent, the same plan can be sent again until the
// outcome is known, also when facts have changed since and NewPlan would refuse.
type Plan struct {
	// Request is what is asked of the driver, but for the secrets, so that it can be logged.
	Request *csi.CreateVolumeRequest
	// Secret is to be read for CreateVolume, and for the DeleteVolume that takes it back. Nil:
	// none is needed. A Secret that is named and not there is no reason to continue without.
	Secret *v1.SecretReference
	// Source is the snapshot or claim that is read while the volume is made, and which has to stay for
	// as long. The zero value: none.
	Source SourceRef
	// Migrated: the class is one of an in-tree plugin.
	Migrated bool
	// MayReschedule: where the driver has no room (ResourceExhausted), another node may do.
	MayReschedule bool
	// Outdated are parameters of the class that have a newer name, for a warning.
	Outdated []string

	// Driver is the driver's name, and Topology reports whether its volumes are not equally reachable
	// from all nodes: if they are, accessible_topology of its answers means nothing.
	Driver   string
	Topology bool
	// Template is the PV but for what the driver's answer adds: handle, attributes, capacity and
	// node affinity.
	Template *v1.PersistentVolume
}

// NewPlan returns the plan for a claim, or an *Error that says why there is none. Such an error
// says nothing about a CreateVolume that was sent before.
func NewPlan(f Facts) (Plan, error) {
	provisioner := ""
	if f.Class != nil {
		provisioner = f.Class.Provisioner
	}
	f, source, err := f.prepared()
	if err != nil {
		return Plan{}, err
	}
	o := Plan{Driver: f.Driver.Name, Topology: f.Driver.topology(), Migrated: f.migrates()}
	o.MayReschedule = o.Topology && f.selectedNode() != ""
	o.Source = source.withUID(f.Source)
	name, err := VolumeName(f.Settings, f.Claim.UID)
	if err != nil {
		return Plan{}, err
	}
	p, err := parametersOf(f.Class.Parameters)
	if err != nil {
		return Plan{}, err
	}
	o.Outdated = p.outdated
	if p.fsType == "" {
		p.fsType = f.Settings.DefaultFSType
	}
	if o.Request, err = f.request(name, source, p); err != nil {
		return Plan{}, err
	}
	secrets, err := f.secrets(name)
	if err != nil {
		return Plan{}, err
	}
	o.Secret = secrets.provisioner
	o.Template = f.volume(o.Request, p.fsType, secrets, provisioner)
	return o, nil
}

// request returns what the driver is asked (CSI spec, "CreateVolume"). There is no upper limit to
// the size: claims have none that Kubernetes would hold them to, and PVs may be larger.
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

// WithSecrets returns the request with the Secret's data, to be sent and never to be logged.
func (o Plan) WithSecrets(data map[string]string) *csi.CreateVolumeRequest {
	request := proto.CloneOf(o.Request)
	request.Secrets = maps.Clone(data)
	return request
}
