package fencing

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// PolicyFacts holds all knowledge for one FencePolicy at one moment. The zero value of every field means that the fact
// is unknown or argues against fencing.
type PolicyFacts struct {
	Rules Rules
	Spec  v1alpha1.FencePolicySpec
	// View reports that this process sees a working cluster: some node has renewed its Lease a short time ago.
	View bool
	// Failed is the reason of a failed step without which no node is fenced, "" for none. It is reported in place of a
	// missing View.
	Failed Reason
	Nodes  []NodeView
	// Others names every NodeFence that has not ended, belongs to none of these nodes, and is not vacant (see
	// Fence.Vacant).
	Others []string
}

// MaxTolerated is the longest time for which a policy waits for the tolerations of pods, counted from the first
// observation of their unreachable node. Its value is a choice. Without a bound, one pod with a toleration of years
// would keep its node from being fenced, and others' pods held. So would pods that name their node: a Deployment
// replaces each of them that Kubernetes evicts.
const MaxTolerated = time.Hour

// NodeView is the state of one node in the watches.
type NodeView struct {
	Name, Zone string
	Selected   bool
	// Unreachable reports that the condition Ready is Unknown. Since is the first observation of that state, without a
	// renewal of the Lease after it, by the clock of this process.
	Unreachable bool
	Since       time.Time
	// Fenced reports a NodeFence that has not ended. An ended one must be deleted before another can take its name.
	Fenced bool
	// Ended reports that the node's NodeFence was ended by request, and exists. A person has decided about this outage.
	Ended bool
	// Skipped is the reason of a failed step about this node, which is not fenced before the next decision, "" for none.
	Skipped Reason
	// Waiting counts the pods on the node that have claims and are in namespaces that the policy selects. Tolerating
	// counts those not yet terminating, because they tolerate the unreachable node for some time. Budgeted reports that
	// each of them has a PodDisruptionBudget that is healthy without these pods.
	Waiting, Tolerating int
	Budgeted            bool
}

// Judgement is the decision of a policy about one unreachable node.
type Judgement struct {
	Node   string
	Reason Reason
	// After is the time until the next decision, unless an event comes first.
	After time.Duration
}

// PolicyDecision is the decision of a policy about all of its nodes at one moment.
type PolicyDecision struct {
	// Halted is the reason why no node may be fenced now, or "".
	Halted Reason
	// Nodes judges the selected nodes that are unreachable.
	Nodes []Judgement
	// Fenced names the nodes whose fences count against the limits.
	Fenced []string
	// Fence is the node to fence next, once a live read confirms the watches, or "".
	Fence string
}

// DecidePolicy returns the decision of a policy about each of its nodes, and the node to fence next, which is the node
// that has been unreachable for the longest time.
func DecidePolicy(f PolicyFacts, now time.Time) PolicyDecision {
	d := PolicyDecision{Halted: f.halt(), Fenced: slices.Clone(f.Others)}
	for _, n := range f.Nodes {
		if n.Fenced {
			d.Fenced = append(d.Fenced, n.Name)
		}
	}
	slices.Sort(d.Fenced)
	f.Nodes = slices.SortedFunc(slices.Values(f.Nodes), BySilence)
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

// BySilence compares nodes by the time since which they are unreachable.
func BySilence(a, b NodeView) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name))
}

// patience returns the minimum duration of unreachability before a node is fenced.
func (f PolicyFacts) patience(n NodeView) time.Duration {
	patience := max(f.Spec.UnreachableAfter.Duration, f.Rules.silentAfter())
	if n.Budgeted {
		patience += max(f.Spec.BudgetPatience.Duration, 0)
	}
	return patience
}

// Due returns the nodes among these that the policy fences now if pods wait for them.
func (f PolicyFacts) Due(nodes []*NodeView, now time.Time) (due []*NodeView) {
	if f.halt() != "" || f.limited("") == ReasonLimitReached {
		return nil
	}
	for _, n := range nodes {
		if !n.Since.IsZero() && now.Sub(n.Since) >= f.patience(*n) {
			due = append(due, n)
		}
	}
	return due
}

func (f PolicyFacts) judge(n NodeView, halted Reason, now time.Time) Judgement {
	left := f.patience(n)
	if !n.Since.IsZero() {
		left -= now.Sub(n.Since)
	}
	why := ReasonUnreachable
	switch {
	case n.Fenced:
		why = ReasonFenceExists
	case n.Skipped != "":
		why = n.Skipped
	case n.Waiting == 0:
		why = ReasonNothingWaits
	case n.Ended:
		why = ReasonFenceEnded
	case left > 0:
		return Judgement{Node: n.Name, Reason: ReasonPatience, After: left}
	case f.tolerated(n, now) > 0:
		return Judgement{Node: n.Name, Reason: ReasonTolerated, After: f.tolerated(n, now)}
	}
	if why == ReasonUnreachable {
		why = cmp.Or(halted, f.limited(n.Zone))
	}
	return Judgement{Node: n.Name, Reason: why}
}

// tolerated returns the longest time for which tolerations still delay the fence of a node that is silent, not positive
// if they do not delay it.
func (f PolicyFacts) tolerated(n NodeView, now time.Time) time.Duration {
	if n.Tolerating == 0 || f.Spec.WaitForTolerations != nil && !*f.Spec.WaitForTolerations {
		return 0
	}
	return MaxTolerated - now.Sub(n.Since)
}

// limited returns the reason why the policy fences no further node of a zone, or ReasonUnreachable if it fences one.
func (f PolicyFacts) limited(zone string) Reason {
	switch {
	case f.active("")+len(f.Others) >= f.limit():
		return ReasonLimitReached
	case zone != "" && f.active(zone) >= max(1, int(f.Spec.MaxFencesPerZone)):
		return ReasonZoneLimitReached
	case f.Spec.DryRun:
		return ReasonWouldFence
	}
	return ReasonUnreachable
}

// halt returns the reason why no node may be fenced now, or "".
func (f PolicyFacts) halt() Reason {
	switch {
	case f.Failed != "":
		return f.Failed
	case !f.View:
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

// active returns the number of fenced nodes in a zone, or in all zones for "".
func (f PolicyFacts) active(zone string) (n int) {
	for _, node := range f.Nodes {
		if node.Fenced && (zone == "" || node.Zone == zone) {
			n++
		}
	}
	return n
}

// limit returns the maximum number of nodes fenced at once.
func (f PolicyFacts) limit() int {
	selected := 0
	for _, n := range f.Nodes {
		if n.Selected {
			selected++
		}
	}
	down, up := f.share(selected, false), f.share(selected, true)
	return max(down, min(up, 1)) // at least 1, except for 0 percent
}

// share returns the limit for this number of nodes, or 0 if it cannot be parsed.
func (f PolicyFacts) share(nodes int, roundUp bool) int {
	n, _ := intstr.GetScaledValueFromIntOrPercent(&f.Spec.MaxFences, nodes, roundUp) // 0 with an error
	return n
}
