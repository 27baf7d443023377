package request

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/secretref"
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

// secretKeys returns the parameters that name Secrets. The value is false for deprecated spellings, which are passed to
// the driver.
func secretKeys() map[string]bool {
	keys := map[string]bool{}
	for _, k := range []secretref.Keys{
		secretref.Default(), secretref.Provisioner(), secretref.ControllerPublish(), secretref.NodeStage(),
		secretref.NodePublish(),
		secretref.ControllerExpand(), secretref.NodeExpand(), secretref.ControllerModify(),
	} {
		for _, spellings := range [][]string{k.Name, k.Namespace} {
			for i, key := range spellings {
				keys[key] = i == 0
			}
		}
	}
	return keys
}

// secrets are the Secrets for the calls about one volume, nil for none.
type secrets struct {
	provisioner, controllerPublish, nodeStage, nodePublish, controllerExpand, nodeExpand,
	controllerModify *v1.SecretReference
}

// secrets returns the Secrets that the class names for this volume, whether or not they exist.
func (f Facts) secrets(pv string) (secrets, error) {
	var s secrets
	for _, one := range []struct {
		keys secretref.Keys
		into **v1.SecretReference
	}{
		{secretref.Provisioner(), &s.provisioner},
		{secretref.ControllerPublish(), &s.controllerPublish},
		{secretref.NodeStage(), &s.nodeStage},
		{secretref.NodePublish(), &s.nodePublish},
		{secretref.ControllerExpand(), &s.controllerExpand},
		{secretref.NodeExpand(), &s.nodeExpand},
		{secretref.ControllerModify(), &s.controllerModify},
	} {
		template, err := secretref.Find(f.Class.Parameters, one.keys, secretref.Default())
		if err != nil {
			return secrets{}, refuse(ReasonSecretUnclear, "StorageClass %q: %w; correct it in a new one", f.Class.Name, err)
		}
		if template == (secretref.Template{}) {
			continue
		}
		ref := &v1.SecretReference{}
		ref.Namespace, ref.Name, err = template.For(secretref.Volume{
			PV: pv, ClaimNamespace: f.Claim.Namespace, ClaimName: f.Claim.Name, ClaimAnnotations: f.Claim.Annotations,
		})
		if err != nil {
			return secrets{}, refuse(ReasonSecretUnclear,
				"Secret of StorageClass %q under %s, for claim %q: %w; correct the claim's annotations, or the parameter in a "+
					"new class",
				f.Class.Name, one.keys.Name[0], f.claimName(), err)
		}
		*one.into = ref
	}
	return s, nil
}
