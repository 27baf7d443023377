package podsafety

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unique"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
)

// pod is the cached record of a held or marked pod. It is small for pods that are held and run, which are most of them.
type pod struct {
	namespace, name string
	uid             types.UID
	node            string
	held            bool
	// marked reports the condition NodeUnreachable.
	marked bool
	// all is the full record for decisions, or nil for a held pod that is not terminating.
	all *objects.Pod
}

// podOf returns the record of a Pod, which keeps no reference to o.
func podOf(o *v1.Pod) *pod {
	p := &pod{
		namespace: unique.Make(o.Namespace).Value(), name: o.Name, uid: o.UID, node: unique.Make(o.Spec.NodeName).Value(),
		held: slices.Contains(o.Finalizers, objects.RunningFinalizer), marked: isMarked(o),
	}
	if !p.held || o.DeletionTimestamp != nil {
		all := objects.PodOf(o)
		p.all = &all
	}
	return p
}

func isMarked(o *v1.Pod) bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == objects.NodeUnreachable
	})
}

func (p *pod) objectName() cache.ObjectName { return cache.NewObjectName(p.namespace, p.name) }

// on returns the name of the pod's node, or "" for no pod.
func (p *pod) on() string {
	if p == nil {
		return ""
	}
	return p.node
}

func (p *pod) key() string { return p.objectName().String() }

// facts returns the record for decisions, which for a running pod consists of its identity and node.
func (p *pod) facts() objects.Pod {
	if p.all != nil {
		return *p.all
	}
	return objects.Pod{Namespace: p.namespace, Name: p.name, UID: p.uid, Node: p.node, Held: p.held}
}

// waits reports whether the pod is held and terminating.
func (p *pod) waits() bool { return p.held && p.all != nil && p.all.Terminating }

// recordPod keeps pods that are held or marked. The record of any other pod is not cached, and nil unless its namespace
// asks for pod safety.
func recordPod(modeOf func(namespace string) podsafety.Mode) func(runtime.Object, bool) (*pod, bool, error) {
	return func(object runtime.Object, known bool) (*pod, bool, error) {
		o, ok := object.(*v1.Pod)
		if !ok {
			return nil, false, fmt.Errorf("watch pods: got a %T", object)
		}
		keep := slices.Contains(o.Finalizers, objects.RunningFinalizer) || isMarked(o)
		if !keep && !known && modeOf(o.Namespace) == podsafety.ModeOff {
			return nil, false, nil
		}
		return podOf(o), keep, nil
	}
}

// namespace is the cached record of a namespace with NamespaceLabel.
type namespace = objects.Namespace[podsafety.Mode]

func namespaceOf(o *v1.Namespace) namespace {
	return namespace{Name: o.Name, Mode: podsafety.ModeOf(o.Labels)}
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

	pods       kube.Lister[*pod]
	claims     kube.Lister[podsafety.Claim]
	namespaces kube.Lister[namespace]
	nodes      kube.Lister[objects.WatchedNode]
	fences     kube.Lister[nodefence.Fence]
	// podsOn holds the pods in the cache by node, and waiting the held, terminating ones among them.
	podsOn, waiting objects.Index[cache.ObjectName, *pod]
	// claimsIn holds the keys of the claims in the cache by namespace.
	claimsIn objects.Index[string, string]

	mu sync.Mutex
	// tracker, unreachable, forceRefusedSince and candidates are guarded by mu.
	tracker *podsafety.Tracker
	// unreachable holds the names of the unreachable nodes.
	unreachable       map[string]bool
	forceRefusedSince time.Time
	// candidates holds the pods that must get the finalizer, until they have it, because the cache lacks pods without it.
	candidates map[string]objects.Pod
}

func newObserver(rules podsafety.Rules, marks bool, clock interface{ Now() time.Time }, wake wake) *observer {
	return &observer{rules: rules, marks: marks, clock: clock, wake: wake, fences: nodefence.None{},
		tracker: podsafety.NewTracker(), candidates: map[string]objects.Pod{}, unreachable: map[string]bool{}}
}

// follow creates the caches, which do not run yet. Without a client for fences, it reads no NodeFence.
func (o *observer) follow(clients kube.Clients, fences *client.Client, watches *kube.Watches) []controller.Cache {
	rest := clients.Core.RESTClient()
	labelled := kube.Selection{Labels: podsafety.NamespaceLabel}
	namespaces := kube.NewCacheOf(labelled, rest, "namespaces", &v1.Namespace{}, kube.RecordAll(namespaceOf),
		kube.OnChange[namespace](o.namespaceChanged))
	nodes := kube.NewCache(rest, "nodes", &v1.Node{}, kube.RecordAll(objects.WatchedNodeOf),
		kube.OnChange[objects.WatchedNode](o.nodeChanged))
	pods := kube.NewCache(rest, "pods", &v1.Pod{}, recordPod(o.modeOf), o.podHandler())
	claims := kube.NewCache(rest, "persistentvolumeclaims", &v1.PersistentVolumeClaim{}, recordClaim,
		kube.OnChange[podsafety.Claim](o.claimChanged))
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
	o.tracker.Saw(*p.all, o.nodeSeen(p.node), o.clock.Now())
	o.mu.Unlock()
	o.waiting.Move("", p.node, p.objectName(), p)
}

// waitingOn returns the held, terminating pods of a node, sorted by key.
func (o *observer) waitingOn(node string) []*pod {
	pods := o.waiting.In(node)
	slices.SortFunc(pods, func(a, b *pod) int { return cmp.Compare(a.key(), b.key()) })
	return pods
}

// waitingAll returns the nodes of all held, terminating pods, and the UIDs of these pods.
func (o *observer) waitingAll() (nodes []string, pods map[types.UID]bool) {
	pods = map[types.UID]bool{}
	for _, p := range o.waiting.All() {
		nodes, pods[p.uid] = append(nodes, p.node), true
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), pods
}

// forget drops the records of a pod that is gone or no longer held.
func (o *observer) forget(p *pod) {
	o.mu.Lock()
	o.tracker.Forget(p.uid)
	o.mu.Unlock()
	o.waiting.Move(p.node, "", p.objectName(), nil)
	o.wake.forget(p)
	// A running pod has no volumes in its record: its claims are decided again in a while.
	for _, name := range p.facts().Ephemeral {
		o.wake.claim(claimKey(p.namespace, name))
	}
}

func (o *observer) podHandler() kube.OnEachChange[*pod] {
	return kube.OnEachChange[*pod]{OnChange: o.podChanged, LeftOutChange: o.leftOutChanged}
}

// podChanged handles the events of the watch of pods.
func (o *observer) podChanged(before, now *pod) {
	o.podsOn.Move(before.on(), now.on(), cmp.Or(now, before).objectName(), now)
	if before != nil && (now == nil || before.uid != now.uid || before.held && !now.held) {
		o.forget(before)
	}
	if now != nil {
		o.saw(now)
		o.concern(now)
	}
}

// leftOutChanged handles the events of pods that the cache leaves out.
func (o *observer) leftOutChanged(before, now *pod) {
	switch {
	case now != nil:
		o.concern(now)
	case before != nil && o.drop(before.key(), before.uid):
		o.wake.forget(before)
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
