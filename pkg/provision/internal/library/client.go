package library

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/caches"
)

// libraryClient keeps the library from creating PVs and recording Events: the outcome of a try is recorded in one
// place.
type libraryClient struct{ kubernetes.Interface }

func (c libraryClient) CoreV1() corev1.CoreV1Interface { return libraryCore{c.Interface.CoreV1()} }

type libraryCore struct{ corev1.CoreV1Interface }

func (c libraryCore) PersistentVolumes() corev1.PersistentVolumeInterface {
	return noVolumes{c.CoreV1Interface.PersistentVolumes()}
}

func (c libraryCore) Events(namespace string) corev1.EventInterface {
	return noEvents{c.CoreV1Interface.Events(namespace)}
}

// noVolumes refuses to create PVs: otherwise the library could create one for a volume that was deleted in between.
type noVolumes struct {
	corev1.PersistentVolumeInterface
}

func (noVolumes) Create(context.Context, *v1.PersistentVolume, metav1.CreateOptions) (*v1.PersistentVolume, error) {
	return nil, errors.New("the library creates no PV")
}

// noEvents accepts the Events of the library's recorder, and writes none.
type noEvents struct{ corev1.EventInterface }

func (noEvents) CreateWithEventNamespaceWithContext(_ context.Context, event *v1.Event) (*v1.Event, error) {
	return event, nil
}

func (noEvents) PatchWithEventNamespaceWithContext(_ context.Context, event *v1.Event, _ []byte) (*v1.Event, error) {
	return event, nil
}

// CreateWithEventNamespace and PatchWithEventNamespace are called by a recorder without context.
func (noEvents) CreateWithEventNamespace(event *v1.Event) (*v1.Event, error) { return event, nil }
func (noEvents) PatchWithEventNamespace(event *v1.Event, _ []byte) (*v1.Event, error) {
	return event, nil
}

// volumeInformer shows the library no PVs, because the library would delete volumes on their events.
type volumeInformer struct {
	// SharedInformer is never run.
	cache.SharedInformer
}

func newVolumeInformer() volumeInformer {
	return volumeInformer{cache.NewSharedInformer(&cache.ListWatch{}, &v1.PersistentVolume{}, 0)}
}

// AddEventHandlerWithResyncPeriod accepts a handler that is never called, because volumes are deleted elsewhere. An
// informer without resync would log a warning about the library's period.
func (i volumeInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler,
	_ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

// HasSynced always reports true, so that the library may begin.
func (volumeInformer) HasSynced() bool { return true }

// claimInformer gives the library only the claims that it may have to provision, and these whole, because the library
// writes back the objects that it finds.
type claimInformer struct {
	// SharedIndexInformer is never run.
	cache.SharedIndexInformer
	claims *caches.Claims
	// handler is the library's.
	handler cache.ResourceEventHandler
}

func newClaimInformer(claims *caches.Claims) *claimInformer {
	idle := cache.NewSharedIndexInformer(&cache.ListWatch{}, &v1.PersistentVolumeClaim{}, 0, cache.Indexers{})
	return &claimInformer{SharedIndexInformer: idle, claims: claims}
}

// AddEventHandlerWithResyncPeriod registers the handler by which the library learns of claims. It does not resync:
// every relevant change offers the claim again.
func (i *claimInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler,
	_ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	i.handler = handler
	return i.AddEventHandler(handler)
}

func (i *claimInformer) HasSynced() bool { return i.claims.Synced() }
func (i *claimInformer) GetIndexer() cache.Indexer {
	return claimIndexer{i.SharedIndexInformer.GetIndexer(), i.claims}
}

// claimIndexer finds claims by their UID, the only index that the library uses.
type claimIndexer struct {
	cache.Indexer
	claims *caches.Claims
}

func (i claimIndexer) ByIndex(_, uid string) ([]any, error) {
	if claim := i.claims.WholeByUID(types.UID(uid)); claim != nil {
		return []any{claim}, nil
	}
	return nil, nil
}
