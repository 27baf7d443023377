package intree

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

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
		"partition", "chapAuthDiscovery", "chapAuthSession", "initiatorName"}
}

// waysToReach are the fields that specify at which addresses the volume is reached: monitors of Ceph (RBD, CephFS) and
// portals of iSCSI. Two PVs can name different ones of a cluster. An RBD image is known by its pool and name, an iSCSI
// volume by target and LUN, whose names are unique in practice. Where they are not, a volume is kept.
func waysToReach() []string { return []string{"monitors", "targetPortal", "portals", "iscsiInterface"} }

// unordered are the fields that are sets: the worldwide names of Fibre Channel.
func unordered() []string { return []string{"targetWWNs", "wwids"} }

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
		for _, field := range slices.Concat(waysOfUse(), waysToReach()) {
			delete(fields, field)
		}
		for _, field := range unordered() {
			if names, ok := fields[field].([]any); ok {
				slices.SortFunc(names, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			}
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
