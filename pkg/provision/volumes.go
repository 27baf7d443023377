package provision

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Volumes is a watch cache of PVs; reclaim.PVs is one. It shows at least those that name a volume of
// the driver, on a node those that it may reach: that it does not show a PV proves nothing. Its methods are safe
// for concurrent use.
type Volumes interface {
	// Get returns the PV with this name. Of it, Driver, Handle, Claim.UID, Terminating and Reach are read.
	Get(name string) (pv volume.PV, found bool)
	// Shared reports whether a PV of another name than except names the driver's volume.
	Shared(handle, except string) bool
	// Follow has changed called for every PV that comes or goes from now on, with the state that it
	// had first or last, and after Get shows it so. changed does not block.
	Follow(changed func(volume.PV))
	// Synced reports whether Get shows the PVs that there were when the watch began.
	Synced() bool
}

// ownVolumes are the Volumes of a Provisioner that was given none: a watch of its own, which keeps
// nothing of other drivers' PVs, nor of those that are surely another node's.
type ownVolumes struct {
	driver string
	// node is the one whose PVs are kept, nil for those of the whole cluster.
	node  *volume.Node
	cache *kube.Cache[ownVolume]

	mu sync.Mutex
	// handles counts the PVs that name each volume.
	handles map[string]int
	changed []func(volume.PV)
}

// ownVolume is what is kept of a PV.
type ownVolume struct {
	name, handle string
	claim        types.UID
	terminating  bool
}

func newOwnVolumes(core rest.Interface, driver string, node *volume.Node) *ownVolumes {
	v := &ownVolumes{driver: driver, node: node, handles: map[string]int{}}
	v.cache = kube.NewCache(core, "persistentvolumes", &v1.PersistentVolume{}, v.record, ownChanges{v})
	return v
}

func (v *ownVolumes) record(object runtime.Object, _ bool) (_ ownVolume, keep bool, err error) {
	api, ok := object.(*v1.PersistentVolume)
	if !ok {
		return ownVolume{}, false, fmt.Errorf("watch PVs: got a %T", object)
	}
	pv := volume.At(v.node, api)
	if pv.Driver != v.driver || pv.Reach == volume.ReachElsewhere {
		return ownVolume{name: pv.Name}, false, nil
	}
	return ownVolume{name: pv.Name, handle: pv.Handle, claim: pv.Claim.UID, terminating: pv.Terminating}, true, nil
}

func (v *ownVolumes) pv(kept ownVolume) volume.PV {
	return volume.PV{Name: kept.name, Driver: v.driver, Handle: kept.handle, Claim: volume.ClaimRef{UID: kept.claim},
		Terminating: kept.terminating}
}

// watch keeps the cache up to date until ctx ends.
func (v *ownVolumes) watch(ctx context.Context) { v.cache.Run(ctx) }

func (v *ownVolumes) Get(name string) (pv volume.PV, found bool) {
	kept, found := v.cache.Get(name)
	return v.pv(kept), found
}

func (v *ownVolumes) Shared(handle, except string) bool {
	kept, found := v.cache.Get(except)
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.handles[handle]
	if found && kept.handle == handle {
		n--
	}
	return n > 0
}

func (v *ownVolumes) Follow(changed func(volume.PV)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changed = append(v.changed, changed)
}

func (v *ownVolumes) Synced() bool { return v.cache.Synced() }

// ownChanges follows the PVs.
type ownChanges struct{ *ownVolumes }

func (v ownChanges) Added(now ownVolume) {
	v.count(now.handle, 1)
	v.tell(now)
}

func (v ownChanges) Updated(before, now ownVolume) {
	v.count(before.handle, -1)
	v.count(now.handle, 1)
	if before.claim != now.claim { // another PV of that name, or another claim's
		v.tell(before)
		v.tell(now)
	}
}

func (v ownChanges) Deleted(last ownVolume, _ bool) {
	v.count(last.handle, -1)
	v.tell(last)
}

func (v *ownVolumes) count(handle string, by int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.handles[handle] += by; v.handles[handle] <= 0 {
		delete(v.handles, handle)
	}
}

func (v *ownVolumes) tell(kept ownVolume) {
	v.mu.Lock()
	all := v.changed // only ever appended to
	v.mu.Unlock()
	for _, changed := range all {
		changed(v.pv(kept))
	}
}
