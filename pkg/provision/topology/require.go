package topology

import (
	"errors"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
)

// Why no requirement can be given. Each is wrapped with what was found.
var (
	// ErrNowhere: no node has both registered the driver and its labels, so it is unknown what
	// places there are. It passes when the driver's node part has started somewhere.
	ErrNowhere = errors.New("the driver is on no node yet")
	// ErrNode: the selected node cannot have the volume: the driver does not run there, or the
	// StorageClass does not allow that place. Another node may.
	ErrNode = errors.New("the selected node cannot have the volume")
	// ErrLabels: the selected node lacks a label that the driver registered. The kubelet puts it
	// there a moment after the registration.
	ErrLabels = errors.New("the selected node lacks labels of the driver")
)

// Facts are all that a requirement is made from.
type Facts struct {
	// Claim is the claim's name, by which volumes are spread.
	Claim string
	// Allowed are the StorageClass's allowedTopologies. Empty: everywhere.
	Allowed []v1.TopologySelectorTerm
	// Selected is the node that the scheduler selected. Nil under immediate binding.
	Selected *Node
	// Nodes are all nodes, in any order. Not needed where NeedsNodes says so.
	Nodes []Node
	// Strict asks for the place of the selected node and no other (--strict-topology).
	Strict bool
	// SkipImmediate leaves the place to the driver under immediate binding, unless the class
	// restricts it (--immediate-topology=false).
	SkipImmediate bool
}

// NeedsNodes reports whether Require has to know all nodes, so that they are not listed in vain.
func (f Facts) NeedsNodes() bool {
	switch {
	case f.Selected != nil && f.Strict:
		return false
	case len(f.Allowed) > 0:
		return false
	}
	return f.Selected != nil || !f.SkipImmediate
}

// Require returns the topology requirement of CreateVolume, nil for none: the volume must be
// reachable from one of the requisite ones, and the driver tries the preferred ones first.
//
//	selected node  Strict  allowed  requisite            preferred first
//	no             -       no       where nodes are      by the claim's name
//	no             -       yes      what is allowed      by the claim's name
//	yes            no      no       where nodes are      the selected node's place
//	yes            no      yes      what is allowed      the selected node's place
//	yes            yes     any      the node's place     the same
//
// The selected node's place has all that the driver registered there, also where the class names less of it: the pod
// runs there and nowhere else. It is a requisite one then, too (CSI spec, "TopologyRequirement"). It lies within one
// that the class names, so that nothing more is allowed.
//
// An error wraps ErrNowhere, ErrNode or ErrLabels. A class whose allowedTopologies select
// nothing at all is taken for one without any, as external-provisioner does.
func Require(f Facts) (*csi.TopologyRequirement, error) {
	if f.Selected == nil {
		return f.immediate()
	}
	here, err := f.here()
	if err != nil {
		return nil, err
	}
	limits := allowed(f.Allowed)
	within := slices.IndexFunc(limits, func(t term) bool { return t.holds(here) })
	switch {
	case len(limits) > 0 && within < 0:
		return nil, fmt.Errorf("%w: node %q is at %v, which the StorageClass does not allow", ErrNode, f.Selected.Name, here)
	case f.Strict:
		return requirement([]term{here}, 0), nil
	case len(limits) > 0:
		return preferring(here, limits, within), nil
	case len(f.Allowed) > 0:
		return nil, nil
	}
	// A volume may span segments, so the driver gets all of them; the selected one is among
	// them even if the list of nodes is stale.
	everywhere := sorted(append(places(f.Nodes, f.Selected.Keys), here))
	return requirement(everywhere, slices.IndexFunc(everywhere, func(t term) bool { return slices.Equal(t, here) })), nil
}

func (f Facts) immediate() (*csi.TopologyRequirement, error) {
	terms := allowed(f.Allowed)
	switch {
	case len(terms) > 0:
	case f.SkipImmediate || len(f.Allowed) > 0:
		return nil, nil
	default:
		sets := keySets(f.Nodes)
		if terms = placesBy(f.Nodes, sets); len(terms) == 0 {
			return nil, fmt.Errorf("%w: of %d nodes none has registered it with all of its labels %v", ErrNowhere,
				len(f.Nodes), sets)
		}
	}
	return requirement(terms, spread(f.Claim, len(terms))), nil
}

// here returns where the selected node is.
func (f Facts) here() (term, error) {
	if len(f.Selected.Keys) == 0 {
		// Upstream waits here; a node that never gets the driver then keeps the pod forever
		// (external-provisioner#544, hetznercloud/csi-driver#399).
		return nil, fmt.Errorf("%w: the driver has not registered on node %q", ErrNode, f.Selected.Name)
	}
	here, ok := f.Selected.place(f.Selected.Keys)
	if !ok {
		return nil, fmt.Errorf("%w: node %q needs %v", ErrLabels, f.Selected.Name, f.Selected.Keys)
	}
	return here, nil
}

// preferring returns the requirement for a node that is within one of the limits.
func preferring(here term, limits []term, within int) *csi.TopologyRequirement {
	if slices.Equal(limits[within], here) {
		return requirement(limits, within)
	}
	return &csi.TopologyRequirement{Requisite: toCSI(sorted(append(slices.Clone(limits), here))),
		Preferred: toCSI(append([]term{here}, from(limits, within)...))}
}

func requirement(requisite []term, first int) *csi.TopologyRequirement {
	return &csi.TopologyRequirement{Requisite: toCSI(requisite), Preferred: toCSI(from(requisite, first))}
}

// String shows a place as people write it: zone=a,rack=1.
func (t term) String() string {
	var text string
	for i, s := range t {
		if i > 0 {
			text += ","
		}
		text += s.key + "=" + s.value
	}
	return text
}
