package reclaim

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// observer keeps what the watches tell and wakes the PVs that a change concerns.
type observer struct {
	rules Rules
	// node is the one whose PVs are kept, nil for those of the whole cluster.
	node  *volume.Node
	clock clock.PassiveClock
	// wake has a PV decided on; it does not block.
	wake func(pv string)
	// forgotten is told that nothing more happens to a PV that is gone.
	forgotten func(types.UID)

	// inFlight is the in-flight log, nil for none.
	inFlight InFlight

	pvs         pvCache
	attachments attachmentCache
	handles     *handles
	attached    *attached
	notes       *notes
	brake       *brake
	traces      *traces
	followers   followers
	// admissions is nil where it is not asked whether an admission policy protects PVs.
	admissions *admissions

	// leading: this replica acts, so that the end of a PV is its business.
	leading atomic.Bool
	// lease is how long it still may, nil without leader election.
	lease Lease

	pvWatch         *kube.Cache[*volume.PV]
	attachmentWatch *kube.Cache[attachment]
}

// pvCache is what is read of the watch of PVs.
type pvCache interface {
	Get(name string) (*volume.PV, bool)
	Each(visit func(*volume.PV))
	Reached(version string) bool
}

// attachmentCache is what is asked of the watch of VolumeAttachments besides its events.
type attachmentCache interface {
	Reached(version string) bool
}

// attachment is what is kept of a VolumeAttachment: the PV it names, empty for none.
type attachment struct{ pv string }

func attachmentOf(o *storagev1.VolumeAttachment) attachment {
	if name := o.Spec.Source.PersistentVolumeName; name != nil {
		return attachment{*name}
	}
	return attachment{}
}

// newObserver returns an observer that watches nothing yet.
func newObserver(rules Rules, b *brake, c clock.PassiveClock, wake func(string), forgotten func(types.UID)) *observer {
	return &observer{
		rules: rules, clock: c, wake: wake, forgotten: forgotten, brake: b,
		handles: newHandles(), attached: newAttached(), notes: newNotes(rules),
	}
}

// watch makes the caches, which do not run yet.
func (o *observer) watch(clients kube.Clients) {
	o.pvWatch = kube.NewCache(clients.Core.RESTClient(), "persistentvolumes", &v1.PersistentVolume{}, o.recordPV, pvChanges{o})
	o.attachmentWatch = kube.NewCache(clients.Storage.RESTClient(), "volumeattachments", &storagev1.VolumeAttachment{}, recordAttachment, attachmentChanges{o})
	o.pvs, o.attachments = o.pvWatch, o.attachmentWatch
}

// recordPV keeps the PVs that are this driver's, or name a volume of its, but those that are surely
// another node's.
func (o *observer) recordPV(object runtime.Object, known bool) (_ *volume.PV, keep bool, err error) {
	api, ok := object.(*v1.PersistentVolume)
	if !ok {
		return nil, false, fmt.Errorf("watch PVs: got a %T", object)
	}
	pv := volume.At(o.node, api)
	switch {
	case pv.Reach != volume.ReachElsewhere && (pv.OwnedBy(o.rules.Driver) || pv.Driver == o.rules.Driver):
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

// handle returns the volume that a PV keeps from being deleted under another PV, empty if
// it is none of this driver's. PVs that name our volumes count even when we do not own them.
func (o *observer) handle(pv *volume.PV) string {
	if pv.Driver != o.rules.Driver {
		return ""
	}
	return pv.Handle
}

func (o *observer) owns(pv *volume.PV) bool { return pv.OwnedBy(o.rules.Driver) }

// pvChanges follows the PVs.
type pvChanges struct{ *observer }

func (o pvChanges) Added(now *volume.PV) {
	if handle := o.handle(now); handle != "" {
		o.handles.add(handle, now.Name)
		for _, name := range o.notes.share(handle) {
			o.wake(name)
		}
	}
	if o.owns(now) {
		o.notes.added(now)
		o.countDue(nil, now)
		o.noteMissed(nil, now)
	}
	o.wakeFamily(now)
	o.followers.tell(now)
}

func (o pvChanges) Updated(before, now *volume.PV) {
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
	if o.owns(now) {
		if o.notes.changed(before, now, o.clock.Now()) {
			o.wakeAll()
		}
		o.countDue(before, now)
		o.noteMissed(before, now)
	}
	o.wakeFamily(now)
}

func (o pvChanges) Deleted(last *volume.PV, final bool) {
	handle := o.handle(last)
	o.forgetHandle(handle, last.Name)
	left := o.owns(last) && o.leading.Load() && last.Policy == volume.PolicyDelete && last.Claimed()
	history, left := o.notes.leave(last, End{Gone: true, Final: final, Shared: len(o.handles.others(handle, "")) > 0}, left)
	switch {
	case !left:
		o.forgotten(last.UID)
	case o.rules.ReclaimUnprotected && final && history.SeenAlive && !history.SeenProtected && last.Deletable() && !last.Held:
		o.brake.count(last.UID)
	}
	o.wakeFamily(last)
	o.followers.tell(last)
}

func (o pvChanges) forgetHandle(handle, pv string) {
	if handle != "" {
		o.handles.remove(handle, pv)
	}
}

// countDue tells the brake of a volume that became deletable, or is seen to be, and begins the trace of one that
// was seen to become so.
func (o *observer) countDue(before, now *volume.PV) {
	if o.rules.due(*now) && (before == nil || !o.rules.due(*before)) {
		o.brake.count(now.UID)
		if before != nil {
			o.traces.begin(*now)
		}
	}
}

// wakeFamily wakes a PV and those that may wait for it because they name the same volume.
func (o *observer) wakeFamily(pv *volume.PV) {
	if o.owns(pv) {
		o.wake(pv.Name)
	}
	for _, other := range o.handles.others(o.handle(pv), pv.Name) {
		o.wake(other)
	}
}

// wakeAll wakes every PV of the driver.
func (o *observer) wakeAll() {
	for _, name := range o.names() {
		o.wake(name)
	}
}

// names returns the names under which there may be something to decide on.
func (o *observer) names() []string {
	names := o.notes.endedNames()
	o.pvs.Each(func(pv *volume.PV) {
		if o.owns(pv) {
			names = append(names, pv.Name)
		}
	})
	return names
}

// attachmentChanges follows the VolumeAttachments.
type attachmentChanges struct{ *observer }

func (o attachmentChanges) Added(now attachment) { o.count(now.pv, 1) }

func (o attachmentChanges) Updated(before, now attachment) {
	if before.pv != now.pv {
		o.count(before.pv, -1)
		o.count(now.pv, 1)
	}
}

func (o attachmentChanges) Deleted(last attachment, _ bool) { o.count(last.pv, -1) }

func (o attachmentChanges) count(pv string, by int) {
	if pv == "" {
		return
	}
	o.attached.change(pv, by)
	if by > 0 {
		return
	}
	if known, found := o.pvs.Get(pv); found {
		o.wakeFamily(known)
	}
	if len(o.notes.endsOf(pv)) > 0 {
		o.wake(pv)
	}
}

// matter is one thing to decide on under a name: the PV that has it, or the end of one that
// had it.
type matter struct {
	name string
	// ended is the UID of the PV that is gone, empty for the one that is there.
	ended types.UID
}

// matters returns what there is to decide on under a name, the ends first.
func (o *observer) matters(name string) []matter {
	var all []matter
	for _, uid := range o.notes.endsOf(name) {
		all = append(all, matter{name, uid})
	}
	return append(all, matter{name: name})
}

// observe returns what is known about a matter without asking the API server.
func (o *observer) observe(m matter) (_ Snapshot, found bool) {
	if m.ended != "" {
		return o.observeEnd(m.ended)
	}
	return o.observePV(m.name)
}

// observePV returns what is known about the PV of a name.
func (o *observer) observePV(name string) (s Snapshot, found bool) {
	pv, found := o.pvs.Get(name)
	if !found || !o.owns(pv) {
		return Snapshot{}, false
	}
	noted, known := o.notes.of(*pv)
	if now, found := o.pvs.Get(name); !found || now != pv {
		// It changed between the two looks, and its notes may have gone with it.
		return o.observePV(name)
	}
	if !known {
		// The cache is a moment ahead of its handlers; the one that is due wakes the PV.
		return Snapshot{}, false
	}
	s = Snapshot{Rules: o.rules, Leading: holds(o.lease), PV: *pv, Done: noted.done, History: noted.history, Contested: noted.contested, DriverContested: noted.driver, Brake: o.brake.State()}
	s.Siblings = o.siblings(*pv, pv.Name)
	s.Log = o.logState(pv.Name)
	s.Attachments = o.attachmentsOf(s)
	return s, true
}

// observeEnd returns what is known about a PV that is gone.
func (o *observer) observeEnd(uid types.UID) (s Snapshot, found bool) {
	noted, over, known := o.notes.ofEnd(uid)
	if !known {
		return Snapshot{}, false
	}
	s = Snapshot{Rules: o.rules, Leading: holds(o.lease), PV: over.pv, End: over.end, Done: noted.done, History: noted.history, Contested: noted.contested, DriverContested: noted.driver, Brake: o.brake.State()}
	s.Log = o.logState(s.PV.Name)
	// The name may belong to another PV by now.
	s.Siblings = o.siblings(s.PV, "")
	s.Attachments = o.attachmentsOf(s)
	return s, true
}

// logState returns what the in-flight log has for the volume of the PV of this name.
func (o *observer) logState(pv string) LogState {
	if o.inFlight == nil {
		return LogUnknown
	}
	switch inFlight, known := o.inFlight.InFlight(pv); {
	case !known:
		return LogUnknown
	case inFlight:
		return LogOpen
	}
	return LogSettled
}

// siblings returns the other PVs of the volume as the cache knows them, sorted by name.
func (o *observer) siblings(pv volume.PV, except string) []volume.PV {
	names := o.handles.others(o.handle(&pv), except)
	if len(names) == 0 {
		return nil
	}
	siblings := make([]volume.PV, 0, len(names))
	for _, name := range names {
		if other, found := o.pvs.Get(name); found && other.UID != pv.UID {
			siblings = append(siblings, *other)
		}
	}
	slices.SortFunc(siblings, func(a, b volume.PV) int { return cmp.Compare(a.Name, b.Name) })
	return siblings
}

func (o *observer) attachmentsOf(s Snapshot) int {
	n := o.attached.of(s.PV.Name)
	for _, other := range s.Siblings {
		if other.Name != s.PV.Name {
			n += o.attached.of(other.Name)
		}
	}
	return n
}
