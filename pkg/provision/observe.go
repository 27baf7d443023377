package provision

import (
	"context"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/util"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// Annotations of a claim that are read. The PV controller writes the first two.
const (
	annProvisioner     = "volume.kubernetes.io/storage-provisioner"
	annProvisionerBeta = "volume.beta.kubernetes.io/storage-provisioner"
	annSelectedNode    = "volume.kubernetes.io/selected-node"
)

// watches are the caches of claims, PVs and classes.
type watches struct {
	claims  *claims
	volumes Volumes
	// own is volumes where nobody else keeps them up to date, and else nil.
	own     *ownVolumes
	classes cache.SharedIndexInformer
}

// newWatches returns caches that are not running. core and client reach the same API server.
func newWatches(core rest.Interface, client kubernetes.Interface, driver string, cfg Config) (watches, error) {
	w := watches{claims: newClaims(core), volumes: cfg.Volumes}
	if w.volumes == nil {
		w.own = newOwnVolumes(core, driver, cfg.node())
		w.volumes = w.own
	}
	storage := client.StorageV1()
	w.classes = cache.NewSharedIndexInformer(listing{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return storage.StorageClasses().List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return storage.StorageClasses().Watch(ctx, o)
		},
	}}, &storagev1.StorageClass{}, 0, cache.Indexers{})
	if err := w.classes.SetTransform(dropManagedFields); err != nil {
		return watches{}, fmt.Errorf("set up a watch cache: %w", err)
	}
	return w, nil
}

// listing has the reflector list before it watches, as package kube's caches do: a streamed list
// decodes each object twice, and not every API server has it.
type listing struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported says so.
func (listing) IsWatchListSemanticsUnSupported() bool { return true }

func dropManagedFields(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return object, nil
}

// watch keeps the caches up to date until ctx ends.
func (w watches) watch(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { w.claims.watch(ctx) })
	all.Go(func() { w.classes.RunWithContext(ctx) })
	if w.own != nil {
		all.Go(func() { w.own.watch(ctx) })
	}
	all.Wait()
}

func (w watches) synced() bool {
	return w.claims.Synced() && w.volumes.Synced() && w.classes.HasSynced()
}

// classOf returns the claim's StorageClass, nil if it is not there.
func (w watches) classOf(claim *v1.PersistentVolumeClaim) *storagev1.StorageClass {
	object, found, err := w.classes.GetStore().GetByKey(util.GetPersistentVolumeClaimClass(claim))
	if err != nil || !found {
		return nil
	}
	class, _ := object.(*storagev1.StorageClass)
	return class
}

// ours tells whether a claim is to be provisioned by this driver. One that says nothing of it is
// judged by its class.
func (p *Provisioner) ours(claim *v1.PersistentVolumeClaim) bool {
	for _, annotation := range []string{annProvisioner, annProvisionerBeta} {
		if name, found := claim.Annotations[annotation]; found {
			return slices.Contains(p.names, name)
		}
	}
	class := p.classOf(claim)
	return class != nil && slices.Contains(p.names, class.Provisioner)
}

// claimOf returns what is read of a claim.
func (p *Provisioner) claimOf(claim *v1.PersistentVolumeClaim) Claim {
	name := p.orders.PVName(claim.UID)
	pv, shown := p.volumes.Get(name)
	return Claim{
		Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
		Ours:      p.ours(claim) || shown && pv.Claim.UID == claim.UID && pv.Driver == p.names[0],
		Protected: slices.Contains(claim.Finalizers, p.cfg.finalizer()), At: p.at(claim),
		Terminating: claim.DeletionTimestamp != nil, VolumeName: claim.Spec.VolumeName, PVName: name,
	}
}

// look adds to a run's facts what the caches and this process's memory show now. What was read
// live in the run stays, unless the cache knows better.
func (w *run) look() {
	s, it := &w.facts, w.life
	gone := w.lookForClaim()
	s.Claim = w.claimOf(w.claim)
	s.Claim.Gone = gone
	if it.letGo != "" && kube.Newer(it.letGo, s.Claim.ResourceVersion) {
		// The cache does not show yet that the finalizer is off.
		s.Claim.Protected = false
	}
	s.Protects, s.Wanted = w.protects, w.wanted != nil
	s.ClassGone = w.classOf(w.claim) == nil
	s.Volume, s.Handle, s.Tried, s.Failed, s.Unfit = it.volume, it.handle, it.tried, it.failed, it.unfit
	if it.order != nil && w.wanted == nil {
		s.Ordered = true
	}
	s.Shared = it.handle != "" && w.volumes.Shared(it.handle, s.Claim.PVName)
	s.NameInHand = !s.Claim.namedAlone() && !w.hands.take(s.Claim.PVName, s.Claim.UID)
	w.lookForPV()
}

// lookForClaim brings the run's claim up to date and tells whether it is gone. Its last state is what was
// seen last of all, not what the run began with: it may have been bound, and its PV deleted, since.
func (w *run) lookForClaim() (gone bool) {
	k := keyOf(w.claim)
	if now := w.claims.of(k); now != nil {
		w.claim = now
		return false
	}
	last, told := w.ended.Load(k)
	if claim, ok := last.(*v1.PersistentVolumeClaim); ok {
		w.claim = claim
	}
	// The cache drops a claim a moment before it tells of its end. Until then it is there as far as the
	// run knows; of one for which nothing was begun nobody is told.
	return told || !w.life.tried
}

// lookForPV adds what the cache shows of the claim's PV. A PV that it does not show may be there:
// StorePV finds it, or a live read.
func (w *run) lookForPV() {
	s := &w.facts
	pv, shown := w.volumes.Get(s.Claim.PVName)
	if stored := w.shelf.get(s.Claim.PVName); !shown && stored != nil {
		// Two claims may have one name for their PVs.
		pv, shown = reclaim.PVAt(w.cfg.node(), stored), true
	}
	state := PVUnknown
	if shown {
		state = stateOf(pv, s.Claim, w.names[0])
	}
	switch {
	case w.life.stored != nil || state == PVStored:
		s.PV = PVStored
	case s.PVRead.IsZero() && shown:
		s.PV, s.PVHandle = state, pv.Handle
	}
}

// stored tells whether the PV of a claim is there: in the cache, or stored a moment ago.
func (p *Provisioner) stored(claim types.UID) bool {
	name, c := p.orders.PVName(claim), Claim{UID: claim}
	if pv := p.shelf.get(name); pv != nil && stateOf(reclaim.PVAt(p.cfg.node(), pv), c, p.names[0]) == PVStored {
		return true
	}
	// One that is another claim's, or is being deleted, is told by Provision.
	pv, shown := p.volumes.Get(name)
	return shown && stateOf(pv, c, p.names[0]) == PVStored
}
