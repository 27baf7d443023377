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

// lister is what is read of a watch cache, by name.
type lister[R any] interface {
	Get(name string) (R, bool)
	Each(visit func(R))
}

// wake has objects worked on; its methods do not block.
type wake interface {
	fence(name string)
	// forgetFence is called when a NodeFence is gone.
	forgetFence(fence types.UID)
	policy(name string)
	// forgetPolicy is called when a FencePolicy is gone.
	forgetPolicy(p *policy)
	// reached is called when a node is not unreachable.
	reached(name string)
}

// observer keeps what the watches show, and wakes what a change concerns. It is safe for concurrent use.
type observer struct {
	rules fencing.Rules
	wake  wake

	fences   lister[*fence]
	nodes    lister[*node]
	policies lister[*policy]

	mu sync.Mutex
	// tracker and judged are guarded by mu.
	tracker *fencing.Tracker
	// judged are the keys of the nodes that a policy was reported to judge, by the UID of the policy.
	judged map[types.UID]map[types.UID]bool
}

func newObserver(rules fencing.Rules, wake wake) *observer {
	return &observer{rules: rules, wake: wake, tracker: fencing.NewTracker(),
		judged: map[types.UID]map[types.UID]bool{}}
}

// follow makes the caches, which do not run yet.
func (o *observer) follow(clients clients) []controller.Cache {
	nodes := kube.NewCache(clients.Core.RESTClient(), "nodes", &v1.Node{}, recordNode, nodeChanges{o})
	fences := kube.NewCache(clients.own.REST, client.FenceResource, &v1alpha1.NodeFence{}, recordFence, fenceChanges{o})
	policies := kube.NewCache(clients.own.REST, client.PolicyResource, &v1alpha1.FencePolicy{}, recordPolicy,
		policyChanges{o})
	o.nodes, o.fences, o.policies = nodes, fences, policies
	return []controller.Cache{nodes, fences, policies}
}

// observe returns what is known about the fence of a node without a live read, false where there is neither a NodeFence
// nor the taint of one.
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

// begin returns a session on these facts.
func (o *observer) begin(f fencing.Facts, now time.Time) fencing.Session {
	o.mu.Lock()
	defer o.mu.Unlock()
	return fencing.Begin(o.tracker, f, now)
}

// answer has a session take a reply.
func (o *observer) answer(s *fencing.Session, reply fencing.Reply, sent, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Answer(o.tracker, reply, sent, now)
}

// settle forgets what a session has recorded of a NodeFence that has gone meanwhile.
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

// began returns when a node was unreachable, where a policy asked for its fence, else when its fence was asked for.
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

// first returns what there may be to do at the start.
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
