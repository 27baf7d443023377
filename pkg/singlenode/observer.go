package singlenode

import (
	"cmp"
	"context"
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

// keyOf returns the key of an object in caches and queues.
func keyOf(namespace, name string) string { return cache.NewObjectName(namespace, name).String() }

// wake enqueues objects without blocking. Keys are "namespace/name".
type wake struct {
	// pod enqueues a gated pod, and claim a claim that has a lock, or a turn.
	pod, claim func(key string)
	// forgetPod and forgetClaim are called for an object that is gone, or needs no more work.
	forgetPod, forgetClaim func(uid types.UID)
	// working reports whether enqueued objects are worked on, which starts with Run.
	working func() bool
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
	pruned  time.Time
	// gated has the gated pods by the key of each claim that they name, the oldest first.
	gated map[string][]waiting
	// turns has the turns by the key of each claim whose lock is free while several pods wait for it.
	turns map[string]turn
	// outdated has, by UID, the version in the cache of each claim whose lock this process has freed since.
	outdated map[types.UID]string
}

func newObserver(rules singlenode.Rules, clock interface{ Now() time.Time }, wake wake) *observer {
	return &observer{rules: rules, clock: clock, wake: wake, fences: nodefence.None{}, tracker: singlenode.NewTracker(),
		gated: map[string][]waiting{}, turns: map[string]turn{}, outdated: map[types.UID]string{}}
}

// follow creates the caches without starting them. Without a client for NodeFences, none are watched. With evidence,
// fences in force are evidence; all of them may hinder an unmount.
func (o *observer) follow(clients kube.Clients, fences *client.Client, evidence bool,
	watches *kube.Watches) []controller.Cache {
	core, storage := clients.Core.RESTClient(), clients.Storage.RESTClient()
	namespaces := kube.NewCacheOf(kube.Selection{Labels: singlenode.Label}, core, "namespaces", &v1.Namespace{},
		kube.RecordAll(namespaceOf), kube.OnChange[namespace](o.namespaceChanged))
	claims := kube.NewCache(core, "persistentvolumeclaims", &v1.PersistentVolumeClaim{}, recordClaim(o.modeOf),
		kube.OnChange[*claim](o.claimChanged))
	pods := kube.NewCache(core, "pods", &v1.Pod{}, recordPod(o), o.podHandler())
	classes := kube.NewCache(storage, "storageclasses", &storagev1.StorageClass{}, kube.RecordAll(classOf),
		kube.OnChange[class](o.classChanged))
	volumes := kube.NewCache(core, "persistentvolumes", &v1.PersistentVolume{}, recordVolume(evidence),
		kube.OnChange[volume](o.volumeChanged))
	nodes := kube.NewCache(core, "nodes", &v1.Node{}, kube.RecordAll(objects.WatchedNodeOf),
		kube.OnChange[objects.WatchedNode](o.nodeChanged))
	watches.Share(claims, pods, volumes, nodes)
	o.namespaces, o.claims, o.pods, o.classes, o.volumes, o.nodes = namespaces, claims, pods, classes, volumes, nodes
	caches := []controller.Cache{namespaces, after{claims, namespaces}, after{pods, namespaces}, classes, volumes, nodes}
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

// nodeSeen returns the state of a node in the watch cache.
func (o *observer) nodeSeen(name string) objects.NodeSeen { return objects.SeenOf(o.nodes, name) }

// nodeChanged handles the events of the watch of nodes, also in a standby replica, and enqueues everything that a
// change affects.
func (o *observer) nodeChanged(before, now objects.WatchedNode) {
	name := cmp.Or(now.Name, before.Name)
	o.mu.Lock()
	o.tracker.Storages.SawNode(name, before, now, o.clock.Now())
	o.mu.Unlock()
	if before.State() != now.State() {
		o.wakeNode(name)
	}
}

// wakeNode enqueues everything that the pods on a node affect: the reasons of waiting pods and locks depend on the
// node, and a fence may free a lock.
func (o *observer) wakeNode(name string) {
	if !o.wake.working() {
		return
	}
	for _, p := range o.podsOn.In(name) {
		o.concernUsed(p, false)
	}
}

// sawFence records the state of a fence and enqueues everything that it affects.
func (o *observer) sawFence(f nodefence.Fence) {
	o.mu.Lock()
	o.tracker.Storages.Saw(f.Node, f.KeepsVolumes, o.clock.Now())
	o.mu.Unlock()
	o.wakeNode(f.Node)
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
