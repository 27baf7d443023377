package order

import "maps"

// attributesClass returns the name of the VolumeAttributesClass that the claim names, empty for
// none.
func (f Facts) attributesClass() string {
	if name := f.Claim.Spec.VolumeAttributesClassName; name != nil {
		return *name
	}
	return ""
}

// mutableParameters returns what the VolumeAttributesClass says (CSI spec, "CreateVolume",
// mutable_parameters), nil where none is named.
func (f Facts) mutableParameters() (map[string]string, error) {
	name := f.attributesClass()
	switch {
	case name == "":
		return nil, nil
	case f.Attributes == nil || f.Attributes.Name != name:
		return nil, refuse(ReasonAttributesClassMissing, "VolumeAttributesClass %q of claim %q does not exist; create it, or let the claim name another", name, f.claimName())
	case f.Attributes.DriverName != f.Driver.Name:
		return nil, refuse(ReasonAttributesClassForeign, "VolumeAttributesClass %q of claim %q is for driver %q, the StorageClass is for %q; let the claim name one of the same driver",
			name, f.claimName(), f.Attributes.DriverName, f.Driver.Name)
	}
	return maps.Clone(f.Attributes.Parameters), nil
}
