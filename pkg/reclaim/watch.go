package reclaim

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// attachment is what is kept of a VolumeAttachment: the PV it names, empty for none.
type attachment struct{ pv string }

func attachmentOf(o *storagev1.VolumeAttachment) attachment {
	if name := o.Spec.Source.PersistentVolumeName; name != nil {
		return attachment{*name}
	}
	return attachment{}
}

// watchCaches makes the caches, which do not run yet.
func (r *Controller) watchCaches(clients kube.Clients) {
	r.pvCache = kube.NewCache(clients.Core.RESTClient(), "persistentvolumes", &v1.PersistentVolume{}, r.recordPV,
		pvEvents{r})
	r.attachmentCache = kube.NewCache(clients.Storage.RESTClient(), "volumeattachments", &storagev1.VolumeAttachment{},
		recordAttachment, attachmentEvents{r})
}

// recordPV keeps the PVs that are this driver's, or name a volume of its, but those that are surely
// another node's.
func (r *Controller) recordPV(object runtime.Object, known bool) (_ *volume.PV, keep bool, err error) {
	api, ok := object.(*v1.PersistentVolume)
	if !ok {
		return nil, false, fmt.Errorf("watch PVs: got a %T", object)
	}
	pv := volume.At(r.cfg.Node, api)
	switch {
	case pv.Reach != volume.ReachElsewhere && (pv.OwnedBy(r.driver) || pv.Driver == r.driver):
		pv.Intern()
		return &pv, true, nil
	case known:
		return &volume.PV{Name: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion}, true, nil
	}
	return nil, false, nil
}

func recordAttachment(object runtime.Object, _ bool) (_ attachment, keep bool, err error) {
	api, ok := object.(*storagev1.VolumeAttachment)
	if !ok {
		return attachment{}, false, fmt.Errorf("watch VolumeAttachments: got a %T", object)
	}
	return attachmentOf(api), true, nil
}

// take has the engine take an event.
func (r *Controller) take(event func(*reclaim.Engine, time.Time) reclaim.Effects) reclaim.Effects {
	now := r.cfg.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	return event(r.engine, now)
}

// apply does what follows from an event.
func (r *Controller) apply(fx reclaim.Effects) {
	if fx.Tripped {
		select {
		case r.tripped <- struct{}{}:
		default:
		}
	}
	if fx.Forgotten != "" {
		r.recorder.Forget(fx.Forgotten)
	}
	for _, key := range fx.Keys {
		r.enqueue(key)
	}
}

// pvEvents takes the events of PVs.
type pvEvents struct{ *Controller }

func (r pvEvents) Added(pv *volume.PV) {
	r.apply(r.take(func(e *reclaim.Engine, now time.Time) reclaim.Effects { return e.PVAdded(pv, now) }))
	r.noteMissed(nil, pv)
	r.followers.tell(pv)
}

func (r pvEvents) Updated(before, pv *volume.PV) {
	fx := r.take(func(e *reclaim.Engine, now time.Time) reclaim.Effects { return e.PVUpdated(before, pv, now) })
	if fx.Due {
		r.traces.begin(*pv) // before a worker can begin another
	}
	r.apply(fx)
	if before.UID != pv.UID {
		r.followers.tell(before)
		r.noteMissed(nil, pv)
		r.followers.tell(pv)
		return
	}
	r.noteMissed(before, pv)
}

func (r pvEvents) Deleted(last *volume.PV, final bool) {
	r.apply(r.take(func(e *reclaim.Engine, now time.Time) reclaim.Effects { return e.PVDeleted(last, final, now) }))
	r.followers.tell(last)
}

func (r pvEvents) Listed() { r.followers.tellListed() }

// attachmentEvents takes the events of VolumeAttachments.
type attachmentEvents struct{ *Controller }

func (r attachmentEvents) Added(a attachment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.engine.AttachmentAdded(a.pv)
}

func (r attachmentEvents) Updated(before, a attachment) {
	if before.pv != a.pv {
		r.Deleted(before, true)
		r.Added(a)
	}
}

func (r attachmentEvents) Deleted(last attachment, _ bool) {
	r.apply(r.take(func(e *reclaim.Engine, _ time.Time) reclaim.Effects { return e.AttachmentDeleted(last.pv) }))
}

// ClaimShown takes what a watch of claims shows of a claim: each event but DELETED, and each item of a list. Together
// with ClaimDeleted it spares the read of a claim that has just ended; without them each claim is read. The two are
// called in the order of the watch, from its beginning, and do not block. They are safe for concurrent use.
func (r *Controller) ClaimShown(claim *v1.PersistentVolumeClaim) {
	if claim.Spec.VolumeName == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.engine.ClaimShown(claim.Spec.VolumeName)
}

// ClaimDeleted takes the DELETED event of the watch of claims, with the claim's last state. An end that no event showed
// proves nothing and is not passed: neither a claim that a new list does not have, nor an informer's
// DeletedFinalStateUnknown.
func (r *Controller) ClaimDeleted(last *v1.PersistentVolumeClaim) {
	if last.Spec.VolumeName == "" {
		return
	}
	r.apply(r.take(func(e *reclaim.Engine, now time.Time) reclaim.Effects {
		return e.ClaimDeleted(last.UID, last.Spec.VolumeName, now)
	}))
}

// enqueueAll enqueues every PV of the driver.
func (r *Controller) enqueueAll() {
	for _, name := range r.names() {
		r.enqueue(name)
	}
}

// names returns the names under which there may be something to decide on.
func (r *Controller) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engine.Names()
}

// PVs is what the watch cache of a Controller shows, for another controller of the same driver in
// the same program, which then needs no watch of its own. It is up to date while the Controller's
// Watch or Run is at work. Its methods are safe for concurrent use.
type PVs struct{ of *Controller }

// PVs returns what the watch cache shows.
func (r *Controller) PVs() PVs { return PVs{r} }

// Get returns the PV with this name. Only PVs that are the driver's, or name a volume of it, are
// found: others are not kept.
func (p PVs) Get(name string) (pv volume.PV, found bool) {
	known, found := p.of.engine.PVs.Get(name)
	if !found {
		return volume.PV{}, false
	}
	return *known, true
}

// Shared reports whether a PV of another name than except names the driver's volume with this handle.
func (p PVs) Shared(handle, except string) bool {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	return len(p.of.engine.Handles.Others(handle, except)) > 0
}

// Follow calls changed for every PV that Get shows from now on, with its first state, and for
// every one that it ceases to show, with its last. It calls after Get shows it so, for one PV
// at a time; changed must not block. What happened before is left out.
func (p PVs) Follow(changed func(volume.PV)) { p.of.followers.add(changed) }

// FollowLists calls listed after each list of PVs, once Get shows it and its changes were delivered. A PV that came and
// went while there was no watch is never delivered. listed must not block.
func (p PVs) FollowLists(listed func()) { p.of.followers.addListed(listed) }

// Reached reports whether Get shows everything up to a resourceVersion of a PV.
func (p PVs) Reached(version string) bool { return p.of.pvs.Reached(version) }

// Synced reports whether Get shows the PVs that there were when the watch began.
func (p PVs) Synced() bool { return p.of.pvCache.Synced() }

// followers are those who follow the PVs that come and go. The zero value has none. It is safe
// for concurrent use.
type followers struct {
	mu     sync.Mutex
	all    []func(volume.PV)
	listed []func()
}

func (f *followers) add(changed func(volume.PV)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, changed)
}

func (f *followers) tell(pv *volume.PV) {
	f.mu.Lock()
	all := f.all // only ever appended to
	f.mu.Unlock()
	for _, changed := range all {
		changed(*pv)
	}
}

func (f *followers) addListed(listed func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed = append(f.listed, listed)
}

func (f *followers) tellListed() {
	f.mu.Lock()
	all := f.listed // only ever appended to
	f.mu.Unlock()
	for _, listed := range all {
		listed()
	}
}
