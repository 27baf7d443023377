package podsafety

import (
	"sync"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
)

// wake enqueues objects and passes on changes, without blocking. A pod or a claim is identified by its key
// "namespace/name".
type wake struct {
	pod, claim func(key string)
	// namespace enqueues a namespace, to add the finalizer to its pods, and node enqueues a node, to set or remove the
	// condition of its pods.
	namespace, node func(name string)
	// forget is called when a pod is gone or no longer held.
	forget func(p *pod)
	// working reports whether Run works on the queues.
	working func() bool
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
	// podsReached reports whether the watch of pods has delivered all events up to a resourceVersion.
	podsReached func(version string) bool
	// podsOn holds the pods in the cache by node, and waiting the held, terminating ones among them.
	podsOn, waiting objects.Index[cache.ObjectName, *pod]
	// claimsIn holds the keys of the claims in the cache by namespace.
	claimsIn objects.Index[string, string]

	mu sync.Mutex
	// tracker, unreachable, forceRefusedBy, forceRefusedSince, enforcedSince and candidates are guarded by mu.
	tracker *podsafety.Tracker
	// unreachable holds the names of the unreachable nodes.
	unreachable map[string]bool
	// forceRefusedBy identifies the objects that refuse force deletions, which all API servers do from forceRefusedSince
	// on, in the namespaces that the watch has shown as enforced since enforcedSince.
	forceRefusedBy    string
	forceRefusedSince time.Time
	enforcedSince     map[string]time.Time
	// candidates holds the pods that must get the finalizer, until they have it, because the cache lacks pods without it.
	candidates map[string]objects.Pod
}

func newObserver(rules podsafety.Rules, marks bool, clock interface{ Now() time.Time }, wake wake) *observer {
	return &observer{rules: rules, marks: marks, clock: clock, wake: wake, fences: nodefence.None{},
		podsReached: unknown,
		tracker:     podsafety.NewTracker(), candidates: map[string]objects.Pod{}, unreachable: map[string]bool{},
		enforcedSince: map[string]time.Time{}}
}

// unknown is the answer about a watch that does not run.
func unknown(string) bool { return false }

// follow creates the caches, which do not run yet. Without a client for fences, it reads no NodeFence. With evidence,
// fences in force are evidence; all of them may hinder an unmount.
func (o *observer) follow(clients kube.Clients, fences *client.Client, evidence bool,
	watches *kube.Watches) []controller.Cache {
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
	o.podsReached = pods.Reached
	caches := []controller.Cache{namespaces, nodes, pods, claims}
	if fences != nil {
		fenced := nodefence.NewCache(fences, nodefence.Changes(o.sawFence))
		watches.Share(fenced)
		if evidence {
			o.fences = fenced
		}
		caches = append(caches, fenced)
	}
	return caches
}

// namespace is the cached record of a namespace with NamespaceLabel.
type namespace = objects.Namespace[podsafety.Mode]

func namespaceOf(o *v1.Namespace) namespace {
	return namespace{Name: o.Name, Mode: podsafety.ModeOf(o.Labels)}
}

func (o *observer) modeOf(name string) podsafety.Mode {
	ns, _ := o.namespaces.Get(name)
	return ns.Mode
}

// namespaceChanged handles the events of the watch of namespaces. A namespace that is gone or off wakes nothing,
// because held pods stay held until they have ended. The nodes of its pods to mark are found by a list of its pods, as
// thousands of nodes may be unreachable.
func (o *observer) namespaceChanged(before, now namespace) {
	if before.Mode == now.Mode {
		return
	}
	o.sawMode(before.Name, now)
	o.mu.Lock()
	marks := o.marks && len(o.unreachable) > 0
	o.mu.Unlock()
	if now.Mode == podsafety.ModeEnforce || now.Mode != podsafety.ModeOff && marks {
		o.wake.namespace(now.Name)
	}
}

func (o *observer) nodeSeen(name string) objects.NodeSeen { return objects.SeenOf(o.nodes, name) }

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
