package fencing

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// fenceChanges handles the events of the watch of NodeFences.
type fenceChanges struct{ *observer }

func (o fenceChanges) Added(now *fence) { o.concern(now) }

func (o fenceChanges) Updated(before, now *fence) {
	if before.UID != now.UID {
		o.forget(before.UID)
	}
	o.concern(now)
}

func (o fenceChanges) Deleted(last *fence, _ bool) {
	o.forget(last.UID)
	o.concern(last)
}

// concern wakes the reconcilers that depend on a NodeFence: its own, and the policies, which count all fences.
func (o *observer) concern(f *fence) {
	o.wake.fence(f.Name)
	o.wakePolicies()
}

// nodeChanges handles the events of the watch of Nodes.
type nodeChanges struct{ *observer }

func (o nodeChanges) Added(now *node) { o.concernNode(&node{}, now) }

func (o nodeChanges) Updated(before, now *node) {
	if !before.same(now) {
		o.concernNode(before, now)
	}
}

func (o nodeChanges) Deleted(last *node, _ bool) { o.concernNode(last, &node{name: last.name}) }

// concernNode wakes the reconcilers that depend on a change of a node.
func (o *observer) concernNode(before, now *node) {
	if _, found := o.fences.Get(now.name); found || now.tainted {
		o.wake.fence(now.name)
	}
	if !now.unreachable {
		o.wake.reached(now.name)
	}
	if before.unreachable != now.unreachable {
		o.wakePolicies()
	}
}

// policyChanges handles the events of the watch of FencePolicies.
type policyChanges struct{ *observer }

func (o policyChanges) Added(now *policy) { o.wake.policy(now.name) }

func (o policyChanges) Updated(before, now *policy) {
	if before.uid != now.uid {
		o.wake.forgetPolicy(before)
	}
	o.wake.policy(now.name)
}

func (o policyChanges) Deleted(last *policy, _ bool) { o.wake.forgetPolicy(last) }

func (o *observer) wakePolicies() {
	o.policies.Each(func(p *policy) { o.wake.policy(p.name) })
}

// unreachable returns the sorted names of the nodes that the watch reports as unreachable.
func (o *observer) unreachable() (names []string) {
	o.nodes.Each(func(n *node) {
		if n.unreachable {
			names = append(names, n.name)
		}
	})
	slices.Sort(names)
	return names
}

func (o *observer) anyUnreachable() bool { return len(o.unreachable()) > 0 }

// looksForSilence reports whether the Lease renewals of nodes matter, which needs a policy and an unreachable node.
func (o *observer) looksForSilence() bool {
	any := false
	o.policies.Each(func(*policy) { any = true })
	return any && o.anyUnreachable()
}

// forgetJudged replaces the nodes that a policy judges, and drops the reports on nodes that it no longer judges.
func (o *observer) forgetJudged(policy types.UID, now map[types.UID]bool, forget func(types.UID)) {
	o.mu.Lock()
	before := o.judged[policy]
	if o.judged[policy] = now; len(now) == 0 {
		delete(o.judged, policy)
	}
	o.mu.Unlock()
	for key := range before {
		if !now[key] {
			forget(key)
		}
	}
}
