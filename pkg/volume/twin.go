package volume

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	// maxName is the maximum length of a PV name (a DNS subdomain, RFC 1123).
	maxName    = 253
	twinSuffix = "-reclaim"
)

// TwinName returns the name of the twin of the PV with this name. A restart finds the twin by its name, and the API
// server refuses a second. A name that would be too long is cut, and a hash of the whole name replaces the lost part.
func TwinName(pv string) string {
	if len(pv)+len(twinSuffix) <= maxName {
		return pv + twinSuffix
	}
	sum := sha256.Sum256([]byte(pv))
	hash := "-" + hex.EncodeToString(sum[:8])
	// Each part of a DNS name must end with a letter or a digit.
	head := strings.TrimRight(pv[:maxName-len(hash)-len(twinSuffix)], ".-")
	return head + hash + twinSuffix
}

// IsTwinOf reports whether the PV is the twin of another: a second name of the same volume, created only to have it
// deleted. The label alone is no proof, because it remains when a twin is copied to a PV with another name or edited
// for another claim.
func (pv PV) IsTwinOf(original PV) bool {
	return pv.TwinOf != "" && pv.TwinOf == original.UID && pv.Name == TwinName(original.Name) &&
		pv.Claim == original.Claim
}
