package reclaim

import (
	"sync"
	"time"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// watchCaches creates the caches without running them.
func (r *Controller) watchCaches(clients kube.Clients) {
	r.pvCache = kube.NewTypedCache(clients.Core.PersistentVolumes(), "persistentvolumes", &v1.PersistentVolume{},
		kube.RecordSome(r.recordPV), pvEvents{r})
	r.attachmentCache = kube.NewTypedCache(clients.Storage.VolumeAttachments(), "volumeattachments",
		&storagev1.VolumeAttachment{}, kube.RecordAll(attachedPV), attachmentEvents{r})
}

// recordPV caches the PVs that the driver owns or that name a volume of it, except PVs that are surely another node's.
func (r *Controller) recordPV(api *v1.PersistentVolume, known bool) (_ *volume.PV, keep bool) {
	pv := volume.At(r.cfg.Node, api)
	switch {
	case pv.Reach != volume.ReachElsewhere && (pv.OwnedBy(r.driver) || pv.Driver == r.driver):
		pv.Intern()
		return &pv, true
	case known:
		return &volume.PV{Name: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion}, true
	}
	return nil, false
}

func (r *Controller) take(event func(*reclaim.Engine, time.Time) reclaim.Effects) reclaim.Effects {
	now := r.cfg.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	return event(r.engine, now)
}

// apply carries out the effects of an event.
func (r *Controller) apply(fx reclaim.Effects) {
	if fx.Tripped {
		r.syncBrakeSoon()
	}
	if fx.Forgotten != "" {
		r.forget(fx.Forgotten)
	}
	for _, key := range fx.Keys {
		r.enqueue(key)
	}
}

// settled enqueues the PV of a volume whose entry in the in-flight log is gone. On one node it may have another name.
func (r *Controller) settled(name string) {
	r.enqueue(name)
	if r.cfg.Node != nil {
		r.enqueue(volume.ApartName(name, r.cfg.Node.Name))
	}
}

// forget drops the reports and the awaited versions of a PV that has ended.
func (r *Controller) forget(pv types.UID) {
	r.recorder.Forget(pv)
	r.awaited.forget(pv)
	r.awaitedGone.forget(pv)
}

type pvEvents struct{ *Controller }

func (r pvEvents) Added(pv *volume.PV) {
	r.apply(r.take(func(e *reclaim.Engine, now time.Time) reclaim.Effects { return e.PVAdded(pv, now) }))
	r.noteMissed(nil, pv)
	r.tell(pv)
}

func (r pvEvents) Updated(before, pv *volume.PV) {
	fx := r.take(func(e *reclaim.Engine, now time.Time) reclaim.Effects { return e.PVUpdated(before, pv, now) })
	if fx.Due {
		r.traces.begin(*pv) // before a worker can begin one as resumed
	}
	r.apply(fx)
	if before.UID != pv.UID {
		r.tell(before)
		r.noteMissed(nil, pv)
		r.tell(pv)
		return
	}
	r.noteMissed(before, pv)
}

func (r pvEvents) Deleted(last *volume.PV, final bool) {
	r.apply(r.take(func(e *reclaim.Engine, now time.Time) reclaim.Effects { return e.PVDeleted(last, final, now) }))
	r.tell(last)
}

func (r pvEvents) Listed() {
	for _, listed := range r.listFollowers.list() {
		listed()
	}
}

type attachmentEvents struct{ *Controller }

func (r attachmentEvents) Added(pv string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.engine.AttachmentAdded(pv)
}

func (r attachmentEvents) Updated(before, pv string) {
	if before != pv {
		r.Deleted(before, true)
		r.Added(pv)
	}
}

func (r attachmentEvents) Deleted(pv string, _ bool) {
	r.apply(r.take(func(e *reclaim.Engine, _ time.Time) reclaim.Effects { return e.AttachmentDeleted(pv) }))
}

// ClaimShown records a claim from a watch of claims: from each event other than DELETED, and from each item of a list.
// Together with ClaimDeleted it spares the read of a claim that has just ended; without the two, each claim is read.
// Both are called in the order of the watch, from its beginning. They do not block and are safe for concurrent use.
func (r *Controller) ClaimShown(claim *v1.PersistentVolumeClaim) {
	if claim.Spec.VolumeName == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.engine.ClaimShown(claim.Spec.VolumeName)
}

// ClaimDeleted records a DELETED event from the watch of claims, with the claim's last state. An end without an event
// proves nothing and must not be passed: neither a claim that is missing from a new list, nor an informer's
// DeletedFinalStateUnknown.
func (r *Controller) ClaimDeleted(last *v1.PersistentVolumeClaim) {
	if last.Spec.VolumeName == "" {
		return
	}
	r.apply(r.take(func(e *reclaim.Engine, now time.Time) reclaim.Effects {
		return e.ClaimDeleted(last.UID, last.Spec.VolumeName, now)
	}))
}

func (r *Controller) enqueueAll() {
	for _, name := range r.names() {
		r.enqueue(name)
	}
}

// names returns the names of all PVs, existing or gone, that may need a decision.
func (r *Controller) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engine.Names()
}

// PVs is a view of a Controller's watch cache for another controller of the same driver in the same program, which
// then needs no watch of its own. It is up to date while the Controller's Watch or Run is at work, and safe for
// concurrent use.
type PVs struct{ of *Controller }

// PVs returns a view of the watch cache.
func (r *Controller) PVs() PVs { return PVs{r} }

// Node returns Config.Node of the Controller, nil for the whole cluster.
func (p PVs) Node() *volume.Node { return p.of.cfg.Node }

// KeepsInFlight reports whether the Controller keeps volumes that are in flight, because it has Config.InFlight.
func (p PVs) KeepsInFlight() bool { return p.of.cfg.InFlight != nil }

// Get returns the PV with this name, if the driver owns it or it names a volume of the driver: the cache holds no
// others.
func (p PVs) Get(name string) (pv volume.PV, found bool) {
	known, found := p.of.engine.PVs.Get(name)
	if !found {
		return volume.PV{}, false
	}
	return *known, true
}

// Shared reports whether a PV with a name other than except names the driver's volume with this handle, in any case.
func (p PVs) Shared(handle, except string) bool {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	return p.of.engine.Handles.Shared(volume.HandleKey(handle), except)
}

// Follow calls changed for every PV that Get returns from now on, with its first state, and for every PV that Get
// ceases to return, with its last. It leaves out earlier changes, and calls after Get has changed, for one PV at a
// time; changed must not block.
func (p PVs) Follow(changed func(volume.PV)) { p.of.followers.add(changed) }

// FollowLists calls listed after each list of PVs, once Get reflects the list and its changes were delivered; listed
// must not block. A PV that came and went during a gap of the watch is never delivered.
func (p PVs) FollowLists(listed func()) { p.of.listFollowers.add(listed) }

// Reached reports whether Get reflects everything up to this resourceVersion of a PV.
func (p PVs) Reached(version string) bool { return p.of.pvs.Reached(version) }

// Synced reports whether Get returns all PVs that existed when the watch began.
func (p PVs) Synced() bool { return p.of.pvCache.Synced() }

// followers are callbacks, none in the zero value. They are safe for concurrent use.
type followers[F any] struct {
	mu  sync.Mutex
	all []F
}

func (f *followers[F]) add(one F) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, one)
}

// list returns the callbacks, which are only ever appended to.
func (f *followers[F]) list() []F {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all
}

// tell calls the callbacks of PVs.Follow.
func (r *Controller) tell(pv *volume.PV) {
	for _, changed := range r.followers.list() {
		changed(*pv)
	}
}
