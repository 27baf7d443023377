package request

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
)

// uuidDigits is how many characters a UUID has without its dashes.
const uuidDigits = 32

// Settings are the flags that volumes depend on, named as external-provisioner's. The zero value
// is what that does without flags.
type Settings struct {
	// VolumeNamePrefix begins the names of PVs and volumes (--volume-name-prefix). Default "pvc".
	VolumeNamePrefix string
	// VolumeNameUUIDLength is how many characters of the claim's UID, without dashes, end the
	// names (--volume-name-uuid-length), 1 to 32. 0 and -1 take all, with dashes. Few characters
	// may be the same for two claims, which then ask for one volume.
	VolumeNameUUIDLength int
	// DefaultFSType is the filesystem where the class names none (--default-fstype). Empty
	// leaves it to the driver.
	DefaultFSType string
	// ExtraCreateMetadata passes the names of claim and PV to the driver (--extra-create-metadata).
	ExtraCreateMetadata bool
	// StrictTopology asks for the selected node's place and no other (--strict-topology).
	StrictTopology bool
	// SkipImmediateTopology leaves the place to the driver while no node is selected and the
	// class restricts none (--immediate-topology=false).
	SkipImmediateTopology bool
	// AllowModeConversion restores a snapshot of a filesystem as a device and the other way
	// round without asking (--prevent-volume-mode-conversion=false).
	AllowModeConversion bool
	// CrossNamespace lets a claim take its data from another namespace where a ReferenceGrant allows it
	// (--feature-gates=CrossNamespaceVolumeDataSource=true).
	CrossNamespace bool
	// ControllerPublishReadOnly attaches volumes read-only whose only access mode is
	// ReadOnlyMany (--controller-publish-readonly).
	ControllerPublishReadOnly bool
	// NoAttributesClass refuses claims that name a VolumeAttributesClass
	// (--feature-gates=VolumeAttributesClass=false).
	NoAttributesClass bool
	// Identity is noted in the attributes of each volume, for people who look for the process
	// that made it. It may differ from process to process. Empty notes nothing.
	Identity string
}

func (s Settings) withDefaults() Settings {
	if s.VolumeNamePrefix == "" {
		s.VolumeNamePrefix = "pvc"
	}
	if s.VolumeNameUUIDLength == 0 {
		s.VolumeNameUUIDLength = -1
	}
	return s
}

// Validate returns every setting that is wrong.
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
