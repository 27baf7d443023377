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

// Source identifies the volume of an in-tree plugin that a PV names, in 16 bytes for every plugin. PVs with the same
// Source name one volume; the zero value is unknown.
type Source [16]byte

// Known reports whether the volume is known.
func (s Source) Known() bool { return s != Source{} }

// waysOfUse are the fields of a volume source that specify how the volume is used, but do not identify it: two PVs that
// differ only in these fields name one volume.
func waysOfUse() []string {
	return []string{"readOnly", "fsType", "type", "secretRef", "user", "keyring", "secretFile", "kind", "cachingMode",
		"partition", "chapAuthDiscovery", "chapAuthSession", "initiatorName"}
}

// waysToReach are the fields that specify the addresses of the volume: monitors of Ceph (RBD, CephFS) and portals of
// iSCSI. Two PVs of the same storage cluster can name different addresses. An RBD image is identified by its pool and
// name, an iSCSI volume by its target and LUN, and these names are unique in practice; if they are not, a volume is
// kept.
func waysToReach() []string { return []string{"monitors", "targetPortal", "portals", "iscsiInterface"} }

// unordered are the fields that are sets: the worldwide names of Fibre Channel.
func unordered() []string { return []string{"targetWWNs", "wwids"} }

// sourceOf returns the Source of the volume that a PV names; a CSI volume has none.
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
	// json.Marshal sorts the keys of a map.
	if text, err = json.Marshal(source); err != nil {
		return Source{}
	}
	sum := sha256.Sum256(text)
	return Source(sum[:16])
}
