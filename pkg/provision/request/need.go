package request

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
)

// Need lists the objects to read before NewPlan. It does not include the Secret, whose name NewPlan returns.
type Need struct {
	// Snapshot and SourceClaim name the source of the claim's data, which is read with its content or PV; at most one is
	// set.
	Snapshot, SourceClaim types.NamespacedName
	// GrantsIn is the namespace whose ReferenceGrants are needed, empty for none.
	GrantsIn string
	// AttributesClass is the name of a VolumeAttributesClass, empty for none.
	AttributesClass string
	// SelectedNode is the name of a node that is needed with its CSINode, empty for none.
	SelectedNode string
	// Nodes means that all nodes and CSINodes are needed.
	Nodes bool
}

// Needs returns the objects to read for the plan. It uses only Claim, Class, Driver and Settings, and returns an error
// if these suffice to refuse the claim.
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

// prepared makes the checks of Needs and NewPlan that need no further reads. The returned facts have a class in CSI
// terms, and settings with defaults.
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
