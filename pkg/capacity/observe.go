package capacity

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// cached is what is asked of a watch cache.
type cached[R any] interface {
	Get(name string) (R, bool)
	Each(visit func(R))
	Reached(version string) bool
}

// class is what is kept of a StorageClass.
type class struct {
	name       string
	uid        types.UID
	ours       bool
	immediate  bool
	parameters map[string]string
}

// recordClass keeps the classes of this driver.
func (c *Controller) recordClass(object runtime.Object, _ bool) (class, bool, error) {
	o, ok := object.(*storagev1.StorageClass)
	if !ok {
		return class{}, false, fmt.Errorf("watch StorageClasses: got a %T", object)
	}
	r := class{
		name: o.Name, uid: o.UID, ours: o.Provisioner == c.driver, parameters: o.Parameters,
		immediate: o.VolumeBindingMode == nil || *o.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer,
	}
	return r, r.ours, nil
}

func (c *Controller) recordObject(object runtime.Object, _ bool) (Object, bool, error) {
	o, ok := object.(*storagev1.CSIStorageCapacity)
	if !ok {
		return Object{}, false, fmt.Errorf("watch CSIStorageCapacities: got a %T", object)
	}
	r := objectOf(o, c.marks)
	return r, r.Ours, nil
}

// classChanges and objectChanges are told by the watch caches.
type classChanges struct{ *Controller }

func (c classChanges) Added(now class)            { c.classChanged(now) }
func (c classChanges) Deleted(last class, _ bool) { c.classChanged(last) }
func (c classChanges) Updated(before, now class) {
	if before.uid != now.uid || before.ours != now.ours || before.immediate != now.immediate {
		c.classChanged(now)
	}
}

// classChanged has a class that may be another now be asked for anew.
func (c *Controller) classChanged(now class) {
	c.Changed(now.name, nil)
	c.lookAround()
}

type objectChanges struct{ *Controller }

func (c objectChanges) Added(now Object) { c.wake(now.Spot) }
func (c objectChanges) Updated(before, now Object) {
	c.wake(before.Spot)
	c.wake(now.Spot)
}

func (c objectChanges) Deleted(last Object, _ bool) {
	c.memory.forgetEnd(last.UID)
	c.wake(last.Spot)
}

// memory is what this process remembers of spots and objects. It is safe for concurrent use.
type memory struct {
	mu    sync.Mutex
	spots map[Spot]noted
	// written are objects as we wrote them last, until the cache shows that state or a later one.
	written map[Spot]Object
	// ended are the UIDs of objects that we deleted, until the cache shows it.
	ended map[types.UID]bool
	// places are where the driver is, nil before that is known.
	places map[Place]bool
	// owner is who owns the objects, once ownerKnown.
	owner      *metav1.OwnerReference
	ownerKnown bool
}

// noted is what is remembered of one spot.
type noted struct {
	answer Answer
	at     time.Time
	stale  bool
}

func newMemory() *memory {
	return &memory{spots: map[Spot]noted{}, written: map[Spot]Object{}, ended: map[types.UID]bool{}}
}

// stale marks the answers for some spots, and returns these spots.
func (m *memory) stale(some func(Spot) bool) []Spot {
	m.mu.Lock()
	defer m.mu.Unlock()
	var marked []Spot
	for spot, n := range m.spots {
		if some(spot) {
			n.stale = true
			m.spots[spot] = n
			marked = append(marked, spot)
		}
	}
	return marked
}

// asking notes that the driver is being asked: what happens from now on makes its answer stale.
func (m *memory) asking(spot Spot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.spots[spot]
	n.stale = false
	m.spots[spot] = n
}

// answered notes what the driver said; with ok false it said nothing, and is to be asked again.
func (m *memory) answered(spot Spot, a Answer, at time.Time, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.spots[spot]
	if ok {
		n.answer, n.at = a, at
	} else {
		n.stale = true
	}
	m.spots[spot] = n
}

func (m *memory) wrote(o Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.written[o.Spot] = o
}

// ends notes that an object is being deleted, until forgetEnd.
func (m *memory) ends(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended[uid] = true
}

func (m *memory) forgetEnd(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.ended, uid)
}

// forget ends what is remembered of a spot.
func (m *memory) forget(spot Spot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.spots, spot)
	delete(m.written, spot)
}

// observe gathers what is known of a spot.
func (c *Controller) observe(spot Spot) Snapshot {
	s := Snapshot{Class: c.classAt(spot), PollInterval: c.cfg.PollInterval}
	m := c.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.places == nil:
	case m.places[spot.Place]:
		s.Place = Present
	default:
		s.Place = Absent
	}
	s.OwnerKnown = m.ownerKnown
	n := m.spots[spot]
	s.Answer, s.Answered, s.Stale = n.answer, n.at, n.stale
	s.Objects = m.objectsAt(spot, c.objects)
	for i := range s.Objects {
		s.Objects[i].Owned = m.ownerKnown && s.Objects[i].ownedBy(m.owner)
	}
	return s
}

// objectsAt returns the objects of a spot: those in the cache, with what we wrote and the cache does
// not show yet. The caller holds the lock.
func (m *memory) objectsAt(spot Spot, from cached[Object]) []Object {
	own, wrote := m.written[spot]
	if wrote && (m.ended[own.UID] || from.Reached(own.ResourceVersion)) {
		delete(m.written, spot)
		wrote = false
	}
	var there []Object
	if wrote {
		there = append(there, own)
	}
	from.Each(func(o Object) {
		if o.Spot == spot && !m.ended[o.UID] && (!wrote || o.UID != own.UID) {
			there = append(there, o)
		}
	})
	slices.SortFunc(there, func(a, b Object) int { return cmp.Compare(a.Name, b.Name) })
	return there
}

// ownedBy returns who owns the objects, nil for nobody.
func (m *memory) ownedBy() *metav1.OwnerReference {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owner
}

// classAt returns what the cache knows of a spot's class. Nothing is asked of it before it is filled.
func (c *Controller) classAt(spot Spot) Class {
	if !c.Synced() {
		return ClassUnknown
	}
	known, found := c.classes.Get(spot.Class)
	switch {
	case !found || !known.ours:
		return ClassGone
	case known.immediate && !c.cfg.ForImmediate:
		return ClassImmediate
	}
	return ClassServed
}
