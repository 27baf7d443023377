package explain

import "regexp"

// uuidName matches the names that provisioners give to volumes: a prefix and a UUID.
var uuidName = regexp.MustCompile(`^(.*?[0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// ShortName shortens the name of a provisioned PV to its prefix and the first part of its UUID, "pvc-8a5c0f1e…". Any
// other name stays whole. It is for places where the claim identifies the PV.
func ShortName(pv string) string {
	if of := uuidName.FindStringSubmatch(pv); of != nil {
		return of[1] + "…"
	}
	return pv
}
