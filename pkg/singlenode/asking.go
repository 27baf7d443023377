package singlenode

import (
	"cmp"
	"context"
	"reflect"
	"unique"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// namespace is the cached record of a namespace with Label.
type namespace = objects.Namespace[singlenode.Mode]

func namespaceOf(o *v1.Namespace) namespace {
	return namespace{Name: o.Name, Mode: singlenode.ModeOf(o.Labels)}
}

// modeOf returns the mode of a namespace from the watch cache, which holds only namespaces with Label.
func (o *observer) modeOf(name string) singlenode.Mode {
	if ns, found := o.namespaces.Get(name); found {
		return ns.Mode
	}
	return singlenode.ModeOff
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

// class is the cached part of a StorageClass: whether it has Label with SelectValue. Without its name, a class that
// does not would seem to be none.
type class struct {
	name string
	asks bool
}

func classOf(o *storagev1.StorageClass) class { return class{o.Name, singlenode.Asks(o.Labels)} }

// classChanged handles the events of the watch of StorageClasses.
func (o *observer) classChanged(before, now class) {
	if before != now {
		o.wakeGated(o.gatedIn.All())
	}
}

// volume is the cached part of a PV: the volume that a fence may cover, its claim, and whether it has Label with
// SelectValue.
type volume struct {
	objects.Volume
	claimNamespace, claimName string
	asks                      bool
}

func volumeOf(o *v1.PersistentVolume) volume {
	pv := volume{Volume: objects.VolumeOf(o), asks: singlenode.Asks(o.Labels)}
	pv.Driver = unique.Make(pv.Driver).Value()
	if ref := o.Spec.ClaimRef; ref != nil {
		pv.claimNamespace, pv.claimName = unique.Make(ref.Namespace).Value(), ref.Name
	}
	return pv
}

// recordVolume returns the recorder of PVs, and drops the fields that only fences need if fences is false.
func recordVolume(fences bool) kube.Recorder[volume] {
	return kube.RecordAll(func(o *v1.PersistentVolume) volume {
		pv := volumeOf(o)
		if !fences {
			pv.Volume = objects.Volume{}
		}
		return pv
	})
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

// asking collects everything in the watch caches that asks for the lock of a claim, in a namespace of this mode.
func (o *observer) asking(c *claim, mode singlenode.Mode) singlenode.Asking {
	a := singlenode.Asking{Namespace: mode, Claim: c.asks, Shared: c.shared, ClassSeen: c.class == ""}
	if class, found := o.classes.Get(c.class); found {
		a.Class, a.ClassSeen = class.asks, true
	}
	if pv, found := o.volumes.Get(c.volume); found {
		a.PV, a.PVSeen = pv.asks, true
	}
	return a
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

// readClaim reads a claim, and confirms by live reads of its StorageClass and PV that it needs no lock.
func (c *Controller) readClaim(ctx context.Context, ask singlenode.Ask) (singlenode.Claim, error) {
	o, found, err := c.cluster.readClaim(ctx, ask.Namespace, ask.Name)
	if !found {
		return singlenode.Claim{}, err
	}
	out, asking := c.observer.complete(o), c.observer.asking(o, ask.Mode)
	if out.Unasked = asking.Unasked(); !out.Unasked || o.shared {
		return out, nil
	}
	if o.class != "" {
		seen, found, err := c.cluster.readClass(ctx, o.class)
		if err != nil {
			return singlenode.Claim{}, err
		}
		asking.Class, asking.ClassSeen = seen.asks, found
	}
	seen, found, err := c.cluster.readVolume(ctx, o.volume)
	if err != nil {
		return singlenode.Claim{}, err
	}
	asking.PV, asking.PVSeen = seen.asks, found
	out.Unasked = asking.Unasked()
	return out, nil
}
