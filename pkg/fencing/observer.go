package fencing

import (
	"sync"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// lister is the part of a watch cache that is used here, by name.
type lister[R any] interface {
	Get(name string) (R, bool)
	Each(visit func(R))
}

// wake enqueues objects and passes on changes, without blocking.
type wake interface {
	fence(name string)
	// forgetFence is called after the deletion of a NodeFence.
	forgetFence(fence types.UID)
	policy(name string)
	// forgetPolicy is called after the deletion of a FencePolicy.
	forgetPolicy(p *policy)
	// reached is called when a node is not unreachable.
	reached(name string)
}

// observer holds the state of the watches, and wakes the reconcilers that depend on a change. Its methods are safe for
// concurrent use.
type observer struct {
	rules fencing.Rules
	wake  wake

	fences   lister[*fence]
	nodes    lister[*node]
	policies lister[*policy]

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
	nodes := kube.NewCache(clients.Core.RESTClient(), "nodes", &v1.Node{}, kube.RecordAll(wholeNodeOf), nodeChanges{o})
	fences := kube.NewCache(clients.own.REST, client.FenceResource, &v1alpha1.NodeFence{}, kube.RecordAll(fenceOf),
		kube.OnChange[*fence](o.fenceChanged))
	policies := kube.NewCache(clients.own.REST, client.PolicyResource, &v1alpha1.FencePolicy{}, kube.RecordAll(policyOf),
		kube.OnChange[*policy](o.policyChanged))
	watches.Share(nodes, fences)
	o.nodes, o.fences, o.policies = nodes, fences, policies
	return []controller.Cache{nodes, fences, policies}
}

// observe returns the facts about the fence of a node without a live read. It returns false if the node has neither a
// NodeFence nor the taint of one.
func (o *observer) observe(name string) (fencing.Facts, bool) {
	facts := fencing.Facts{Rules: o.rules, Fence: fencing.Fence{Name: name}}
	f, found := o.fences.Get(name)
	if found {
		facts.Fence = f.Fence
	}
	n, seen := o.nodes.Get(name)
	facts.TaintSeen = seen && n.tainted
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
	if now, found := o.fences.Get(f.Name); !found || now.UID != f.UID {
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
	var created time.Time
	if seen, found := o.fences.Get(f.Name); found {
		created = seen.created
	}
	n, found := o.nodes.Get(f.Name)
	if found && n.unreachable && f.Spec.PolicyName != "" && n.since.Before(created) {
		return n.since
	}
	return created
}

// first returns the names of all objects that may need work at the start.
func (o *observer) first() (fences, policies []string) {
	o.fences.Each(func(f *fence) { fences = append(fences, f.Name) })
	o.nodes.Each(func(n *node) {
		if _, found := o.fences.Get(n.name); n.tainted && !found {
			fences = append(fences, n.name)
		}
	})
	o.policies.Each(func(p *policy) { policies = append(policies, p.name) })
	return fences, policies
}
