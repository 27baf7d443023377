package singlenode

import (
	"cmp"
	"reflect"

	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// podChanges handles the events of the watch of pods.
type podChanges struct{ *observer }

func (o podChanges) Added(now *pod) {
	o.index(nil, now)
	o.concern(now)
}

func (o podChanges) Updated(before, now *pod) {
	o.index(before, now)
	if before.uid != now.uid {
		o.ended(before)
	} else if !now.gated() {
		o.showedNoGate(now.uid)
		o.wake.forgetPod(before.uid)
	}
	if !before.same(now) {
		o.concern(now)
	}
}

func (o podChanges) Deleted(last *pod, _ bool) {
	o.index(last, nil)
	o.ended(last)
}

// LeftOut implements kube.LeftOutHandler.
func (o podChanges) LeftOut(now *pod) {
	if now != nil {
		o.concern(now)
	}
}

// LeftOutDeleted implements kube.LeftOutHandler.
func (o podChanges) LeftOutDeleted(last *pod) {
	if last != nil {
		o.ended(last)
	}
}

// concern enqueues everything that the state of a pod affects: the pod, the locks of its claims, and the pods that wait
// for them.
func (o *observer) concern(p *pod) {
	if !o.wake.working() {
		return
	}
	if p.gated() {
		o.wake.pod(p.key())
	}
	o.concernUsed(p, false)
}

// concernUsed enqueues the locks of the claims of a pod, and the pods that wait for it. Pods wait for a gated pod only
// if it has a lock. Once a pod has ended, the pods that wait for its lock are enqueued by the freed claim.
func (o *observer) concernUsed(p *pod, ended bool) {
	for _, name := range p.claims {
		key := keyOf(p.namespace, name)
		c, found := o.claims.Get(key)
		holds := found && c.Lock.UID == p.uid
		if p.gated() && !holds {
			continue
		}
		if found && c.marked() {
			o.wake.claim(key)
		}
		if !holds || !ended {
			o.wakeWaiting(key)
		}
	}
}

// ended drops the records of a pod that is gone.
func (o *observer) ended(p *pod) {
	o.mu.Lock()
	o.tracker.Forget(p.uid)
	o.mu.Unlock()
	o.wake.forgetPod(p.uid)
	if o.wake.working() {
		o.concernUsed(p, true)
	}
}

// claimChanges handles the events of the watch of claims.
type claimChanges struct{ *observer }

func (o claimChanges) Added(now *claim) { o.concernClaim(now) }

func (o claimChanges) Updated(before, now *claim) {
	o.showedClaim(before.UID)
	if before.UID != now.UID || !now.marked() {
		o.wake.forgetClaim(before.UID)
	}
	switch {
	case before.UID != now.UID, now.marked():
		o.noTurn(now.key())
	case before.marked() && o.wake.working():
		o.beginTurn(now.key())
	}
	if !before.same(now) {
		o.concernClaim(now)
	}
}

func (o claimChanges) Deleted(last *claim, _ bool) {
	o.showedClaim(last.UID)
	o.wake.forgetClaim(last.UID)
	o.noTurn(last.key())
	o.concernClaim(last)
}

func (o *observer) concernClaim(c *claim) {
	if !o.wake.working() {
		return
	}
	if c.marked() || o.turn(c.key()) > 0 {
		o.wake.claim(c.key())
	}
	o.wakeWaiting(c.key())
}

// namespaceChanged handles the events of the watch of namespaces. It enqueues the gated pods of the namespace, but not
// its locks, which stay until their holders end.
func (o *observer) namespaceChanged(before, now namespace) {
	if before != now {
		o.wakeGated(o.gatedIn.In(cmp.Or(now.Name, before.Name)))
	}
}

// wakeGated enqueues gated pods.
func (o *observer) wakeGated(keys []string) {
	if !o.wake.working() {
		return
	}
	for _, key := range keys {
		o.wake.pod(key)
	}
}

// classChanges handles the events of the watch of StorageClasses.
type classChanges struct{ *observer }

func (o classChanges) Added(class) { o.wakeGated(o.gatedIn.All()) }

func (o classChanges) Updated(before, now class) {
	if before != now {
		o.wakeGated(o.gatedIn.All())
	}
}

func (o classChanges) Deleted(class, bool) { o.wakeGated(o.gatedIn.All()) }

// volumeChanges handles the events of the watch of PVs.
type volumeChanges struct{ *observer }

func (o volumeChanges) Added(now volume) { o.concernVolume(now) }

func (o volumeChanges) Updated(before, now volume) {
	if !reflect.DeepEqual(before, now) {
		o.concernVolume(now)
	}
}

func (o volumeChanges) Deleted(volume, bool) {}

// concernVolume enqueues the claim of a PV, if it has a lock, and the gated pods that name the claim, since a fence
// covers volumes by their attributes.
func (o *observer) concernVolume(pv volume) {
	if !o.wake.working() {
		return
	}
	key := keyOf(pv.claimNamespace, pv.claimName)
	if c, found := o.claims.Get(key); found && c.marked() {
		o.wake.claim(key)
	}
	o.wakeWaiting(key)
}

// nodeChanges handles the events of the watch of nodes.
type nodeChanges struct{ *observer }

func (o nodeChanges) Added(now objects.WatchedNode) {
	o.sawNode(now.Name, objects.NodeAbsent, now.Seen)
}

func (o nodeChanges) Updated(before, now objects.WatchedNode) {
	if before.Seen != now.Seen {
		o.sawNode(now.Name, before.Seen, now.Seen)
	}
}

func (o nodeChanges) Deleted(last objects.WatchedNode, _ bool) {
	o.sawNode(last.Name, last.Seen, objects.NodeAbsent)
}

// sawNode records a change of a node, also in a standby replica, and enqueues everything that it affects.
func (o *observer) sawNode(name string, before, after objects.NodeSeen) {
	o.mu.Lock()
	o.tracker.Storages.SawNode(name, before, after, o.clock.Now())
	o.mu.Unlock()
	o.wakeNode(name)
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
