package request

import (
	"maps"
	"slices"
	"strings"
)

// reserved begins the keys of a StorageClass that are for sidecars and not for the driver
// (external-provisioner's csiParameterPrefix).
const reserved = "csi.storage.k8s.io/"

// Parameters that the driver gets with --extra-create-metadata.
const (
	parameterClaimName      = reserved + "pvc/name"
	parameterClaimNamespace = reserved + "pvc/namespace"
	parameterPVName         = reserved + "pv/name"
)

// parameters are what a StorageClass says, taken apart.
type parameters struct {
	// forDriver is without what is for sidecars. Deprecated keys, which have no prefix, are left in:
	// drivers have come to read them.
	forDriver map[string]string
	// fsType is the filesystem that the class names, empty for none.
	fsType string
	// outdated are the deprecated keys that are there, in alphabetical order.
	outdated []string
}

// parametersOf takes a class's parameters apart. A reserved key that is not known is an error:
// it would be meant for the provisioner and have no effect. So are two filesystems, also if they
// are the same.
func parametersOf(class map[string]string) (parameters, error) {
	p := parameters{forDriver: map[string]string{}}
	known := secretKeys()
	var fsTypeKeys []string
	for _, key := range slices.Sorted(maps.Keys(class)) {
		value := class[key]
		today, ofSecret := known[key]
		switch {
		case key == reserved+"fstype":
			fsTypeKeys, p.fsType = append(fsTypeKeys, key), value
			continue
		case strings.ToLower(key) == "fstype":
			fsTypeKeys, p.fsType = append(fsTypeKeys, key), value
			p.outdated = append(p.outdated, key)
		case ofSecret && today:
			continue
		case ofSecret:
			p.outdated = append(p.outdated, key)
		case strings.HasPrefix(key, reserved):
			return parameters{}, refuse(ReasonParameterInvalid,
				"parameter %q is not known, and %s is reserved; correct it in a new StorageClass", key, reserved)
		}
		p.forDriver[key] = value
	}
	if len(fsTypeKeys) > 1 {
		return parameters{}, refuse(ReasonParameterInvalid,
			"parameters %q all name the filesystem; leave one of them, %sfstype, in a new StorageClass", fsTypeKeys, reserved)
	}
	return p, nil
}
