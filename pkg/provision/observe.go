package provision

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/util"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
)

// Annotations of a claim that are read. The PV controller writes the first two.
const (
	annProvisioner     = "volume.kubernetes.io/storage-provisioner"
	annProvisionerBeta = "volume.beta.kubernetes.io/storage-provisioner"
	annSelectedNode    = "volume.kubernetes.io/selected-node"
)

// byHandle is the index of PVs by the volume they name.
const byHandle = "handle"

// volume is what is kept of a PV.
type volume struct {
	metav1.ObjectMeta
	claim          types.UID
	driver, handle string
}

func (v *volume) GetObjectMeta() metav1.Object { return &v.ObjectMeta }

// watches are the caches of claims, PVs and classes.
type watches struct {
	// claims holds whole claims but for managedFields: the library updates what it finds here.
	claims  cache.SharedIndexInformer
	volumes cache.SharedIndexInformer
	classes cache.SharedIndexInformer
}

func newWatches(client kubernetes.Interface) (watches, error) {
	core, storage := client.CoreV1(), client.StorageV1()
	w := watches{
		claims: newInformer(&v1.PersistentVolumeClaim{}, cache.Indexers{bySource: sourcesOf},
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core.PersistentVolumeClaims("").List(ctx, o)
			},
			func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return core.PersistentVolumeClaims("").Watch(ctx, o)
			}),
		volumes: newInformer(&v1.PersistentVolume{}, cache.Indexers{byHandle: handlesOf},
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core.PersistentVolumes().List(ctx, o)
			},
			func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return core.PersistentVolumes().Watch(ctx, o)
			}),
		classes: newInformer(&storagev1.StorageClass{}, nil,
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return storage.StorageClasses().List(ctx, o)
			},
			func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return storage.StorageClasses().Watch(ctx, o)
			}),
	}
	for informer, transform := range map[cache.SharedIndexInformer]cache.TransformFunc{
		w.claims: dropManagedFields, w.classes: dropManagedFields, w.volumes: recordVolume,
	} {
		if err := informer.SetTransform(transform); err != nil {
			return watches{}, fmt.Errorf("set up a watch cache: %w", err)
		}
	}
	return w, nil
}

func newInformer(example runtime.Object, indexers cache.Indexers, list cache.ListWithContextFunc, follow cache.WatchFuncWithContext) cache.SharedIndexInformer {
	if indexers == nil {
		indexers = cache.Indexers{}
	}
	source := listing{&cache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: follow}}
	return cache.NewSharedIndexInformer(source, example, 0, indexers)
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

func recordVolume(object any) (any, error) {
	if _, done := object.(*volume); done {
		return object, nil
	}
	pv, ok := object.(*v1.PersistentVolume)
	if !ok {
		return nil, fmt.Errorf("watch PVs: got a %T", object)
	}
	v := &volume{ObjectMeta: metav1.ObjectMeta{Name: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion, DeletionTimestamp: pv.DeletionTimestamp}}
	if pv.Spec.ClaimRef != nil {
		v.claim = pv.Spec.ClaimRef.UID
	}
	if pv.Spec.CSI != nil {
		v.driver, v.handle = pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle
	}
	return v, nil
}

func handlesOf(object any) ([]string, error) {
	if v, ok := object.(*volume); ok && v.handle != "" {
		return []string{v.handle}, nil
	}
	return nil, nil
}

func (w watches) synced() bool {
	return w.claims.HasSynced() && w.volumes.HasSynced() && w.classes.HasSynced()
}

// claim returns the claim of a key as the cache has it, nil if it is not there.
func (w watches) claim(k key) *v1.PersistentVolumeClaim {
	object, found, err := w.claims.GetStore().GetByKey(k.namespace + "/" + k.name)
	if err != nil || !found {
		return nil
	}
	claim, ok := object.(*v1.PersistentVolumeClaim)
	if !ok || claim.UID != k.uid {
		return nil
	}
	return claim
}

func (w watches) volume(name string) *volume {
	object, found, err := w.volumes.GetStore().GetByKey(name)
	if err != nil || !found {
		return nil
	}
	v, _ := object.(*volume)
	return v
}

// shared tells whether a PV of another name has the volume.
func (w watches) shared(driver, handle, except string) bool {
	objects, err := w.volumes.GetIndexer().ByIndex(byHandle, handle)
	return err != nil || slices.ContainsFunc(objects, func(object any) bool {
		v, ok := object.(*volume)
		return ok && v.driver == driver && v.Name != except
	})
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
	return Claim{
		Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
		Ours: p.ours(claim), Protected: slices.Contains(claim.Finalizers, Finalizer),
		Terminating: claim.DeletionTimestamp != nil, VolumeName: claim.Spec.VolumeName, PVName: p.orders.PVName(claim.UID),
	}
}

// look adds to a run's facts what the caches and this process's memory show now. What was read
// live in the run stays, unless the cache knows better.
func (w *run) look() {
	s, it := &w.facts, w.life
	k := keyOf(w.claim)
	if now := w.claimNow(k); now != nil {
		w.claim = now
		s.Claim = w.claimOf(now)
	} else {
		s.Claim = w.claimOf(w.claim)
		s.Claim.Gone = true
	}
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
	s.Shared = it.handle != "" && w.shared(w.names[0], it.handle, s.Claim.PVName)
	s.NameInHand = !s.Claim.namedAlone() && !w.hands.take(s.Claim.PVName, s.Claim.UID)
	w.lookForPV()
}

func (w *run) lookForPV() {
	s := &w.facts
	cached := w.volume(s.Claim.PVName)
	switch {
	case w.life.stored != nil || cached != nil && cached.claim == s.Claim.UID && cached.DeletionTimestamp == nil:
		s.PV = PVStored
	case s.PVRead.IsZero() && cached != nil && cached.claim == s.Claim.UID:
		s.PV = PVTerminating
	case s.PVRead.IsZero() && cached != nil:
		s.PV, s.PVHandle = PVOther, cached.handle
	}
}
