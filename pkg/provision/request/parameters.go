package request

import (
	"maps"
	"slices"
	"strings"
)

// reserved begins the keys of StorageClass parameters for sidecars, which the driver does not get
// (external-provisioner's csiParameterPrefix).
const reserved = "csi.storage.k8s.io/"

// Parameters that --extra-create-metadata adds.
const (
	parameterClaimName      = reserved + "pvc/name"
	parameterClaimNamespace = reserved + "pvc/namespace"
	parameterPVName         = reserved + "pv/name"
)

// parameters are the parsed parameters of a StorageClass.
type parameters struct {
	// forDriver excludes the parameters for sidecars. It includes deprecated keys, which have no prefix, because drivers
	// have come to read them.
	forDriver map[string]string
	// fsType is the filesystem that the class names, empty for none.
	fsType string
	// outdated has the deprecated keys of the class, in alphabetical order.
	outdated []string
}

// parametersOf parses the parameters of a class. An unknown reserved key is an error, because it is meant for the
// provisioner and would have no effect. So are two filesystem keys, even with equal values.
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
