package request

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
)

// Need is what has to be read before there can be a plan. The Secret is not among it: NewPlan
// returns its name.
type Need struct {
	// Snapshot and SourceClaim name what the claim's data come from, with the content and the
	// PV behind it. At most one has a name.
	Snapshot, SourceClaim types.NamespacedName
	// GrantsIn is the namespace whose ReferenceGrants are needed. Empty: none are.
	GrantsIn string
	// AttributesClass is the name of a VolumeAttributesClass. Empty: none.
	AttributesClass string
	// SelectedNode is the name of a node that is needed with its CSINode. Empty: none.
	SelectedNode string
	// Nodes: all nodes and CSINodes are needed.
	Nodes bool
}

// Needs says what has to be read for the plan. It looks at Claim, Class, Driver and Settings
// only, and refuses what these are reason enough to refuse.
func Needs(f Facts) (Need, error) {
	f, source, err := f.prepared()
	if err != nil {
		return Need{}, err
	}
	var need Need
	if f.readsAttributes() {
		need.AttributesClass = f.attributesClass()
	}
	if source != (SourceRef{}) && source.Namespace != f.Claim.Namespace {
		need.GrantsIn = source.Namespace
	}
	switch source.Kind {
	case SourceSnapshot:
		need.Snapshot = source.name()
	case SourceClaim:
		need.SourceClaim = source.name()
	case SourceNone:
	}
	if f.Driver.topology() {
		need.SelectedNode = f.selectedNode()
		where := f.where()
		if need.SelectedNode != "" {
			where.Selected = &topology.Node{Name: need.SelectedNode}
		}
		need.Nodes = where.NeedsNodes()
	}
	return need, nil
}

// prepared does what comes first for Needs and NewPlan: all that can be judged without reading more.
// The facts it returns have a class in terms of CSI, and settings with their defaults.
func (f Facts) prepared() (Facts, SourceRef, error) {
	none := SourceRef{}
	f.Settings = f.Settings.withDefaults()
	for _, check := range []func() error{f.checkOurs, f.checkClass, f.checkClaim} {
		if err := check(); err != nil {
			return f, none, err
		}
	}
	source, err := f.sourceRef()
	if err != nil {
		return f, none, err
	}
	if err := f.checkDriver(source); err != nil {
		return f, none, err
	}
	if f.Class, err = f.translatedClass(); err != nil {
		return f, none, err
	}
	return f, source, nil
}
