package fencing

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// policy returns a policy with the defaults of the API, and a cluster of ten nodes in two zones. The first node has
// been unreachable for an hour while a pod waits for it.
func policy(alter ...func(*PolicyFacts)) PolicyFacts {
	f := PolicyFacts{View: true, Spec: v1alpha1.FencePolicySpec{
		UnreachableAfter: metav1.Duration{Duration: 5 * time.Minute}, MaxFences: intstr.FromInt32(1), MaxFencesPerZone: 1,
		HaltAbove: 40}}
	for i := range 10 {
		f.Nodes = append(f.Nodes, NodeView{Name: fmt.Sprintf("node-%d", i), Zone: []string{"a", "b"}[i%2], Selected: true})
	}
	lost(0, time.Hour)(&f)
	for _, a := range alter {
		a(&f)
	}
	return f
}

// lost makes a node unreachable for this long, while a pod waits for it.
func lost(i int, d time.Duration) func(*PolicyFacts) {
	return func(f *PolicyFacts) {
		n := &f.Nodes[i]
		n.Unreachable, n.Since, n.Waiting = true, ago(d), 1
	}
}

func node(i int, alter func(*NodeView)) func(*PolicyFacts) {
	return func(f *PolicyFacts) { alter(&f.Nodes[i]) }
}

func fenced(n *NodeView) { n.Fenced = true }

func unfenced(n *NodeView) { n.Ended = true }

func skipped(n *NodeView) { n.Skipped = ReasonAPIWriteFailed }

func maxFences(s string) func(*PolicyFacts) {
	return func(f *PolicyFacts) { f.Spec.MaxFences = intstr.Parse(s) }
}

// lostAll makes all of these nodes unreachable.
func lostAll(nodes ...int) func(*PolicyFacts) {
	return func(f *PolicyFacts) {
		for _, i := range nodes {
			lost(i, time.Hour)(f)
		}
	}
}

// goneFenced adds a fenced node whose Node was deleted.
func goneFenced(f *PolicyFacts) { f.Others = []string{"gone"} }

// select5 limits the policy to five of the ten nodes.
func select5(f *PolicyFacts) {
	for i := range f.Nodes {
		f.Nodes[i].Selected = i < 5
	}
}

func budgeted(n *NodeView) { n.Budgeted = true }
func zoneless(n *NodeView) { n.Zone = "" }

func TestDecidePolicy(t *testing.T) {
	tolerating := func(d time.Duration) func(*PolicyFacts) {
		return func(f *PolicyFacts) {
			lost(0, d)(f)
			f.Nodes[0].Tolerating = 1
		}
	}
	patience := func(d time.Duration) func(*PolicyFacts) {
		return func(f *PolicyFacts) { f.Spec.BudgetPatience.Duration = d }
	}
	for name, c := range map[string]struct {
		facts  PolicyFacts
		reason Reason
		after  time.Duration
	}{
		"it is fenced":                      {policy(), ReasonUnreachable, 0},
		"lost for exactly unreachableAfter": {policy(lost(0, 5*time.Minute)), ReasonUnreachable, 0},
		"it was just lost":                  {policy(lost(0, time.Minute)), ReasonPatience, 4 * time.Minute},
		"lost for an unknown time": {
			policy(node(0, func(n *NodeView) { n.Since = time.Time{} })), ReasonPatience, 5 * time.Minute},
		"there is no patience": {
			policy(lost(0, 0), func(f *PolicyFacts) { f.Spec.UnreachableAfter.Duration = 0 }), ReasonPatience, SilentAfter},
		"a budget that is healthy": {
			policy(lost(0, 5*time.Minute), node(0, budgeted), patience(time.Minute)), ReasonPatience, time.Minute},
		"a budget that is healthy for too long": {
			policy(lost(0, 6*time.Minute), node(0, budgeted), patience(time.Minute)), ReasonUnreachable, 0},
		"a budget that makes impatient": {
			policy(lost(0, time.Minute), node(0, budgeted), patience(-time.Hour)), ReasonPatience, 4 * time.Minute},
		"no budget":            {policy(lost(0, 5*time.Minute), patience(time.Minute)), ReasonUnreachable, 0},
		"its pods tolerate it": {policy(tolerating(10 * time.Minute)), ReasonTolerated, 50 * time.Minute},
		"its pods tolerate it, and the policy waits": {
			policy(tolerating(MaxTolerated-1), func(f *PolicyFacts) { f.Spec.WaitForTolerations = ptr.To(true) }),
			ReasonTolerated, 1},
		"pods have tolerated it for as long as a policy waits": {policy(tolerating(MaxTolerated)), ReasonUnreachable, 0},
		"its pods tolerate it, and the policy does not wait": {
			policy(tolerating(10*time.Minute), func(f *PolicyFacts) { f.Spec.WaitForTolerations = ptr.To(false) }),
			ReasonUnreachable, 0},
		"nothing waits":                      {policy(node(0, func(n *NodeView) { n.Waiting = 0 })), ReasonNothingWaits, 0},
		"it is fenced already":               {policy(node(0, fenced)), ReasonFenceExists, 0},
		"its fence was ended by request":     {policy(node(0, unfenced)), ReasonFenceEnded, 0},
		"another's was":                      {policy(node(1, unfenced)), ReasonUnreachable, 0},
		"another is fenced":                  {policy(node(1, fenced)), ReasonLimitReached, 0},
		"a node that is gone is fenced":      {policy(goneFenced), ReasonLimitReached, 0},
		"two may be fenced, in another zone": {policy(maxFences("2"), node(1, fenced)), ReasonUnreachable, 0},
		"two may be fenced, and a node that is gone is": {
			policy(maxFences("2"), goneFenced), ReasonUnreachable, 0},
		"two may be fenced, not in one zone": {policy(maxFences("2"), node(2, fenced)), ReasonZoneLimitReached, 0},
		"two may be fenced in one zone": {
			policy(maxFences("2"), node(2, fenced), func(f *PolicyFacts) { f.Spec.MaxFencesPerZone = 2 }), ReasonUnreachable, 0},
		"no limit for a zone is one": {
			policy(maxFences("2"), node(2, fenced), func(f *PolicyFacts) { f.Spec.MaxFencesPerZone = 0 }),
			ReasonZoneLimitReached, 0},
		"a node without zone": {
			policy(maxFences("3"), node(2, fenced), node(4, fenced), node(0, zoneless)), ReasonUnreachable, 0},
		"a dry run": {policy(func(f *PolicyFacts) { f.Spec.DryRun = true }), ReasonWouldFence, 0},
		"a dry run at the limit": {
			policy(node(1, fenced), func(f *PolicyFacts) { f.Spec.DryRun = true }), ReasonLimitReached, 0},
		"cut off": {policy(func(f *PolicyFacts) { f.View = false }), ReasonViewLost, 0},
		"cut off and just lost": {
			policy(lost(0, time.Minute), func(f *PolicyFacts) { f.View = false }), ReasonPatience, 4 * time.Minute},
		"cut off, because the Leases cannot be read": {
			policy(func(f *PolicyFacts) { f.View, f.Failed = false, ReasonAPIReadFailed }), ReasonAPIReadFailed, 0},
		"a failed step that concerns all nodes": {
			policy(func(f *PolicyFacts) { f.Failed = ReasonAPIReadFailed }), ReasonAPIReadFailed, 0},
		"a failed step about it": {policy(node(0, skipped)), ReasonAPIWriteFailed, 0},
		"a failed read of its pods": {
			policy(node(0, skipped), node(0, func(n *NodeView) { n.Waiting = 0 })), ReasonAPIWriteFailed, 0},
		"a failed step, and a fence":              {policy(node(0, skipped), node(0, fenced)), ReasonFenceExists, 0},
		"as many as allowed are lost":             {policy(lostAll(1, 2, 3)), ReasonUnreachable, 0},
		"more than allowed are lost":              {policy(lostAll(1, 2, 3, 4)), ReasonManyUnreachable, 0},
		"most of the selected nodes are lost":     {policy(lostAll(1, 2), select5), ReasonManyUnreachable, 0},
		"few of the selected nodes are lost":      {policy(lostAll(1), select5), ReasonUnreachable, 0},
		"others than the selected nodes are lost": {policy(lostAll(5, 6), select5), ReasonUnreachable, 0},
		"the only selected node is lost": {policy(func(f *PolicyFacts) {
			for i := range f.Nodes {
				f.Nodes[i].Selected = i == 0
			}
		}), ReasonUnreachable, 0},
		"a zone is lost": {
			policy(func(f *PolicyFacts) { f.Spec.HaltAbove = 60 }, lostAll(2, 4, 6, 8)), ReasonZoneUnreachable, 0},
		"all nodes without zone are lost": {policy(lostAll(1), node(0, zoneless), node(1, zoneless)), ReasonUnreachable, 0},
		"a zone of one node is lost":      {policy(node(0, func(n *NodeView) { n.Zone = "c" })), ReasonUnreachable, 0},
		"a share that is none":            {policy(maxFences("0%")), ReasonLimitReached, 0},
		"a share of a part of a node":     {policy(maxFences("5%")), ReasonUnreachable, 0},
		"a share of two nodes":            {policy(maxFences("29%"), node(1, fenced)), ReasonUnreachable, 0},
		"a share of not quite two":        {policy(maxFences("19%"), node(1, fenced)), ReasonLimitReached, 0},
		"a share of the selected nodes": {
			policy(maxFences("29%"), node(1, fenced), node(3, func(n *NodeView) { n.Selected = false })), ReasonUnreachable, 0},
		"a share of fewer selected nodes": {
			policy(maxFences("25%"), node(1, fenced), node(3, func(n *NodeView) { n.Selected = false }),
				node(5, func(n *NodeView) { n.Selected = false }), node(7, func(n *NodeView) { n.Selected = false })),
			ReasonLimitReached, 0},
		"a limit that cannot be read": {policy(maxFences("many")), ReasonLimitReached, 0},
		"a limit below zero":          {policy(maxFences("-1")), ReasonLimitReached, 0},
		"no limit": {
			policy(func(f *PolicyFacts) { f.Spec.MaxFences = intstr.IntOrString{} }), ReasonLimitReached, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := DecidePolicy(c.facts, now())
			i := 0
			for i < len(d.Nodes) && d.Nodes[i].Node != "node-0" {
				i++
			}
			if i == len(d.Nodes) {
				t.Fatalf("%+v", d)
			}
			if j := d.Nodes[i]; j.Reason != c.reason || j.After != c.after {
				t.Errorf("%s after %s, want %s after %s", j.Reason, j.After, c.reason, c.after)
			}
			if (d.Fence == "node-0") != (c.reason == ReasonUnreachable) {
				t.Errorf("fences %q", d.Fence)
			}
		})
	}
}

// The node that has been unreachable for the longest time is the first, and counts for the next ones.
func TestPolicyFencesNodesOneByOne(t *testing.T) {
	f := policy(maxFences("2"), lost(1, 3*time.Hour), lost(2, 2*time.Hour), lost(3, 2*time.Hour))
	nodes := append([]NodeView(nil), f.Nodes...)
	d := DecidePolicy(f, now())
	want := []Judgement{{Node: "node-1", Reason: ReasonUnreachable}, {Node: "node-2", Reason: ReasonUnreachable},
		{Node: "node-3", Reason: ReasonZoneLimitReached}, {Node: "node-0", Reason: ReasonUnreachable}}
	if d.Fence != "node-1" || d.Halted != "" || fmt.Sprint(d.Nodes) != fmt.Sprint(want) {
		t.Errorf("%+v", d)
	}
	if fmt.Sprint(nodes) != fmt.Sprint(f.Nodes) {
		t.Error("the facts were changed")
	}
	f.Spec.MaxFences = intstr.FromInt32(1)
	for i, j := range DecidePolicy(f, now()).Nodes {
		if want := []Reason{ReasonUnreachable, ReasonLimitReached}[min(i, 1)]; j.Reason != want {
			t.Errorf("%s: %s", j.Node, j.Reason)
		}
	}
	f = policy(node(0, skipped), lost(2, time.Minute*30))
	if d := DecidePolicy(f, now()); d.Fence != "node-2" || d.Halted != "" {
		t.Errorf("behind a node that failed: %+v", d)
	}
	f = policy(node(0, func(n *NodeView) { n.Selected = false }), lost(2, time.Hour), lost(4, time.Hour))
	if d := DecidePolicy(f, now()); len(d.Nodes) != 2 || d.Fence != "node-2" {
		t.Errorf("%+v", d)
	}
}

func TestUnknownPolicyFactsFenceNoNode(t *testing.T) {
	for name, f := range map[string]PolicyFacts{
		"nothing":      {},
		"only nodes":   {Nodes: policy().Nodes},
		"only a view":  {View: true},
		"no spec":      {View: true, Nodes: policy().Nodes},
		"no haltAbove": policy(func(f *PolicyFacts) { f.Spec.HaltAbove = 0 }),
	} {
		if d := DecidePolicy(f, now()); d.Fence != "" {
			t.Errorf("%s: fences %s", name, d.Fence)
		}
	}
}

func TestDecidePolicyNamesFencedNodes(t *testing.T) {
	d := DecidePolicy(policy(node(3, fenced), node(1, fenced), goneFenced), now())
	if want := []string{"gone", "node-1", "node-3"}; !slices.Equal(d.Fenced, want) {
		t.Errorf("%q, want %q", d.Fenced, want)
	}
}

// everyCluster visits each cluster of four nodes, two in each of two zones or in none, and each policy. Each node is
// well, lost, fenced, or both, long ago or just now.
func everyCluster(visit func(PolicyFacts)) {
	states := []NodeView{
		{}, {Unreachable: true, Since: ago(time.Hour), Waiting: 1}, {Unreachable: true, Since: ago(time.Minute), Waiting: 1},
		{Unreachable: true, Since: ago(2 * time.Hour)}, {Fenced: true}, {Unreachable: true, Since: ago(time.Hour),
			Fenced: true},
		{Unreachable: true, Since: ago(50 * time.Minute), Waiting: 2, Tolerating: 1, Budgeted: true},
	}
	for bits := range 1 << 3 {
		for _, limit := range []string{"0", "1", "2", "50%"} {
			for perZone := int32(1); perZone <= 2; perZone++ {
				for _, haltAbove := range []int32{0, 50, 100} {
					f := policy(maxFences(limit))
					f.Spec.MaxFencesPerZone, f.Spec.HaltAbove, f.Others = perZone, haltAbove, []string{"gone"}[:bits&1]
					f.Nodes = f.Nodes[:4]
					for code := range 7 * 7 * 7 * 7 {
						for i := range f.Nodes {
							f.Nodes[i] = states[code%7]
							code /= 7
							f.Nodes[i].Name, f.Nodes[i].Selected = []string{"0", "1", "2", "3"}[i], i > 0 || bits&2 == 0
							if bits&4 == 0 {
								f.Nodes[i].Zone = []string{"a", "b"}[i%2]
							}
						}
						visit(f)
					}
				}
			}
		}
	}
}

// wrong returns the promise that fencing this node would break, or "". It is written independently of the code.
func wrong(f PolicyFacts, name string) string {
	zones, lostIn := map[string]int{}, map[string]int{}
	fences, inZone, lost := len(f.Others), map[string]int{}, 0
	var n NodeView
	selected, selectedLost := 0, 0
	for _, other := range f.Nodes {
		if other.Selected {
			selected++
		}
		if other.Selected && other.Unreachable {
			selectedLost++
		}
		if other.Name == name {
			n = other
		}
		zones[other.Zone]++
		if other.Unreachable {
			lost++
			lostIn[other.Zone]++
		}
		if other.Fenced {
			fences++
			inZone[other.Zone]++
		}
	}
	limit := map[string]int{"0": 0, "1": 1, "2": 2, "50%": 2}[f.Spec.MaxFences.String()]
	if f.Spec.MaxFences.Type == intstr.String && !f.Nodes[0].Selected {
		limit = 1 // of three
	}
	switch {
	case !n.Selected || !n.Unreachable || n.Fenced || n.Waiting == 0:
		return "the node is not to be fenced"
	case now().Sub(n.Since) < 5*time.Minute:
		return "it was lost a short time ago"
	case n.Tolerating > 0 && now().Sub(n.Since) < time.Hour:
		return "its pods tolerate it"
	case fences+1 > limit:
		return "too many are fenced"
	case n.Zone != "" && inZone[n.Zone]+1 > max(1, int(f.Spec.MaxFencesPerZone)):
		return "too many of the zone are fenced"
	case lost*100/len(f.Nodes) > int(f.Spec.HaltAbove):
		return "too many are lost"
	case selectedLost >= 2 && selectedLost*100/selected > int(f.Spec.HaltAbove):
		return "too many of the selected nodes are lost"
	}
	for zone, all := range zones {
		if zone != "" && all > 1 && lostIn[zone] == all {
			return "a zone is lost"
		}
	}
	return ""
}

func TestNoClusterExceedsPolicyLimits(t *testing.T) {
	t.Parallel()
	visited, chosen := 0, 0
	everyCluster(func(f PolicyFacts) {
		visited++
		d := DecidePolicy(f, now())
		for _, f.View = range []bool{false, true} {
			if f.Spec.DryRun = f.View; DecidePolicy(f, now()).Fence != "" {
				t.Fatalf("a node is fenced by a dry run, or although the view is lost: %+v", f)
			}
		}
		f.View, f.Spec.DryRun = true, false
		if d.Fence == "" {
			for _, n := range f.Nodes {
				if wrong(f, n.Name) == "" {
					t.Fatalf("node %s is not fenced: %+v of %+v", n.Name, d, f)
				}
			}
			return
		}
		chosen++
		if broken := wrong(f, d.Fence); broken != "" || d.Halted != "" {
			t.Fatalf("fences %s: %s: %+v", d.Fence, broken, f)
		}
	})
	if want := 8 * 4 * 2 * 3 * 7 * 7 * 7 * 7; visited != want || chosen == 0 {
		t.Errorf("visited %d clusters, want %d, of which %d have a node fenced", visited, want, chosen)
	}
}

func pointers(f PolicyFacts) (nodes []*NodeView) {
	for i := range f.Nodes {
		nodes = append(nodes, &f.Nodes[i])
	}
	return nodes
}

// TestDueNodesWithoutPods: the lists of pods decide about these nodes, and about no other.
func TestDueNodesWithoutPods(t *testing.T) {
	uncounted := func(f *PolicyFacts) { f.Nodes[0].Waiting = 0 }
	for name, c := range map[string]struct {
		facts PolicyFacts
		due   bool
	}{
		"it is silent for long":     {policy(uncounted), true},
		"its patience runs":         {policy(lost(0, 4*time.Minute), uncounted), false},
		"its silence is not known":  {policy(uncounted, node(0, func(n *NodeView) { n.Since = time.Time{} })), false},
		"it is halted":              {policy(uncounted, func(f *PolicyFacts) { f.View = false }), false},
		"the limit is reached":      {policy(uncounted, node(3, fenced)), false},
		"only its zone is at limit": {policy(uncounted, maxFences("2"), node(2, fenced)), true},
	} {
		if due := c.facts.Due(pointers(c.facts)[:1], now()); len(due) > 0 != c.due {
			t.Errorf("%s: %v", name, due)
		}
	}
}

func TestFencedNodeIsDueInEveryCluster(t *testing.T) {
	everyCluster(func(f PolicyFacts) {
		d := DecidePolicy(f, now())
		named := func(n *NodeView) bool { return n.Name == d.Fence }
		if d.Fence != "" && !slices.ContainsFunc(f.Due(pointers(f), now()), named) {
			t.Errorf("%s is fenced and not due: %+v", d.Fence, f)
		}
	})
}
