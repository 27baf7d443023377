package fencing

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// wake enqueues objects and passes on changes, without blocking.
type wake struct {
	fence, policy func(name string)
	// forgetFence and forgetPolicy are called after the deletion of a NodeFence or a FencePolicy.
	forgetFence, forgetPolicy func(uid types.UID)
	// reached is called when a node is not unreachable.
	reached func(name string)
}

// observer holds the state of the watches, and wakes the reconcilers that depend on a change. Its methods are safe for
// concurrent use.
type observer struct {
	rules fencing.Rules
	wake  wake

	fences   kube.Lister[fencing.Fence]
	nodes    kube.Lister[*objects.LabeledNode]
	policies kube.Lister[*v1alpha1.FencePolicy]

	mu sync.Mutex
	// tracker and judged are guarded by mu.
	tracker *fencing.Tracker
	// judged holds the keys of the nodes with reports of a policy, by the UID of the policy.
	judged map[types.UID]map[types.UID]bool
}

func newObserver(rules fencing.Rules, wake wake) *observer {
	return &observer{rules: rules, wake: wake, tracker: fencing.NewTracker(),
		judged: map[types.UID]map[types.UID]bool{}}
}

// follow creates the caches, which do not run yet.
func (o *observer) follow(clients clients, watches *kube.Watches) []controller.Cache {
	nodes := kube.NewCache(clients.Core.RESTClient(), "nodes", &v1.Node{}, kube.RecordAll(objects.LabeledNodeOf),
		kube.OnChange[*objects.LabeledNode](o.nodeChanged))
	fences := kube.NewCache(clients.own.REST, client.FenceResource, &v1alpha1.NodeFence{},
		kube.RecordAll(fencing.FenceOf), kube.OnChange[fencing.Fence](o.fenceChanged))
	policies := kube.NewCache(clients.own.REST, client.PolicyResource, &v1alpha1.FencePolicy{}, kube.RecordAll(policyOf),
		kube.OnChange[*v1alpha1.FencePolicy](o.policyChanged))
	watches.Share(nodes, fences)
	o.nodes, o.fences, o.policies = nodes, fences, policies
	return []controller.Cache{nodes, fences, policies}
}

// policyOf returns the record of a FencePolicy in the watch cache, which is the object without its managedFields.
func policyOf(o *v1alpha1.FencePolicy) *v1alpha1.FencePolicy {
	p := *o
	p.ManagedFields = nil
	return &p
}

// first returns the names of all objects that may need work at the start.
func (o *observer) first() (fences, policies []string) {
	o.fences.Each(func(f fencing.Fence) { fences = append(fences, f.Name) })
	o.nodes.Each(func(n *objects.LabeledNode) {
		if _, found := o.fences.Get(n.Name); n.Tainted && !found {
			fences = append(fences, n.Name)
		}
	})
	o.policies.Each(func(p *v1alpha1.FencePolicy) { policies = append(policies, p.Name) })
	return fences, policies
}

// fenceChanged handles the events of the watch of NodeFences. It wakes the reconcilers that depend on one: its own, and
// the policies, which count all fences.
func (o *observer) fenceChanged(before, now fencing.Fence) {
	if before.UID != "" && before.UID != now.UID {
		o.forget(before.UID)
	}
	o.wake.fence(cmp.Or(now.Name, before.Name))
	o.wakePolicies()
}

// nodeChanged handles the events of the watch of Nodes, and wakes the reconcilers that depend on one.
func (o *observer) nodeChanged(before, now *objects.LabeledNode) {
	switch {
	case before == nil:
		before = &objects.LabeledNode{}
	case now == nil:
		now = &objects.LabeledNode{Name: before.Name}
	case before.Same(now):
		return
	}
	if _, found := o.fences.Get(now.Name); found || now.Tainted || before.Tainted {
		o.wake.fence(now.Name)
	}
	if !now.Unreachable {
		o.wake.reached(now.Name)
	}
	if before.Unreachable != now.Unreachable {
		o.wakePolicies()
	}
}

// policyChanged handles the events of the watch of FencePolicies.
func (o *observer) policyChanged(before, now *v1alpha1.FencePolicy) {
	if before != nil && (now == nil || before.UID != now.UID) {
		o.wake.forgetPolicy(before.UID)
	}
	if now != nil {
		o.wake.policy(now.Name)
	}
}

func (o *observer) wakePolicies() {
	o.policies.Each(func(p *v1alpha1.FencePolicy) { o.wake.policy(p.Name) })
}

// observe returns the facts about the fence of a node without a live read. It returns false if the node has neither a
// NodeFence nor the taint of one.
func (o *observer) observe(name string) (fencing.Facts, bool) {
	f, found := o.fences.Get(name)
	n, seen := o.nodes.Get(name)
	f.Name = name
	facts := fencing.Facts{Rules: o.rules, Fence: f, TaintSeen: seen && n.Tainted}
	return facts, found || facts.TaintSeen
}

// begin returns a session on these facts, recorded in the tracker.
func (o *observer) begin(f fencing.Facts, now time.Time) fencing.Session {
	o.mu.Lock()
	defer o.mu.Unlock()
	return fencing.Begin(o.tracker, f, now)
}

func (o *observer) answer(s *fencing.Session, reply fencing.Reply, sent, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Answer(o.tracker, reply, sent, now)
}

// settle drops the records of a session whose NodeFence has gone in the course of it.
func (o *observer) settle(f fencing.Fence) {
	if now, _ := o.fences.Get(f.Name); now.UID != f.UID {
		o.forget(f.UID)
	}
}

func (o *observer) forget(fence types.UID) {
	o.mu.Lock()
	o.tracker.Forget(fence)
	o.mu.Unlock()
	o.wake.forgetFence(fence)
}

// began returns the time at which the node became unreachable if a policy requested its fence, and otherwise the
// creation time of the NodeFence.
func (o *observer) began(f fencing.Fence) time.Time {
	n, found := o.nodes.Get(f.Name)
	if found && n.Unreachable && f.Spec.PolicyName != "" && n.Since.Before(f.Created) {
		return n.Since
	}
	return f.Created
}

// unreachable returns the sorted names of the nodes that the watch reports as unreachable.
func (o *observer) unreachable() (names []string) {
	o.nodes.Each(func(n *objects.LabeledNode) {
		if n.Unreachable {
			names = append(names, n.Name)
		}
	})
	slices.Sort(names)
	return names
}

func (o *observer) anyUnreachable() bool { return len(o.unreachable()) > 0 }

// looksForSilence reports whether the Lease renewals of nodes matter, which needs a policy and an unreachable node.
func (o *observer) looksForSilence() bool {
	any := false
	o.policies.Each(func(*v1alpha1.FencePolicy) { any = true })
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
