package caches

import (
	"sync"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// PVs is a watch cache of the PVs of one driver. It keeps no PVs of other drivers, and none that another node has for
// sure. Its methods are safe for concurrent use.
type PVs struct {
	*kube.Cache[keptPV]
	driver string
	// node limits the cache to the PVs of one node, nil for the whole cluster.
	node *volume.Node

	mu sync.Mutex
	// handles counts the PVs that name each volume, by the key of its handle.
	handles map[string]int
	changed []func(volume.PV)
	listed  []func()
}

// keptPV has the fields of a PV that the cache keeps.
type keptPV struct {
	name, handle string
	claim        types.UID
	terminating  bool
}

// NewPVs returns a cache of the driver's PVs, limited to node unless that is nil, which is not running yet.
func NewPVs(core corev1.CoreV1Interface, driver string, node *volume.Node) *PVs {
	v := &PVs{driver: driver, node: node, handles: map[string]int{}}
	v.Cache = kube.NewTypedCache(core.PersistentVolumes(), "persistentvolumes", &v1.PersistentVolume{},
		kube.RecordSome(v.record), pvChanges{v})
	return v
}

func (v *PVs) record(api *v1.PersistentVolume, _ bool) (_ keptPV, keep bool) {
	pv := volume.At(v.node, api)
	if pv.Driver != v.driver || pv.Reach == volume.ReachElsewhere {
		return keptPV{name: pv.Name}, false
	}
	return keptPV{name: pv.Name, handle: pv.Handle, claim: pv.Claim.UID, terminating: pv.Terminating}, true
}

func (v *PVs) pv(kept keptPV) volume.PV {
	return volume.PV{Name: kept.name, Driver: v.driver, Handle: kept.handle, Claim: volume.ClaimRef{UID: kept.claim},
		Terminating: kept.terminating}
}

// Get returns the PV with this name.
func (v *PVs) Get(name string) (pv volume.PV, found bool) {
	kept, found := v.Cache.Get(name)
	return v.pv(kept), found
}

// Shared reports whether a PV with a name other than except names the driver's volume.
func (v *PVs) Shared(handle, except string) bool {
	kept, found := v.Cache.Get(except)
	v.mu.Lock()
	defer v.mu.Unlock()
	key := volume.HandleKey(handle)
	n := v.handles[key]
	if found && volume.HandleKey(kept.handle) == key {
		n--
	}
	return n > 0
}

// Follow registers changed, which is called for every PV that appears or disappears from now on.
func (v *PVs) Follow(changed func(volume.PV)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changed = append(v.changed, changed)
}

// FollowLists registers listed, which is called after each list that Get reflects.
func (v *PVs) FollowLists(listed func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.listed = append(v.listed, listed)
}

// pvChanges handles the events of PVs.
type pvChanges struct{ *PVs }

func (v pvChanges) Added(now keptPV) {
	v.count(now.handle, 1)
	v.notify(now)
}

func (v pvChanges) Updated(before, now keptPV) {
	v.count(now.handle, 1) // first, because in between, the volume of a PV would seem to have none
	v.count(before.handle, -1)
	if before.claim != now.claim { // another PV of that name, or of another claim
		v.notify(before)
		v.notify(now)
	}
}

func (v pvChanges) Deleted(last keptPV, _ bool) {
	v.count(last.handle, -1)
	v.notify(last)
}

func (v pvChanges) Listed() {
	v.mu.Lock()
	all := v.listed // only ever appended to
	v.mu.Unlock()
	for _, listed := range all {
		listed()
	}
}

func (v *PVs) count(handle string, by int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := volume.HandleKey(handle)
	if v.handles[key] += by; v.handles[key] <= 0 {
		delete(v.handles, key)
	}
}

func (v *PVs) notify(kept keptPV) {
	v.mu.Lock()
	all := v.changed // only ever appended to
	v.mu.Unlock()
	for _, changed := range all {
		changed(v.pv(kept))
	}
}
