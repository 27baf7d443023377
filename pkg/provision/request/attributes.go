package request

import (
	"maps"

	"k8s.io/utils/ptr"
)

// attributesClass returns the name of the claim's VolumeAttributesClass, empty for none.
func (f Facts) attributesClass() string { return ptr.Deref(f.Claim.Spec.VolumeAttributesClassName, "") }

// readsAttributes reports whether the VolumeAttributesClass has to be read.
func (f Facts) readsAttributes() bool {
	return f.attributesClass() != "" && !f.Settings.NoAttributesClass
}

// mutableParameters returns the parameters of the VolumeAttributesClass (CSI spec, "CreateVolume", mutable_parameters),
// nil if the claim names none.
func (f Facts) mutableParameters() (map[string]string, error) {
	name := f.attributesClass()
	switch {
	case name == "":
		return nil, nil
	case f.Settings.NoAttributesClass:
		return nil, refuse(ReasonAttributesClassUnserved,
			"claim %q names VolumeAttributesClass %q, and the feature gate VolumeAttributesClass of this provisioner is off; "+
				"turn it on, or create the claim without",
			f.claimName(), name)
	case f.AttributesUnserved:
		return nil, refuse(ReasonAttributesClassUnserved,
			"claim %q names VolumeAttributesClass %q, and this cluster does not serve that API (storage.k8s.io/v1, "+
				"Kubernetes 1.34 and newer); create the claim without",
			f.claimName(), name)
	case f.Attributes == nil || f.Attributes.Name != name:
		return nil, refuse(ReasonAttributesClassMissing,
			"VolumeAttributesClass %q of claim %q does not exist; create it, or let the claim name another", name, f.claimName())
	case f.Attributes.DriverName != f.Driver.Name:
		return nil, refuse(ReasonAttributesClassForeign,
			"VolumeAttributesClass %q of claim %q is for driver %q, the StorageClass is for %q; let the claim name one of "+
				"the same driver",
			name, f.claimName(), f.Attributes.DriverName, f.Driver.Name)
	}
	return maps.Clone(f.Attributes.Parameters), nil
}
