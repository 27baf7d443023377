package topology

import (
	"errors"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
)

// Errors of Require, which are wrapped with the details.
var (
	// ErrNowhere means that no node has registered both the driver and its labels, so the topology is unknown. It passes
	// once the driver's node part has started on a node.
	ErrNowhere = errors.New("the driver is on no node yet")
	// ErrNode means that the selected node cannot have the volume: the driver does not run there, or the StorageClass does
	// not allow its topology, but another node may have it.
	ErrNode = errors.New("the selected node cannot have the volume")
	// ErrLabels means that the selected node lacks a label that the driver registered. The kubelet sets it a moment after
	// the registration.
	ErrLabels = errors.New("the selected node lacks labels of the driver")
)

// Facts are the inputs of a requirement.
type Facts struct {
	// Claim is the claim's name, which decides the spread of volumes.
	Claim string
	// Allowed is the StorageClass's allowedTopologies, where empty means no restriction.
	Allowed []v1.TopologySelectorTerm
	// Selected is the node that the scheduler selected, nil for immediate binding.
	Selected *Node
	// Nodes lists all nodes, in any order. It is required only if NeedsNodes returns true.
	Nodes []Node
	// Strict requests only the topology of the selected node (--strict-topology).
	Strict bool
	// SkipImmediate leaves the topology to the driver for immediate binding, unless the class restricts it
	// (--immediate-topology=false).
	SkipImmediate bool
}

// NeedsNodes reports whether Require has to know all nodes, so that callers can avoid the list.
func (f Facts) NeedsNodes() bool {
	switch {
	case f.Selected != nil && f.Strict:
		return false
	case len(f.Allowed) > 0:
		return false
	}
	return f.Selected != nil || !f.SkipImmediate
}

// Require returns the topology requirement of CreateVolume, nil for none. The volume must be accessible from one of the
// requisite terms, and the driver tries the preferred terms first.
//
//	selected node  Strict  allowed  requisite            preferred first
//	no             -       no       the nodes' terms     by the claim's name
//	no             -       yes      the allowed terms    by the claim's name
//	yes            no      no       the nodes' terms     the selected node's term
//	yes            no      yes      the allowed terms    the selected node's term
//	yes            yes     any      the node's term      the same
//
// The selected node's term has all keys that the driver registered there, even if the class names fewer: the pod runs
// on this node and nowhere else. It is then also a requisite term (CSI spec, "TopologyRequirement"). It lies within one
// of the class' terms, so that no more topology is allowed than the class allows.
//
// An error wraps ErrNowhere, ErrNode or ErrLabels. If allowedTopologies of a class select no topology at all, Require
// ignores them like external-provisioner.
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
	// A volume may span segments, so the driver gets all of them. The selected node's term is included even if the list of
	// nodes is stale.
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

// here returns the term of the selected node.
func (f Facts) here() (term, error) {
	if len(f.Selected.Keys) == 0 {
		// Upstream waits here, and a node that never gets the driver then keeps the pod forever (external-provisioner#544,
		// hetznercloud/csi-driver#399).
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

// String formats a term like zone=a,rack=1.
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
