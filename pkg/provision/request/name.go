package request

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// VolumeName returns the name of a claim's PV, which is also that of its volume when the driver
// is asked to create it. It depends on the claim's UID and the settings alone, so that it can be
// derived when nothing else is left of a claim. An error is ReasonClaimInvalid.
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
