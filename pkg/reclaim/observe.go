package reclaim

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
)

// observer keeps what the watches tell and wakes the PVs that a change concerns.
type observer struct {
	driver string
	// wake has a PV decided on; it does not block.
	wake func(pv string)
	// ended is told that a PV is gone for good.
	ended func(types.UID)

	pvs      pvCache
	handles  *handles
	attached *attached
	notes    *notes

	pvWatch         *kube.Cache[*PV]
	attachmentWatch *kube.Cache[*attachment]
}

// pvCache is what is read of the watch of PVs.
type pvCache interface {
	Get(name string) (*PV, bool)
	Each(visit func(*PV))
}

// attachment is what is kept of a VolumeAttachment.
type attachment struct {
	name, version string
	uid           types.UID
	pv            string
}

// GetObjectMeta lets a watch cache keep an attachment.
func (a *attachment) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Name: a.name, UID: a.uid, ResourceVersion: a.version}
}

func attachmentOf(o *storagev1.VolumeAttachment) attachment {
	a := attachment{name: o.Name, version: o.ResourceVersion, uid: o.UID}
	if name := o.Spec.Source.PersistentVolumeName; name != nil {
		a.pv = *name
	}
	return a
}

func newObserver(clients kube.Clients, driver string, wake func(string), ended func(types.UID)) *observer {
	o := &observer{
		driver: driver, wake: wake, ended: ended,
		handles: newHandles(), attached: newAttached(), notes: newNotes(),
	}
	o.pvWatch = kube.NewCache(clients.Core.RESTClient(), "persistentvolumes", &v1.PersistentVolume{}, o.recordPV, pvChanges{o})
	o.attachmentWatch = kube.NewCache(clients.Storage.RESTClient(), "volumeattachments", &storagev1.VolumeAttachment{}, recordAttachment, attachmentChanges{o})
	o.pvs = o.pvWatch
	return o
}

// recordPV keeps of a foreign PV only that it exists.
func (o *observer) recordPV(object runtime.Object) (*PV, error) {
	api, ok := object.(*v1.PersistentVolume)
	if !ok {
		return nil, fmt.Errorf("watch PVs: got a %T", object)
	}
	pv := PVOf(api)
	if !pv.ownedBy(o.driver) && pv.Driver != o.driver {
		pv = PV{Name: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion}
	}
	return &pv, nil
}

func recordAttachment(object runtime.Object) (*attachment, error) {
	api, ok := object.(*storagev1.VolumeAttachment)
	if !ok {
		return nil, fmt.Errorf("watch VolumeAttachments: got a %T", object)
	}
	a := attachmentOf(api)
	return &a, nil
}

// handle returns the volume that a PV keeps from being deleted under another PV, empty if
// it is none of this driver's. PVs that name our volumes count even when we do not own them.
func (o *observer) handle(pv *PV) string {
	if pv.Driver != o.driver {
		return ""
	}
	return pv.Handle
}

// pvChanges follows the PVs.
type pvChanges struct{ *observer }

func (o pvChanges) Added(now *PV) {
	if handle := o.handle(now); handle != "" {
		o.handles.add(handle, now.Name)
	}
	o.wakeFamily(now)
}

func (o pvChanges) Updated(before, now *PV) {
	if before.UID != now.UID {
		o.Deleted(before, false)
		o.Added(now)
		return
	}
	if was, is := o.handle(before), o.handle(now); was != is {
		o.forgetHandle(was, before.Name)
		if is != "" {
			o.handles.add(is, now.Name)
		}
	}
	o.wakeFamily(now)
}

func (o pvChanges) Deleted(last *PV, _ bool) {
	o.forgetHandle(o.handle(last), last.Name)
	o.notes.forget(last.UID)
	o.ended(last.UID)
	o.wakeFamily(last)
}

func (o pvChanges) forgetHandle(handle, pv string) {
	if handle != "" {
		o.handles.remove(handle, pv)
	}
}

// wakeFamily wakes a PV and those that may wait for it because they name the same volume.
func (o *observer) wakeFamily(pv *PV) {
	if pv.ownedBy(o.driver) {
		o.wake(pv.Name)
	}
	for _, other := range o.handles.others(o.handle(pv), pv.Name) {
		o.wake(other)
	}
}

// attachmentChanges follows the VolumeAttachments.
type attachmentChanges struct{ *observer }

func (o attachmentChanges) Added(now *attachment) { o.count(now.pv, 1) }

func (o attachmentChanges) Updated(before, now *attachment) {
	if before.pv != now.pv {
		o.count(before.pv, -1)
		o.count(now.pv, 1)
	}
}

func (o attachmentChanges) Deleted(last *attachment, _ bool) { o.count(last.pv, -1) }

func (o attachmentChanges) count(pv string, by int) {
	if pv == "" {
		return
	}
	o.attached.change(pv, by)
	if known, found := o.pvs.Get(pv); found && by < 0 {
		o.wakeFamily(known)
	}
}

// observe returns what is known about a PV without asking the API server. Facts that
// earlier live reads of the same run established stand as they are.
func (o *observer) observe(name string) (s Snapshot, found bool) {
	pv, found := o.pvs.Get(name)
	if !found || !pv.ownedBy(o.driver) {
		return Snapshot{}, false
	}
	s = Snapshot{Driver: o.driver, PV: *pv, Done: o.notes.of(pv.UID)}
	s.Siblings = o.siblings(*pv)
	s.Attachments = o.attachmentsOf(s)
	return s, true
}

// note records what was done for a PV, unless its end was seen meanwhile: nobody would
// forget the note then.
func (o *observer) note(pv PV, change func(*Done)) Done {
	done := o.notes.record(pv.UID, change)
	if cached, found := o.pvs.Get(pv.Name); !found || cached.UID != pv.UID {
		o.notes.forget(pv.UID)
	}
	return done
}

// siblings returns the other PVs of the volume as the cache knows them, sorted by name.
func (o *observer) siblings(pv PV) []PV {
	names := o.handles.others(o.handle(&pv), pv.Name)
	if len(names) == 0 {
		return nil
	}
	siblings := make([]PV, 0, len(names))
	for _, name := range names {
		if other, found := o.pvs.Get(name); found {
			siblings = append(siblings, *other)
		}
	}
	slices.SortFunc(siblings, func(a, b PV) int { return cmp.Compare(a.Name, b.Name) })
	return siblings
}

func (o *observer) attachmentsOf(s Snapshot) int {
	n := o.attached.of(s.PV.Name)
	for _, other := range s.Siblings {
		n += o.attached.of(other.Name)
	}
	return n
}
