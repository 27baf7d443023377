package request

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

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
