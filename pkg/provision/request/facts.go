package request

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Facts describe a claim and the objects from which its request is built, and are never changed. Needs returns the
// optional facts that are required.
//
// Nil stands for an object that does not exist. A failed read is not a fact: the caller returns its error and makes no
// plan.
type Facts struct {
	// Name is the name of the volume and PV. Default: the result of VolumeName.
	Name string
	// Claim and Class are required, where Class is the untranslated object of the API server.
	Claim *v1.PersistentVolumeClaim
	Class *storagev1.StorageClass
	// Attributes is the VolumeAttributesClass that the claim names.
	Attributes *storagev1.VolumeAttributesClass
	// AttributesUnserved means that the API server does not serve VolumeAttributesClasses.
	AttributesUnserved bool
	// Source has the facts about the source of the claim's data.
	Source Source

	// Selected is the node of the claim's annotation selected-node.
	Selected *topology.Node
	// Nodes lists all nodes, in any order.
	Nodes []topology.Node

	Driver   Driver
	Settings Settings
}

// Driver holds the driver's identity and capabilities.
type Driver struct {
	// Name is the name from GetPluginInfo.
	Name string
	// Plugin has the capabilities from GetPluginCapabilities.
	Plugin map[csi.PluginCapability_Service_Type]bool
	// Controller has the capabilities from ControllerGetCapabilities.
	Controller map[csi.ControllerServiceCapability_RPC_Type]bool
}

// topology reports whether the accessibility of the driver's volumes depends on the node.
func (d Driver) topology() bool {
	return d.Plugin[csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS]
}

// claimName returns the claim's name for messages.
func (f Facts) claimName() string { return f.Claim.Namespace + "/" + f.Claim.Name }

// size returns the requested size in bytes, rounded up. checkClaim refuses a size that CSI cannot express.
func (f Facts) size() int64 {
	request := f.Claim.Spec.Resources.Requests[v1.ResourceStorage]
	return request.Value()
}

// block reports whether the claim requests a block device instead of a filesystem.
func block(mode *v1.PersistentVolumeMode) bool { return modeName(mode) == v1.PersistentVolumeBlock }

// modeName returns the name of a volume mode; nil is Filesystem (core/v1).
func modeName(mode *v1.PersistentVolumeMode) v1.PersistentVolumeMode {
	return ptr.Deref(mode, v1.PersistentVolumeFilesystem)
}

// Options is a claim that gets a volume, with the objects that its request depends on.
type Options struct {
	// Name is the name of the volume and PV, because a claim keeps the name of its first request. Default: the result of
	// VolumeName.
	Name string
	// Claim and Class are shared with the watch caches and must not be changed. Required.
	Claim *v1.PersistentVolumeClaim
	Class *storagev1.StorageClass
	// Node is the node that the scheduler selected, nil if none was selected or it was not read.
	Node *v1.Node
}

// SelectedNode returns the name of the claim's selected node, empty if none is selected.
func (o Options) SelectedNode() string { return o.Claim.Annotations[volume.AnnSelectedNode] }

// uuidDigits is the number of characters in a UUID without dashes.
const uuidDigits = 32

// Settings are the flags that volumes depend on, with the names and, in the zero value, the defaults of
// external-provisioner.
type Settings struct {
	// VolumeNamePrefix begins the names of PVs and volumes (--volume-name-prefix). Default "pvc".
	VolumeNamePrefix string
	// VolumeNameUUIDLength is the number of characters of the claim's UID, without dashes, at the end of the names
	// (--volume-name-uuid-length), 1 to 32. 0 and -1 use the whole UID with dashes. With few characters two claims may get
	// the same name and then request one volume.
	VolumeNameUUIDLength int
	// DefaultFSType is the filesystem if the class names none (--default-fstype); if it is empty, the driver decides.
	DefaultFSType string
	// ExtraCreateMetadata passes the names of claim and PV to the driver (--extra-create-metadata).
	ExtraCreateMetadata bool
	// StrictTopology requests only the topology segment of the selected node (--strict-topology).
	StrictTopology bool
	// SkipImmediateTopology leaves the topology to the driver while no node is selected and the class does not restrict it
	// (--immediate-topology=false).
	SkipImmediateTopology bool
	// AllowModeConversion restores a snapshot with another volume mode without a check
	// (--prevent-volume-mode-conversion=false).
	AllowModeConversion bool
	// CrossNamespace lets a claim take its data from another namespace if a ReferenceGrant allows it
	// (--feature-gates=CrossNamespaceVolumeDataSource=true).
	CrossNamespace bool
	// ControllerPublishReadOnly attaches volumes read-only if their only access mode is ReadOnlyMany
	// (--controller-publish-readonly).
	ControllerPublishReadOnly bool
	// NoAttributesClass refuses claims that name a VolumeAttributesClass
	// (--feature-gates=VolumeAttributesClass=false).
	NoAttributesClass bool
	// Identity is written to the attributes of each volume, so that people can find the process that created it, and may
	// differ between processes. If empty, the attribute is not set.
	Identity string
}

func (s Settings) withDefaults() Settings {
	s.VolumeNamePrefix = cmp.Or(s.VolumeNamePrefix, "pvc")
	s.VolumeNameUUIDLength = cmp.Or(s.VolumeNameUUIDLength, -1)
	return s
}

// Validate returns an error that lists every invalid setting.
func (s Settings) Validate() error {
	full := s.withDefaults()
	var wrong []error
	if problems := validation.IsDNS1123Subdomain(full.VolumeNamePrefix + "-0"); len(problems) > 0 {
		wrong = append(wrong, fmt.Errorf("volume name prefix: %q cannot begin the name of a PersistentVolume: %s",
			s.VolumeNamePrefix, problems[0]))
	}
	if n := full.VolumeNameUUIDLength; n < -1 || n > uuidDigits {
		wrong = append(wrong, fmt.Errorf("volume name UUID length: %d is neither -1 nor within 1 and %d", n, uuidDigits))
	}
	return errors.Join(wrong...)
}

// VolumeName returns the name of a claim's PV, which is also the volume's name in CreateVolume. It depends on the
// claim's UID and the settings only, so it can be derived after the claim is gone. An error has the reason
// ReasonClaimInvalid.
func VolumeName(s Settings, claim types.UID) (string, error) {
	s = s.withDefaults()
	id := string(claim)
	if s.VolumeNameUUIDLength >= 0 {
		id = strings.ReplaceAll(id, "-", "")
		id = id[:min(len(id), s.VolumeNameUUIDLength)]
	}
	if id == "" {
		return "", refuse(ReasonClaimInvalid,
			"the claim has no UID, by which its volume is named; it was not read from an API server")
	}
	return s.VolumeNamePrefix + "-" + id, nil
}

// volumeName returns the name of the volume, which the settings form unless the facts have one.
func (f Facts) volumeName() (string, error) {
	if f.Name != "" {
		return f.Name, nil
	}
	return VolumeName(f.Settings, f.Claim.UID)
}

// IsVolumeName reports whether VolumeName returns a name for the claim with any settings.
func IsVolumeName(name string, claim types.UID) bool {
	id := name[strings.LastIndexByte(name, '-')+1:]
	whole := strings.HasSuffix(name, "-"+string(claim))
	part := id != name && strings.HasPrefix(strings.ReplaceAll(string(claim), "-", ""), id)
	return claim != "" && id != "" && (whole || part)
}
