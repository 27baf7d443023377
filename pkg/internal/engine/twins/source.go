package twins

import (
	"crypto/sha256"
	"encoding/json"
	"path"

	v1 "k8s.io/api/core/v1"
)

// Source identifies the volume of an in-tree plugin that a PV names, in 16 bytes whatever the plugin. PVs of one Source
// name one volume. The zero value is not known.
type Source [16]byte

// Known reports whether the volume is known.
func (s Source) Known() bool { return s != Source{} }

// waysOfUse are the fields of a volume source that specify how the volume is used, not which it is: two
// PVs that differ only in these name one volume.
func waysOfUse() []string {
	return []string{"readOnly", "fsType", "type", "secretRef", "user", "keyring", "secretFile", "kind", "cachingMode",
		"partition"}
}

// sourceOf returns the volume that a PV names. A CSI volume is none of an in-tree plugin.
func sourceOf(o *v1.PersistentVolume) Source {
	if o.Spec.CSI != nil {
		return Source{}
	}
	text, err := json.Marshal(o.Spec.PersistentVolumeSource)
	if err != nil {
		return Source{}
	}
	var source map[string]map[string]any
	if json.Unmarshal(text, &source) != nil || len(source) == 0 {
		return Source{}
	}
	for _, fields := range source {
		for _, field := range waysOfUse() {
			delete(fields, field)
		}
		if p, ok := fields["path"].(string); ok {
			fields["path"] = path.Clean(p)
		}
	}
	// The keys of a map are written in their order.
	if text, err = json.Marshal(source); err != nil {
		return Source{}
	}
	sum := sha256.Sum256(text)
	return Source(sum[:16])
}
