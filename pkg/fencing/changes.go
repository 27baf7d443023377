package fencing

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// fenceChanged handles the events of the watch of NodeFences. It wakes the reconcilers that depend on one: its own, and
// the policies, which count all fences.
func (o *observer) fenceChanged(before, now *fence) {
	if before != nil && (now == nil || before.UID != now.UID) {
		o.forget(before.UID)
	}
	o.wake.fence(cmp.Or(now, before).Name)
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

// policyChanged handles the events of the watch of FencePolicies.
func (o *observer) policyChanged(before, now *policy) {
	if before != nil && (now == nil || before.uid != now.uid) {
		o.wake.forgetPolicy(before)
	}
	if now != nil {
		o.wake.policy(now.name)
	}
}

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
