package podsafety

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
)

// lister is the part of a watch cache that is used here.
type lister[R any] interface {
	Get(name string) (R, bool)
	Each(visit func(R))
}

// wake enqueues objects and passes on changes, without blocking. A pod or a claim is identified by its key
// "namespace/name".
type wake interface {
	pod(key string)
	claim(key string)
	// namespace enqueues a namespace, to add the finalizer to its pods.
	namespace(name string)
	// node enqueues a node, to set or remove the condition of its pods.
	node(name string)
	// forget is called when a pod is gone or no longer held.
	forget(p *pod)
	// working reports whether Run works on the queues.
	working() bool
}

// observer holds the state of the watches, and wakes the reconcilers that depend on a change. It is safe for concurrent
// use by multiple goroutines.
type observer struct {
	rules podsafety.Rules
	// marks reports that the pods of unreachable nodes get the condition NodeUnreachable.
	marks bool
	clock interface{ Now() time.Time }
	wake  wake

	pods       lister[*pod]
	claims     lister[podsafety.Claim]
	namespaces lister[namespace]
	nodes      lister[objects.WatchedNode]
	fences     lister[nodefence.Fence]
	// podsOn holds the pods in the cache by node.
	podsOn objects.Index[cache.ObjectName, *pod]

	mu sync.Mutex
	// tracker, unreachable, waiting, claimsIn, forceRefusedSince and candidates are guarded by mu.
	tracker *podsafety.Tracker
	// unreachable holds the names of the unreachable nodes.
	unreachable map[string]bool
	// waiting holds the held, terminating pods, by node and key.
	waiting map[string]map[string]*pod
	// claimsIn holds the keys of the claims in the cache, by namespace.
	claimsIn          map[string]map[string]bool
	forceRefusedSince time.Time
	// candidates holds the pods that must get the finalizer, until they have it, because the cache lacks pods without it.
	candidates map[string]objects.Pod
}

func newObserver(rules podsafety.Rules, marks bool, clock interface{ Now() time.Time }, wake wake) *observer {
	return &observer{rules: rules, marks: marks, clock: clock, wake: wake, fences: nodefence.None{},
		tracker: podsafety.NewTracker(), candidates: map[string]objects.Pod{}, waiting: map[string]map[string]*pod{},
		claimsIn: map[string]map[string]bool{}, unreachable: map[string]bool{}}
}

// follow creates the caches, which do not run yet. Without a client for fences, it reads no NodeFence.
func (o *observer) follow(clients kube.Clients, fences *client.Client, watches *kube.Watches) []controller.Cache {
	rest := clients.Core.RESTClient()
	labelled := kube.Selection{Labels: podsafety.NamespaceLabel}
	namespaces := kube.NewCacheOf(labelled, rest, "namespaces", &v1.Namespace{}, kube.RecordAll(namespaceOf),
		kube.OnChange[namespace](o.namespaceChanged))
	nodes := kube.NewCache(rest, "nodes", &v1.Node{}, kube.RecordAll(objects.WatchedNodeOf), nodeChanges{o})
	pods := kube.NewCache(rest, "pods", &v1.Pod{}, recordPod(o.modeOf), podChanges{o})
	claims := kube.NewCache(rest, "persistentvolumeclaims", &v1.PersistentVolumeClaim{}, recordClaim, claimChanges{o})
	watches.Share(nodes, pods, claims)
	o.pods, o.claims, o.namespaces, o.nodes = pods, claims, namespaces, nodes
	caches := []controller.Cache{namespaces, nodes, pods, claims}
	if fences != nil {
		fenced := nodefence.NewCache(fences, nodefence.Changes(o.sawFence))
		watches.Share(fenced)
		o.fences = fenced
		caches = append(caches, fenced)
	}
	return caches
}

func (o *observer) modeOf(name string) podsafety.Mode {
	ns, _ := o.namespaces.Get(name)
	return ns.Mode
}

func (o *observer) nodeSeen(name string) objects.NodeSeen { return objects.SeenOf(o.nodes, name) }

// toMark reports whether the pods of a node should have the condition NodeUnreachable: the node controller has not
// heard from it for a long time.
func (o *observer) toMark(name string) bool {
	n, _ := o.nodes.Get(name)
	return o.marks && n.Unreachable
}

// observe returns the facts about a pod without a live read.
func (o *observer) observe(key string) (podsafety.Facts, bool) {
	o.mu.Lock()
	f := podsafety.Facts{Rules: o.rules, ForceRefusedSince: o.forceRefusedSince}
	candidate, offered := o.candidates[key]
	o.mu.Unlock()
	switch p, found := o.pods.Get(key); {
	case found && p.held:
		f.Pod = p.facts()
	case offered:
		f.Pod = candidate
	default:
		return f, false
	}
	f.Mode, f.NodeSeen, f.FenceSeen = o.modeOf(f.Pod.Namespace), o.nodeSeen(f.Pod.Node), o.fenceSeen(f.Pod.Node)
	o.mu.Lock()
	defer o.mu.Unlock()
	f.Storage = o.tracker.Storages[f.Pod.Node]
	return f, true
}

// begin returns a session on these facts, recorded in the tracker.
func (o *observer) begin(f podsafety.Facts, now time.Time) podsafety.Session {
	o.mu.Lock()
	defer o.mu.Unlock()
	return podsafety.Begin(o.tracker, f, now)
}

func (o *observer) answer(s *podsafety.Session, reply podsafety.Reply, sent, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Answer(o.tracker, reply, sent, now)
}

// offer enqueues a pod as a candidate if it must get the finalizer. A candidate that must not any more, such as one
// that became terminating before the write, is dropped: the API server would refuse each write.
func (o *observer) offer(p objects.Pod, key string) {
	f := podsafety.Facts{Rules: o.rules, Mode: o.modeOf(p.Namespace), Pod: p}
	if podsafety.Decide(f, o.clock.Now()).Action != podsafety.AddFinalizer {
		if o.drop(key, p.UID) {
			o.wake.forget(&pod{uid: p.UID, node: p.Node})
		}
		return
	}
	if !o.wake.working() {
		return
	}
	o.mu.Lock()
	o.candidates[key] = p
	o.mu.Unlock()
	o.wake.pod(key)
}

// drop removes a candidate, unless another pod with its name was offered in the meantime.
func (o *observer) drop(key string, uid types.UID) (dropped bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if dropped = o.candidates[key].UID == uid; dropped {
		delete(o.candidates, key)
	}
	return dropped
}

// settle drops the records of a session about a pod that is gone or no longer held by now, because its end may precede
// the last answer.
func (o *observer) settle(key string, p objects.Pod) {
	if now, found := o.pods.Get(key); found && now.uid == p.UID && now.held {
		return
	}
	o.mu.Lock()
	offered := o.candidates[key].UID == p.UID
	if !offered {
		o.tracker.Forget(p.UID)
	}
	o.mu.Unlock()
	if !offered {
		o.wake.forget(&pod{uid: p.UID, node: p.Node})
	}
}

// saw records the state of a held, terminating pod.
func (o *observer) saw(p *pod) {
	if !p.waits() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tracker.Saw(*p.all, o.nodeSeen(p.node), o.clock.Now())
	if o.waiting[p.node] == nil {
		o.waiting[p.node] = map[string]*pod{}
	}
	o.waiting[p.node][p.key()] = p
}

// waitingOn returns the held, terminating pods of a node, sorted by key.
func (o *observer) waitingOn(node string) (pods []*pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(o.waiting[node])) {
		pods = append(pods, o.waiting[node][key])
	}
	return pods
}

// waitingAll returns the nodes of all held, terminating pods, and the UIDs of these pods.
func (o *observer) waitingAll() (nodes []string, pods map[types.UID]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	pods = map[types.UID]bool{}
	for node, on := range o.waiting {
		nodes = append(nodes, node)
		for _, p := range on {
			pods[p.uid] = true
		}
	}
	return nodes, pods
}

// forget drops the records of a pod that is gone or no longer held.
func (o *observer) forget(p *pod) {
	o.mu.Lock()
	o.tracker.Forget(p.uid)
	if last := o.waiting[p.node][p.key()]; last != nil && last.uid == p.uid {
		delete(o.waiting[p.node], p.key())
		if len(o.waiting[p.node]) == 0 {
			delete(o.waiting, p.node)
		}
	}
	o.mu.Unlock()
	o.wake.forget(p)
	// A running pod has no volumes in its record: its claims are decided again in a while.
	for _, name := range p.facts().Ephemeral {
		o.wake.claim(claimKey(p.namespace, name))
	}
}

// podChanges handles the events of the watch of pods.
type podChanges struct{ *observer }

func (o podChanges) Added(now *pod) {
	o.podsOn.Move("", now.node, now.objectName(), now)
	o.saw(now)
	o.concern(now)
}

func (o podChanges) Updated(before, now *pod) {
	o.podsOn.Move(before.node, now.node, now.objectName(), now)
	if before.uid != now.uid || before.held && !now.held {
		o.forget(before)
	}
	o.saw(now)
	o.concern(now)
}

func (o podChanges) Deleted(last *pod, _ bool) {
	o.podsOn.Move(last.node, "", last.objectName(), nil)
	o.forget(last)
}

// LeftOut implements kube.LeftOutHandler.
func (o podChanges) LeftOut(now *pod) {
	if now != nil {
		o.concern(now)
	}
}

// LeftOutDeleted implements kube.LeftOutHandler.
func (o podChanges) LeftOutDeleted(last *pod) {
	if last != nil && o.drop(last.key(), last.uid) {
		o.wake.forget(last)
	}
}

// concern wakes the reconcilers that depend on the state of a pod.
func (o *observer) concern(p *pod) {
	switch {
	case !p.held:
		o.offer(*p.all, p.key())
	case o.due(p):
		o.wake.pod(p.key())
	}
	if o.toMark(p.node) != p.marked {
		o.wake.node(p.node)
	}
}

// due reports whether a held pod may need work. A pod without a node is on none that is absent.
func (o *observer) due(p *pod) bool {
	return p.waits() || p.held && o.rules.CollectOrphans && o.nodeSeen(p.node) == objects.NodeAbsent
}

// namespaceChanged handles the events of the watch of namespaces. A namespace that is gone or off wakes nothing,
// because held pods stay held until they have ended.
func (o *observer) namespaceChanged(before, now namespace) {
	if before.Mode == now.Mode {
		return
	}
	if now.Mode == podsafety.ModeEnforce {
		o.wake.namespace(now.Name)
	}
	if now.Mode == podsafety.ModeOff || !o.marks {
		return
	}
	o.mu.Lock()
	names := slices.Collect(maps.Keys(o.unreachable))
	o.mu.Unlock()
	for _, name := range names {
		o.wake.node(name)
	}
}

// nodeChanges handles the events of the watch of nodes.
type nodeChanges struct{ *observer }

func (o nodeChanges) Added(now objects.WatchedNode) {
	o.sawReach(now.Name, now.Unreachable)
	o.sawNode(now.Name, objects.NodeAbsent, now.Seen)
}

func (o nodeChanges) Updated(before, now objects.WatchedNode) {
	if before != now {
		o.sawReach(now.Name, now.Unreachable)
		o.sawNode(now.Name, before.Seen, now.Seen)
	}
}

func (o nodeChanges) Deleted(last objects.WatchedNode, _ bool) {
	o.sawReach(last.Name, false)
	o.sawNode(last.Name, last.Seen, objects.NodeAbsent)
}

func (o *observer) sawReach(node string, unreachable bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if delete(o.unreachable, node); unreachable {
		o.unreachable[node] = true
	}
}

// first returns the names of all objects that may need work at the start.
func (o *observer) first() (pods, namespaces, nodes []string) {
	marked := map[string]bool{}
	o.pods.Each(func(p *pod) {
		if o.due(p) {
			pods = append(pods, p.key())
		}
		if p.marked {
			marked[p.node] = true
		}
	})
	o.namespaces.Each(func(n namespace) {
		if n.Mode == podsafety.ModeEnforce {
			namespaces = append(namespaces, n.Name)
		}
	})
	o.nodes.Each(func(n objects.WatchedNode) {
		if o.marks && n.Unreachable {
			marked[n.Name] = true
		}
	})
	for name := range marked {
		nodes = append(nodes, name)
	}
	return pods, namespaces, nodes
}
