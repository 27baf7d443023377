package fencing

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// PolicyFacts is all that is known for one FencePolicy at one moment. The zero value of every field means that the fact
// is not known, or speaks against fencing.
type PolicyFacts struct {
	Rules Rules

	Name string
	Spec v1alpha1.FencePolicySpec
	// View: this process sees a cluster at run: a Lease of some node was renewed a short time ago.
	View bool
	// Nodes are all nodes of the cluster.
	Nodes []NodeView
	// Others are the names of the NodeFences that have not ended and are of none of these nodes, but for those that are
	// vacant (see Fence.Vacant).
	Others []string
}

// NodeView is what the watches show of one node.
type NodeView struct {
	Name, Zone string
	// Selected: the policy is for this node.
	Selected bool
	// Unreachable: its condition Ready is Unknown. Since is since when it has been so, and its Lease not renewed, by the
	// clock of this process.
	Unreachable bool
	Since       time.Time
	// Fenced: it has a NodeFence that has not ended. One that has ended and is kept yet has to be deleted before another
	// can have its name.
	Fenced bool
	// Waiting is how many pods with claims, in namespaces that the policy selects, are bound to the node. Tolerating is
	// how many of these are not terminating yet, because they tolerate the node for some time. Budgeted: all of them have
	// a PodDisruptionBudget that is healthy without them.
	Waiting, Tolerating int
	Budgeted            bool
}

// Judgement is what a policy does about one node that is unreachable.
type Judgement struct {
	Node   string
	Reason Reason
	// After is when the node is judged anew, if no event comes before.
	After time.Duration
}

// PolicyDecision is what a policy does now.
type PolicyDecision struct {
	// Halted is why no node is fenced now, empty for nothing.
	Halted Reason
	// Nodes are the selected nodes that are unreachable.
	Nodes []Judgement
	// Fenced are the nodes whose fences count against the limits, by name.
	Fenced []string
	// Fence is the node that is fenced next, once a live read shows it as the watches do; empty for none.
	Fence string
}

// DecidePolicy returns what a policy does about each of its nodes, and which one it fences next: the one that has been
// unreachable for the longest time.
func DecidePolicy(f PolicyFacts, now time.Time) PolicyDecision {
	d := PolicyDecision{Halted: f.halt(), Fenced: slices.Clone(f.Others)}
	for _, n := range f.Nodes {
		if n.Fenced {
			d.Fenced = append(d.Fenced, n.Name)
		}
	}
	slices.Sort(d.Fenced)
	f.Nodes = slices.SortedFunc(slices.Values(f.Nodes), func(a, b NodeView) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name))
	})
	for i, n := range f.Nodes {
		if !n.Selected || !n.Unreachable {
			continue
		}
		j := f.judge(n, d.Halted, now)
		d.Nodes = append(d.Nodes, j)
		if j.Reason == ReasonUnreachable && d.Fence == "" {
			d.Fence, f.Nodes[i].Fenced = n.Name, true // for the nodes after it
		}
	}
	return d
}

// patience returns how long a node has to be unreachable before it is fenced.
func (f PolicyFacts) patience(n NodeView) time.Duration {
	patience := max(f.Spec.UnreachableAfter.Duration, f.Rules.silentAfter())
	if n.Budgeted {
		patience += max(f.Spec.BudgetPatience.Duration, 0)
	}
	return patience
}

// judge returns what is done about a node that is unreachable.
func (f PolicyFacts) judge(n NodeView, halted Reason, now time.Time) Judgement {
	left := f.patience(n)
	if !n.Since.IsZero() {
		left -= now.Sub(n.Since)
	}
	why := ReasonUnreachable
	switch {
	case n.Fenced:
		why = ReasonFenceExists
	case n.Waiting == 0:
		why = ReasonNothingWaits
	case left > 0:
		return Judgement{Node: n.Name, Reason: ReasonPatience, After: left}
	case f.Spec.WaitForTolerations == nil || *f.Spec.WaitForTolerations:
		if n.Tolerating > 0 {
			why = ReasonTolerated
		}
	}
	switch {
	case why != ReasonUnreachable:
	case halted != "":
		why = halted
	case f.active("")+len(f.Others) >= f.limit():
		why = ReasonLimitReached
	case n.Zone != "" && f.active(n.Zone) >= max(1, int(f.Spec.MaxFencesPerZone)):
		why = ReasonZoneLimitReached
	case f.Spec.DryRun:
		why = ReasonWouldFence
	}
	return Judgement{Node: n.Name, Reason: why}
}

// halt returns why no node is fenced now, empty for nothing.
func (f PolicyFacts) halt() Reason {
	if !f.View {
		return ReasonViewLost
	}
	zones, gone := map[string]int{}, map[string]int{}
	var unreachable, selected, selectedGone int
	for _, n := range f.Nodes {
		zones[n.Zone]++
		if n.Selected {
			selected++
		}
		if n.Unreachable {
			gone[n.Zone]++
			unreachable++
		}
		if n.Selected && n.Unreachable {
			selectedGone++
		}
	}
	many := func(gone, of int) bool { return gone*100 > int(f.Spec.HaltAbove)*of }
	if many(unreachable, len(f.Nodes)) || selectedGone > 1 && many(selectedGone, selected) {
		return ReasonManyUnreachable
	}
	for zone, all := range zones {
		if zone != "" && all > 1 && gone[zone] == all {
			return ReasonZoneUnreachable
		}
	}
	return ""
}

// active returns how many nodes of a zone, or of all for "", are fenced.
func (f PolicyFacts) active(zone string) (n int) {
	for _, node := range f.Nodes {
		if node.Fenced && (zone == "" || node.Zone == zone) {
			n++
		}
	}
	return n
}

// limit returns how many nodes are fenced at most at once.
func (f PolicyFacts) limit() int {
	selected := 0
	for _, n := range f.Nodes {
		if n.Selected {
			selected++
		}
	}
	down, up := f.share(selected, false), f.share(selected, true)
	return max(down, min(up, 1)) // 0 percent are not 1
}

// share returns the limit for so many nodes, 0 for one that cannot be read.
func (f PolicyFacts) share(nodes int, roundUp bool) int {
	n, _ := intstr.GetScaledValueFromIntOrPercent(&f.Spec.MaxFences, nodes, roundUp) // 0 with an error
	return n
}
