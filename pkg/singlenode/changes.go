package singlenode

import (
	"cmp"
	"reflect"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

func (o *observer) podHandler() kube.OnEachChange[*pod] {
	return kube.OnEachChange[*pod]{OnChange: o.podChanged, LeftOutChange: o.leftOutChanged}
}

// podChanged handles the events of the watch of pods.
func (o *observer) podChanged(before, now *pod) {
	o.index(before, now)
	switch {
	case before == nil:
	case now == nil || before.uid != now.uid:
		o.ended(before)
	case !now.gated():
		o.showedNoGate(now.uid)
		o.wake.forgetPod(before.uid)
	}
	if now != nil && (before == nil || !before.same(now)) {
		o.concern(now)
	}
}

// leftOutChanged handles the events of pods that the cache leaves out.
func (o *observer) leftOutChanged(before, now *pod) {
	switch {
	case now != nil:
		o.concern(now)
	case before != nil:
		o.ended(before)
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

// claimChanged handles the events of the watch of claims.
func (o *observer) claimChanged(before, now *claim) {
	last := cmp.Or(now, before)
	same := before != nil && now != nil && before.UID == now.UID
	if before != nil {
		o.showedClaim(before.UID)
		if !same || !now.marked() {
			o.wake.forgetClaim(before.UID)
		}
	}
	switch {
	case before == nil:
	case !same, now.marked():
		o.noTurn(last.key())
	case before.marked() && o.wake.working():
		o.beginTurn(last.key())
	}
	if !same || !before.same(now) {
		o.concernClaim(last)
	}
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

// classChanged handles the events of the watch of StorageClasses.
func (o *observer) classChanged(before, now class) {
	if before != now {
		o.wakeGated(o.gatedIn.All())
	}
}

// volumeChanged handles the events of the watch of PVs. Nothing depends on a PV that is gone.
func (o *observer) volumeChanged(before, now volume) {
	if !reflect.DeepEqual(before, now) {
		o.concernVolume(now)
	}
}

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

// nodeChanged handles the events of the watch of nodes, also in a standby replica, and enqueues everything that a
// change affects.
func (o *observer) nodeChanged(before, now objects.WatchedNode) {
	if before.State() == now.State() {
		return
	}
	name := cmp.Or(now.Name, before.Name)
	o.mu.Lock()
	o.tracker.Storages.SawNode(name, before.State(), now.State(), o.clock.Now())
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
