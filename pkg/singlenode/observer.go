package singlenode

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
)

// wake enqueues objects. Its methods do not block, and keys are "namespace/name".
type wake interface {
	// pod enqueues a gated pod, and claim a claim that has a lock.
	pod(key string)
	claim(key string)
	// forgetPod and forgetClaim are called for an object that is gone, or needs no more work.
	forgetPod(uid types.UID)
	forgetClaim(uid types.UID)
	// working reports whether enqueued objects are worked on, which starts with Run.
	working() bool
}

// observer keeps the state of the watches and enqueues the objects that a change affects. It is safe for concurrent
// use.
type observer struct {
	rules singlenode.Rules
	clock interface{ Now() time.Time }
	wake  wake

	namespaces kube.Lister[namespace]
	pods       kube.Lister[*pod]
	claims     kube.Lister[*claim]
	classes    kube.Lister[class]
	volumes    kube.Lister[volume]
	nodes      kube.Lister[objects.WatchedNode]
	fences     kube.Lister[nodefence.Fence]
	// podsOn has the pods in the cache by node, and gatedIn the keys of the gated pods by namespace.
	podsOn  objects.Index[cache.ObjectName, *pod]
	gatedIn objects.Index[string, string]

	mu sync.Mutex
	// The rest is guarded by mu.
	tracker *singlenode.Tracker
	// gated has the gated pods by the key of each claim that they name, the oldest first.
	gated map[string][]waiting
	// freed has the claims whose lock became free, by key, while several pods waited, and has not been taken since.
	freed map[string]time.Time
	// outdated has, by UID, the version in the cache of each claim whose lock this process has freed since.
	outdated map[types.UID]string
}

func newObserver(rules singlenode.Rules, clock interface{ Now() time.Time }, wake wake) *observer {
	return &observer{rules: rules, clock: clock, wake: wake, fences: nodefence.None{}, tracker: singlenode.NewTracker(),
		gated: map[string][]waiting{}, freed: map[string]time.Time{}, outdated: map[types.UID]string{}}
}

// follow creates the caches without starting them. Without a client for NodeFences, none are watched.
func (o *observer) follow(clients kube.Clients, fences *client.Client, watches *kube.Watches) []controller.Cache {
	core, storage := clients.Core.RESTClient(), clients.Storage.RESTClient()
	namespaces := kube.NewCacheOf(kube.Selection{Labels: singlenode.Label}, core, "namespaces", &v1.Namespace{},
		kube.RecordAll(namespaceOf), kube.OnChange[namespace](o.namespaceChanged))
	claims := kube.NewCache(core, "persistentvolumeclaims", &v1.PersistentVolumeClaim{}, recordClaim(o.modeOf),
		kube.OnChange[*claim](o.claimChanged))
	pods := kube.NewCache(core, "pods", &v1.Pod{}, recordPod(o), o.podHandler())
	classes := kube.NewCache(storage, "storageclasses", &storagev1.StorageClass{}, kube.RecordAll(classOf),
		kube.OnChange[class](o.classChanged))
	volumes := kube.NewCache(core, "persistentvolumes", &v1.PersistentVolume{}, recordVolume(fences != nil),
		kube.OnChange[volume](o.volumeChanged))
	nodes := kube.NewCache(core, "nodes", &v1.Node{}, kube.RecordAll(objects.WatchedNodeOf),
		kube.OnChange[objects.WatchedNode](o.nodeChanged))
	watches.Share(claims, pods, volumes, nodes)
	o.namespaces, o.claims, o.pods, o.classes, o.volumes, o.nodes = namespaces, claims, pods, classes, volumes, nodes
	caches := []controller.Cache{namespaces, after{claims, namespaces}, after{pods, namespaces}, classes, volumes, nodes}
	if fences != nil {
		fenced := nodefence.NewCache(fences, nodefence.Changes(o.sawFence))
		watches.Share(fenced)
		o.fences = fenced
		caches = append(caches, fenced)
	}
	return caches
}

// after is a cache that starts once first is filled, because the first lists of pods and claims depend on the
// namespaces.
type after struct {
	controller.Cache
	first controller.Cache
}

// Run implements controller.Cache.
func (a after) Run(ctx context.Context) {
	select {
	case <-a.first.Sync().Done():
		a.Cache.Run(ctx)
	case <-ctx.Done():
	}
}

// modeOf returns the mode of a namespace from the watch cache, which holds only namespaces with Label.
func (o *observer) modeOf(name string) singlenode.Mode {
	if ns, found := o.namespaces.Get(name); found {
		return ns.Mode
	}
	return singlenode.ModeOff
}

// nodeSeen returns the state of a node in the watch cache.
func (o *observer) nodeSeen(name string) objects.NodeSeen { return objects.SeenOf(o.nodes, name) }

// user adds the records about a pod and its node from the watches.
func (o *observer) user(p singlenode.Pod) singlenode.User {
	fence, _ := o.fences.Get(p.Node)
	u := singlenode.User{Pod: p, NodeSeen: o.nodeSeen(p.Node), FenceSeen: fence.InForce}
	o.mu.Lock()
	defer o.mu.Unlock()
	u.EndedSince, u.Storage = o.tracker.Saw(p, u.NodeSeen, o.clock.Now()), o.tracker.Storages[p.Node]
	return u
}

// current returns the pod under a key in the watch cache, and the same pod after the writes of this process. The lock
// covers both reads: in between, the watch could show a write and end its record, while the pod from the first read is
// older.
func (o *observer) current(key string) (p *pod, written singlenode.Pod, found bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p, found = o.pods.Get(key); !found {
		return nil, singlenode.Pod{}, false
	}
	return p, o.tracker.Expected(p.facts()), true
}

// removedGate records that this process has removed the gate of a pod, unless the watch already shows it. The lock
// orders the record before the next event of the watch.
func (o *observer) removedGate(key string, uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p, found := o.pods.Get(key); found && p.uid == uid && p.gated() {
		o.tracker.RemovedGate(uid)
	}
}

// showedNoGate records that the watch shows a pod without its gate.
func (o *observer) showedNoGate(uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tracker.ShowedNoGate(uid)
}

// holder returns the pod with the name in a lock, from the watch cache.
func (o *observer) holder(c *claim) singlenode.User {
	p, found := o.pods.Get(keyOf(c.Namespace, c.Lock.Name))
	if !found {
		return singlenode.User{}
	}
	return o.user(p.facts())
}

// complete adds to a claim, from the watch caches, whether it needs no lock, and its volume.
//
// ModeOff in the cache does not count as such, because a live read of the namespace with another result precedes any
// use of the claim.
func (o *observer) complete(c *claim) singlenode.Claim {
	mode := o.modeOf(c.Namespace)
	if mode == singlenode.ModeOff {
		mode = singlenode.ModeUnknown
	}
	out := c.Claim
	out.Unasked = o.asking(c, mode).Unasked()
	pv, _ := o.volumes.Get(c.volume)
	out.Volume = pv.Volume
	return out
}

// asking collects everything in the watch caches that asks for the lock of a claim, in a namespace of this mode.
func (o *observer) asking(c *claim, mode singlenode.Mode) singlenode.Asking {
	a := singlenode.Asking{Namespace: mode, Claim: askingLabels(c.asks), ClassSeen: c.class == ""}
	if c.shared {
		a.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
	}
	if class, found := o.classes.Get(c.class); found {
		a.Class, a.ClassSeen = askingLabels(class.asks), true
	}
	if pv, found := o.volumes.Get(c.volume); found {
		a.PV, a.PVSeen = askingLabels(pv.asks), true
	}
	return a
}

// askingLabels returns the labels of an object as far as they matter.
func askingLabels(asks bool) map[string]string {
	if !asks {
		return nil
	}
	return map[string]string{singlenode.Label: singlenode.SelectValue}
}

// observe returns the facts about a pod without a live read.
func (o *observer) observe(key string) (singlenode.Facts, bool) {
	p, written, found := o.current(key)
	if !found {
		return singlenode.Facts{}, false
	}
	f := singlenode.Facts{Rules: o.rules, Mode: o.modeOf(p.namespace), Pod: written}
	for _, name := range p.claims {
		if c, found := o.claims.Get(keyOf(p.namespace, name)); found {
			f.Claims = append(f.Claims, singlenode.ClaimFacts{Claim: o.complete(c), Holder: o.holder(c)})
		}
	}
	return f, true
}

// observeLock returns the facts about the lock of a claim without a live read. It finds no claim while the watch shows
// a lock that this process has freed: the end of a pod is several events, each of which enqueues the lock.
func (o *observer) observeLock(key string) (singlenode.LockFacts, bool) {
	o.mu.Lock() // see current
	c, found := o.claims.Get(key)
	freed := found && o.outdated[c.UID] == c.ResourceVersion
	o.mu.Unlock()
	if !found || freed {
		return singlenode.LockFacts{}, false
	}
	return o.lockFacts(c), true
}

// freedLock records that this process has freed the lock that a claim from the cache has, unless the watch already
// shows a later version.
func (o *observer) freedLock(c singlenode.Claim) {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen, found := o.claims.Get(keyOf(c.Namespace, c.Name))
	if found && seen.UID == c.UID && seen.ResourceVersion == c.ResourceVersion {
		o.outdated[c.UID] = c.ResourceVersion
	}
}

// showedClaim records that the watch shows a later version of a claim, or its end.
func (o *observer) showedClaim(before types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.outdated, before)
}

func (o *observer) lockFacts(c *claim) singlenode.LockFacts {
	return singlenode.LockFacts{Rules: o.rules, Claim: o.complete(c), Holder: o.holder(c)}
}

// concerned reports whether a claim has a lock, or a gated pod waits for it.
func (o *observer) concerned(key string) bool {
	if c, found := o.claims.Get(key); found && c.marked() {
		return true
	}
	return len(o.waiting(key)) > 0
}

// waiting returns the keys of the gated pods that name a claim, the oldest first.
func (o *observer) waiting(claim string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	keys := make([]string, 0, len(o.gated[claim]))
	for _, w := range o.gated[claim] {
		keys = append(keys, w.key)
	}
	return keys
}

// index replaces the entries of a pod in podsOn, gatedIn and gated, with nil for a pod without entries. Each is
// replaced in one step: an update that changes nothing enqueues nothing, so an event of another object, at the same
// time, must find the pod.
func (o *observer) index(before, now *pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	id := cmp.Or(now, before).objectName()
	key := id.String()
	fromNode, fromGated := before.groups()
	toNode, toGated := now.groups()
	o.podsOn.Move(fromNode, toNode, id, now)
	o.gatedIn.Move(fromGated, toGated, key, key)
	if before != nil {
		for _, name := range before.claims {
			claim := keyOf(before.namespace, name)
			left := slices.DeleteFunc(o.gated[claim], func(other waiting) bool { return other.key == key })
			if o.gated[claim] = left; len(left) == 0 {
				delete(o.gated, claim)
			}
		}
	}
	if now != nil && now.gated() {
		for _, name := range now.claims {
			claim := keyOf(now.namespace, name)
			one := waiting{key, now.created}
			i, _ := slices.BinarySearchFunc(o.gated[claim], one, waiting.compare)
			o.gated[claim] = slices.Insert(o.gated[claim], i, one)
		}
	}
}

// first returns the keys of the gated pods and of the claims with a lock, for the start of the work.
func (o *observer) first() (pods, claims []string) {
	o.claims.Each(func(c *claim) {
		if c.marked() {
			claims = append(claims, c.key())
		}
	})
	return o.gatedIn.All(), claims
}
