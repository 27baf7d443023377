package provision

import (
	"slices"
	"time"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/caches"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// watches are the caches of claims, PVs and classes.
type watches struct {
	claims  *caches.Claims
	volumes PVLister
	// own equals volumes if the Controller runs that cache itself, and is nil otherwise.
	own     *caches.PVs
	classes *kube.Cache[*storagev1.StorageClass]
}

// newWatches returns caches that are not running yet.
func (p *Controller) newWatches() watches {
	core := p.client.CoreV1()
	w := watches{claims: caches.NewClaims(core), volumes: p.cfg.PVs}
	if w.volumes == nil {
		w.own = caches.NewPVs(core, p.names[0], p.cfg.node())
		w.volumes = w.own
	}
	w.classes = kube.NewTypedCache(p.client.StorageV1().StorageClasses(), "storageclasses", &storagev1.StorageClass{},
		kube.RecordAll(recordClass), classEvents{p})
	return w
}

// recordClass returns a copy, because the classes of a list share one allocation.
func recordClass(class *storagev1.StorageClass) *storagev1.StorageClass {
	own := *class
	own.ManagedFields = nil
	return &own
}

// classOf returns the claim's StorageClass, nil if it does not exist.
func (w watches) classOf(claim *v1.PersistentVolumeClaim) *storagev1.StorageClass {
	class, _ := w.classes.Get(objects.ClaimClass(claim))
	return class
}

// ours reports whether this driver has to provision a claim. A claim without a provisioner annotation is judged by its
// class.
func (p *Controller) ours(claim *v1.PersistentVolumeClaim) bool {
	if name, asked := volume.ProvisionerOf(claim); asked {
		return slices.Contains(p.names, name)
	}
	class := p.classOf(claim)
	return class != nil && slices.Contains(p.names, class.Provisioner)
}

// nameOf returns the name of a claim's volume and PersistentVolume. A claim that may have a volume keeps its name, even
// if names are formed in another way since.
func (p *Controller) nameOf(claim types.UID) string {
	if name, found := p.tracker.nameOf(claim); found {
		return name
	}
	return p.requests.PVName(claim)
}

// nameShown records the name of a PersistentVolume that appeared or disappeared, if its claim would get another name
// now. A PersistentVolume that an administrator has named does not keep its claim from getting a volume. The name of an
// unbound claim stays, because a try of that name may have begun. A process that only finishes entries forms no names.
func (p *Controller) nameShown(pv volume.PV) {
	claim := pv.Claim.UID
	if p.cfg.FinishOnly || !request.IsVolumeName(pv.Name, claim) || pv.Name == p.requests.PVName(claim) {
		return
	}
	switch now, found := p.volumes.Get(pv.Name); {
	case found && now.Claim.UID == claim && p.mayBeOwn(now):
		p.tracker.show(claim, pv.Name)
	case p.claims.WholeByUID(claim) == nil:
		p.tracker.hide(claim, pv.Name)
	}
}

// mayBeOwn reports whether a PersistentVolume is the driver's. One without a known driver may be.
func (p *Controller) mayBeOwn(pv volume.PV) bool { return pv.Driver == "" || pv.Driver == p.names[0] }

// claimOf returns the engine's facts about a claim.
func (p *Controller) claimOf(claim *v1.PersistentVolumeClaim) provision.Claim {
	return provision.Claim{
		Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
		Ours: p.ours(claim), Node: p.at(claim), SelectedNode: claim.Annotations[volume.AnnSelectedNode],
		Terminating: claim.DeletionTimestamp != nil, VolumeName: claim.Spec.VolumeName, PVName: p.nameOf(claim.UID),
	}
}

// observe collects the current state of the caches, the in-flight log and this process' memory. Results of the run's
// live reads are kept while they are fresh, as observeClaim and observePV decide.
//
// A read for another entry may show that an operator settled this one. For the run it stays open until ConfirmEntry
// finds that, which is the next step unless the driver has named the volume in this run: only its PersistentVolume, or
// the Event of ConfirmEntry, has the handle then.
func (w *run) observe() {
	f, t := &w.facts, w.track
	f.MayAct = w.mayAct() == nil
	entry, state := w.log.Get(w.name)
	w.observeClaim(entry, state)
	settled := t.record.Count > 0 && (state == inflight.Absent || state == inflight.Removing)
	if f.Log != provision.LogFull {
		f.Log = logOf(entry, state, w.claimKey)
	}
	switch {
	case settled:
		f.Log = provision.LogOpen
		f.Confirmed = f.Confirmed && t.record.Volume == provision.VolumeMade && !t.record.Unfit
	case state != inflight.Open:
		t.record = provision.Record{}
	case t.record.Count == 0:
		t.entry, t.record = entry, inherited(entry, w.cfg.Clock.Now())
	}
	f.Record, f.VersionNoted = t.record, w.isNoted()
	f.First, f.Wanted, f.Composed = w.first(), w.wanted != nil, w.built != nil
	f.Shared = t.record.Handle != "" && w.volumes.Shared(t.record.Handle, w.name)
	w.observePV()
}

// logOf translates the state of the log for the work on a claim.
func logOf(entry inflight.Entry, state inflight.State, claim volume.ClaimRef) provision.Log {
	switch state {
	case inflight.Absent, inflight.Removing: // a removal is settled, and its entry may be replaced
		return provision.LogAbsent
	case inflight.Open:
		if entry.Claim.UID != claim.UID {
			return provision.LogOthers
		}
		return provision.LogOpen
	case inflight.Adding:
		return provision.LogChanging
	case inflight.Unreadable:
		return provision.LogUnreadable
	case inflight.Unknown:
	}
	return provision.LogUnknown
}

// inherited returns the record of an entry that another process added, or that this process may not have added.
func inherited(entry inflight.Entry, now time.Time) provision.Record {
	var requests []provision.Request
	for _, request := range entry.Requests {
		requests = append(requests, requestOf(request))
	}
	record := provision.Inherited(entry.Claim.UID, requests, now)
	record.Discarding = entry.Discarding
	return record
}

// clockSkew bounds the differences between the clocks of several API servers, including their resolution of a second.
const clockSkew = 5 * time.Second

// first reports whether the run's claim never had an entry: this process has opened none, and the claim was created
// after the take-over.
func (w *run) first() bool {
	began := w.log.TakenOver()
	return w.claim != nil && !began.IsZero() && w.claim.CreationTimestamp.After(began.Add(clockSkew)) &&
		!w.tracker.hadEntry(w.claim.UID)
}

func requestOf(request inflight.Request) provision.Request {
	return provision.Request{Node: request.Node, MayReschedule: request.MayReschedule}
}

// observeClaim updates the run's claim, which is gone, or was bound before the watch began, if the cache does not have
// it. If claims are not watched, only the entry's data are known.
func (w *run) observeClaim(entry inflight.Entry, state inflight.State) {
	if w.claimKey.UID == "" && state == inflight.Open {
		w.claimKey = entry.Claim
	}
	k := w.claimKey
	c := provision.Claim{Namespace: k.Namespace, Name: k.Name, UID: k.UID, PVName: w.name}
	if k.UID != "" && !w.cfg.FinishOnly {
		if w.claim = w.claims.Of(k.Namespace, k.Name, k.UID); w.claim != nil {
			c = w.claimOf(w.claim)
			c.PVName = w.name
		} else {
			c.Gone = true
		}
	}
	// A live read counts until the cache shows a newer state. A claim that is gone has no version, which counts as newer.
	live := w.facts.Claim
	if !live.Fresh(w.cfg.Clock.Now()) || live.UID != c.UID || session.Newer(c.ResourceVersion, live.ResourceVersion) {
		w.facts.Claim = c
	}
	w.facts.Claim.Renamed = k.UID != "" && w.nameOf(k.UID) != w.name // a live read of the claim does not show that
}

// observePV adds the PersistentVolume from the cache, unless a live read is still valid. A PV that the cache does not
// show may exist, which StorePV or a live read finds out.
func (w *run) observePV() {
	f, now := &w.facts, w.cfg.Clock.Now()
	if pv, shown := w.shown(w.name); shown && !f.PV.Fresh(now) {
		f.PV = w.pvOf(pv, time.Time{})
	}
	if w.cfg.Local == nil {
		return
	}
	if pv, shown := w.shown(volume.ApartName(w.name, w.cfg.Local.Node.Name)); shown && !f.Apart.Fresh(now) {
		f.Apart = w.pvOf(pv, time.Time{})
	}
}

// shown returns a PersistentVolume that the cache shows or that was stored a moment ago.
func (p *Controller) shown(name string) (volume.PV, bool) {
	assumed := p.assumed.Get(name) // before the cache, which shows all PVs that are no longer assumed
	pv, shown := p.volumes.Get(name)
	if !shown && assumed != nil {
		return volume.At(p.cfg.node(), assumed), true
	}
	return pv, shown
}

// pvOf returns the facts about a PersistentVolume for the run's claim.
func (w *run) pvOf(pv volume.PV, read time.Time) provision.PV {
	return provision.PV{
		Known: true, Exists: true, Read: read, OfClaim: pv.Claim.UID == w.claimKey.UID,
		OfDriver: w.mayBeOwn(pv), Handle: pv.Handle,
		Terminating: pv.Terminating, Elsewhere: pv.Reach == volume.ReachElsewhere,
	}
}

// stored reports whether the PersistentVolume of a claim exists, either in the cache or stored a moment ago.
func (p *Controller) stored(claim types.UID) bool {
	pv, shown := p.shown(p.nameOf(claim))
	return shown && pv.Claim.UID == claim && p.mayBeOwn(pv) && !pv.Terminating && pv.Reach != volume.ReachElsewhere
}

// mayAct returns an error while this process does not hold its lease, on its own clock. It is asked before each
// decision, and again after reads and waits, which may outlast the lease.
func (p *Controller) mayAct() error {
	return reasons.Because(provision.ReasonNotLeading, leadership.Check(p.cfg.Lease))
}

// at compares a claim's selected node with the node of this process.
func (p *Controller) at(claim *v1.PersistentVolumeClaim) provision.NodeSelection {
	if p.cfg.Local == nil {
		return provision.NodeAny
	}
	switch claim.Annotations[volume.AnnSelectedNode] {
	case "":
		return provision.NodeNone
	case p.cfg.Local.Node.Name:
		return provision.NodeHere
	}
	return provision.NodeElsewhere
}

// late reports whether the class has the binding mode WaitForFirstConsumer.
func late(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}
