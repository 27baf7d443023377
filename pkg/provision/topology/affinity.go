package topology

import (
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
)

// Affinity returns the node affinity of a volume from the driver's accessible_topology, nil for all nodes. Segments are
// in alphabetical order, and a topology without segments is left out. If all topologies are empty, the volume is not
// restricted, because the API server refuses an affinity without terms.
func Affinity(accessible []*csi.Topology) *v1.VolumeNodeAffinity {
	var terms []v1.NodeSelectorTerm
	for _, topology := range accessible {
		segments := topology.GetSegments()
		if len(segments) == 0 {
			continue
		}
		var expressions []v1.NodeSelectorRequirement
		for _, key := range slices.Sorted(maps.Keys(segments)) {
			expressions = append(expressions, v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn,
				Values: []string{segments[key]}})
		}
		terms = append(terms, v1.NodeSelectorTerm{MatchExpressions: expressions})
	}
	if len(terms) == 0 {
		return nil
	}
	return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: terms}}
}
