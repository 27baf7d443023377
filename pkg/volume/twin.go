package volume

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	// maxName is how long the name of a PV can be (a DNS subdomain, RFC 1123).
	maxName = 253
	// twinSuffix ends the name of every twin.
	twinSuffix = "-reclaim"
)

// TwinName returns the name of the twin of the PV with this name. The twin is found by it after a restart, and the API
// server refuses a second. A name that would be too long is cut, and a hash of the whole replaces what is lost.
func TwinName(pv string) string {
	if len(pv)+len(twinSuffix) <= maxName {
		return pv + twinSuffix
	}
	sum := sha256.Sum256([]byte(pv))
	hash := "-" + hex.EncodeToString(sum[:8])
	// A part of a name ends with a letter or a digit.
	head := strings.TrimRight(pv[:maxName-len(hash)-len(twinSuffix)], ".-")
	return head + hash + twinSuffix
}

// IsTwinOf reports whether the PV is the twin of another: a second name of the same volume, made only to have it
// deleted. The label alone does not say so: it comes along where a twin is copied to a PV of another name, or edited
// for another claim.
func (pv PV) IsTwinOf(original PV) bool {
	return pv.TwinOf != "" && pv.TwinOf == original.UID && pv.Name == TwinName(original.Name) &&
		pv.Claim == original.Claim
}
