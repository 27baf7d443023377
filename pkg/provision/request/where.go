package request

import (
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
)

// where returns the facts about the volume's topology.
func (f Facts) where() topology.Facts {
	return topology.Facts{
		Claim: f.Claim.Name, Allowed: f.Class.AllowedTopologies, Selected: f.Selected, Nodes: f.Nodes,
		Strict: f.Settings.StrictTopology, SkipImmediate: f.Settings.SkipImmediateTopology,
	}
}

// requirement returns the volume's topology requirement, nil if the driver's volumes are accessible from all nodes.
func (f Facts) requirement() (*csi.TopologyRequirement, error) {
	if !f.Driver.topology() {
		return nil, nil
	}
	where, selected := f.where(), f.selectedNode()
	switch {
	case selected == "":
		where.Selected = nil
	case f.Selected == nil || f.Selected.Name != selected:
		return nil, refuse(ReasonNodeUnfit,
			"node %q, selected for claim %q, does not exist; another node must be selected", selected, f.claimName())
	}
	requirement, err := topology.Require(where)
	switch {
	case err == nil:
		return requirement, nil
	case errors.Is(err, topology.ErrNode):
		return nil, refuse(ReasonNodeUnfit, "claim %q: %w; another node must be selected", f.claimName(), err)
	default:
		return nil, refuse(ReasonTopologyUnknown,
			"claim %q: %w; check that the driver's node pods run, and check its CSINode objects", f.claimName(), err)
	}
}
