package intree

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// observer keeps what the watch tells and wakes the PVs that a change concerns.
type observer struct {
	// wake has a PV decided on; it does not block.
	wake func(pv string)
	// forgotten is told that a PV is gone.
	forgotten func(types.UID)

	pvs   pvCache
	watch *kube.Cache[*PV]
	notes *notes
	log   klog.Logger
}

// pvCache is what is read of the watch of PVs.
type pvCache interface {
	Get(name string) (*PV, bool)
	Each(visit func(*PV))
	Reached(version string) bool
}

func newObserver(wake func(string), forgotten func(types.UID)) *observer {
	return &observer{wake: wake, forgotten: forgotten, notes: newNotes(), log: klog.Background()}
}

// follow makes the cache, which does not run yet.
func (o *observer) follow(clients kube.Clients) {
	o.watch = kube.NewCache(clients.Core.RESTClient(), "persistentvolumes", &v1.PersistentVolume{}, recordPV, changes{o})
	o.pvs = o.watch
}

// recordPV keeps the PVs of in-tree volumes: those that are provisioned, their twins, and others that
// may name the same volumes.
func recordPV(object runtime.Object, _ bool) (_ *PV, keep bool, err error) {
	api, ok := object.(*v1.PersistentVolume)
	if !ok {
		return nil, false, fmt.Errorf("watch PVs: got a %T", object)
	}
	if api.Spec.CSI != nil {
		return &PV{Name: api.Name, UID: api.UID, ResourceVersion: api.ResourceVersion}, false, nil
	}
	pv := PVOf(api)
	pv.intern()
	return &pv, true, nil
}

// changes follows the PVs.
type changes struct{ *observer }

func (o changes) Added(now *PV) { o.change(nil, now) }

func (o changes) Updated(before, now *PV) {
	if before.UID != now.UID {
		o.Deleted(before, false)
		o.Added(now)
		return
	}
	o.change(before, now)
}

func (o changes) change(before, now *PV) {
	if before != nil && before.Source != now.Source {
		o.notes.sources.remove(before.Source, before.Name)
	}
	o.notes.sources.add(now.Source, now.Name)
	if original, found := o.pvs.Get(now.Original); found && now.Guard == WriterOther && twinOf(*now, *original) {
		o.notes.managesTwin(original.UID)
	}
	o.managed(now, now.Guard == WriterOther)
	o.wakeFamily(now)
}

// Deleted notes, besides, that a volume is deleted: its twin was armed, the PV controller had seen its
// claim gone and had not failed, and now it is gone. Whoever sees less, for the watch was
// interrupted or the twin had failed before, has another twin made: plugins take the deletion of what
// is gone for done.
func (o changes) Deleted(last *PV, final bool) {
	o.notes.sources.remove(last.Source, last.Name)
	if original, found := o.pvs.Get(last.Original); found && final && twinOf(*last, *original) &&
		last.Policy == volume.PolicyDelete && last.Phase == volume.PhaseReleased {
		o.notes.volumeDeleted(original.UID, last.Claim)
	}
	o.notes.forget(last.UID)
	o.forgotten(last.UID)
	o.managed(last, false)
	o.wakeFamily(last)
}

// managed notes whether a PV shows that another program manages the finalizer. The first that does,
// and the last that does no more, concern all.
func (o *observer) managed(pv *PV, shows bool) {
	if !o.notes.managed(pv.Name, shows) {
		return
	}
	if shows {
		o.log.Info("Another program manages the finalizer of in-tree PVs, so volume-guard stands down", "finalizer", Finalizer, "PV", pv.Name, "manager", pv.Manager)
	} else {
		o.log.Info("No PV shows any more that another program manages the finalizer of in-tree PVs", "finalizer", Finalizer)
	}
	for _, name := range o.names() {
		o.wake(name)
	}
}

// wakeFamily wakes the PVs that name the same volume: a PV, its twin, and who may wait for them.
func (o *observer) wakeFamily(pv *PV) {
	o.wake(pv.Name)
	for _, name := range o.notes.sources.names(pv.Source) {
		if name != pv.Name {
			o.wake(name)
		}
	}
}

// names returns the names under which there may be something to decide on.
func (o *observer) names() []string {
	var names []string
	o.pvs.Each(func(pv *PV) {
		if pv.provisioned() || pv.TwinOf != "" {
			names = append(names, pv.Name)
		}
	})
	return names
}

// get returns the latest that is known of the PV of a name: what the watch shows, or what a write of
// ours has made of it that the watch does not show yet.
func (o *observer) get(name string) (PV, bool) {
	pv, found := o.notes.written(name, o.pvs.Reached)
	if !found {
		cached, known := o.pvs.Get(name)
		if !known {
			return PV{}, false
		}
		pv = *cached
	}
	pv.Terminating = pv.Terminating || o.notes.going(pv.UID)
	return pv, true
}

// observe returns what is known about the PV of a name, or about the twin that has it and whose
// original is not there, without asking the API server.
func (o *observer) observe(name string) (s Snapshot, found bool) {
	pv, found := o.get(name)
	switch {
	case !found:
		return Snapshot{}, false
	case pv.provisioned():
		return o.about(pv), true
	case pv.TwinOf == "":
		return Snapshot{}, false
	}
	if original, found := o.get(pv.Original); found && original.UID == pv.TwinOf {
		return Snapshot{}, false // decided on with its original
	}
	return Snapshot{Manages: o.notes.manages(), Twin: pv, TwinFound: true}, true
}

// about returns what is known besides a PV.
func (o *observer) about(pv PV) Snapshot {
	s := Snapshot{Manages: o.notes.managesFor(pv.UID), PV: pv, Siblings: o.siblings(pv)}
	s.Twin, s.TwinFound = o.get(TwinName(pv.Name))
	s.Done, s.Failure = o.notes.of(pv.UID)
	return s
}

// siblings returns the other PVs of the volume as far as they are known, sorted by name.
func (o *observer) siblings(pv PV) []PV {
	var siblings []PV
	for _, name := range o.notes.sources.names(pv.Source) {
		if other, found := o.get(name); found && other.UID != pv.UID && other.Source == pv.Source && !twinOf(other, pv) {
			siblings = append(siblings, other)
		}
	}
	slices.SortFunc(siblings, func(a, b PV) int { return cmp.Compare(a.Name, b.Name) })
	return siblings
}
