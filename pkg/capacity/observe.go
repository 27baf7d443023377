package capacity

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// cached is the part of a watch cache that the Controller reads.
type cached[R any] interface {
	Get(name string) (R, bool)
	Each(visit func(R))
	Reached(version string) bool
}

type class struct {
	name       string
	uid        types.UID
	ours       bool
	immediate  bool
	parameters map[string]string
}

// recordClass keeps only the classes of this driver in the cache.
func (c *Controller) recordClass(o *storagev1.StorageClass, _ bool) (class, bool) {
	r := class{
		name: o.Name, uid: o.UID, ours: o.Provisioner == c.driverName, parameters: o.Parameters,
		immediate: o.VolumeBindingMode == nil || *o.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer,
	}
	return r, r.ours
}

func (c *Controller) recordObject(o *storagev1.CSIStorageCapacity, _ bool) (Object, bool) {
	r := objectOf(o, c.labels)
	return r, r.Ours
}

// classChanges and objectChanges are event handlers of the watch caches.
type classChanges struct{ *Controller }

func (c classChanges) Added(now class)            { c.classChanged(now) }
func (c classChanges) Deleted(last class, _ bool) { c.classChanged(last) }
func (c classChanges) Updated(before, now class) {
	if before.uid != now.uid || before.ours != now.ours || before.immediate != now.immediate {
		c.classChanged(now)
	}
}

// classChanged outdates the capacity of a class that may have been replaced.
func (c *Controller) classChanged(now class) {
	c.Changed(now.name, nil)
	c.enqueueSurvey()
}

type objectChanges struct{ *Controller }

func (c objectChanges) Added(now Object) {
	c.tracker.show(now)
	c.items.Enqueue(now.Item)
}

func (c objectChanges) Updated(before, now Object) {
	if before.Item != now.Item { // another object of that name; the same one is shown throughout
		c.tracker.hide(before)
		c.tracker.show(now)
	}
	c.items.Enqueue(before.Item)
	c.items.Enqueue(now.Item)
}

func (c objectChanges) Deleted(last Object, _ bool) {
	c.tracker.hide(last)
	c.tracker.forgetDeletion(last.UID)
	c.items.Enqueue(last.Item)
}

// tracker remembers this process's observations and writes. Its methods are safe for concurrent use, except
// objectsAt.
type tracker struct {
	mu      sync.Mutex
	records map[WorkItem]record
	// groups has the items of records by their class, and by each label of their segment.
	groups map[string]map[WorkItem]bool
	// shown holds the names of the objects in the cache by their item, so that a decision reads no others. Nearly every
	// item has one object, for which a slice takes less memory than the map of an objects.Index.
	shown map[WorkItem][]string
	// written holds objects as last written, until the cache shows that version or a later one.
	written map[WorkItem]Object
	// deleted holds the UIDs of objects that this process deleted, until the cache shows the deletion.
	deleted map[types.UID]bool
	// segments holds the segments with nodes of the driver, and is nil before the first survey.
	segments map[Segment]bool
	// owner is valid once ownerKnown is set; nil then means no owner.
	owner      *metav1.OwnerReference
	ownerKnown bool
}

// record holds the driver's last answer for one item and its time.
type record struct {
	capacity Capacity
	at       time.Time
	stale    bool
}

func newTracker() *tracker {
	return &tracker{records: map[WorkItem]record{}, groups: map[string]map[WorkItem]bool{},
		shown: map[WorkItem][]string{}, written: map[WorkItem]Object{}, deleted: map[types.UID]bool{}}
}

// show records that the cache shows an object, and hide that it does not any more.
func (t *tracker) show(o Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shown[o.Item] = append(t.shown[o.Item], o.Name)
}

func (t *tracker) hide(o Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := slices.DeleteFunc(t.shown[o.Item], func(name string) bool { return name == o.Name })
	if t.shown[o.Item] = names; len(names) == 0 {
		delete(t.shown, o.Item)
	}
}

// markStale marks the answers for the segments at as stale, or for the class without segments, and returns their items.
func (t *tracker) markStale(class string, at []map[string]string) []WorkItem {
	t.mu.Lock()
	defer t.mu.Unlock()
	marked := map[WorkItem]bool{}
	mark := func(groups ...string) {
		for item := range t.some(groups) {
			if !slices.ContainsFunc(groups, func(group string) bool { return !t.groups[group][item] }) {
				n := t.records[item]
				n.stale = true
				t.records[item] = n
				marked[item] = true
			}
		}
	}
	if len(at) == 0 {
		mark(class)
	}
	for _, segments := range at {
		var labels []string
		for key, value := range segments {
			labels = append(labels, key+"="+value)
		}
		mark(labels...)
	}
	return slices.Collect(maps.Keys(marked))
}

// some returns the items of the smallest group, so that a volume of one node visits the items of that node. Without
// groups, it returns all items. The caller holds the lock.
func (t *tracker) some(groups []string) iter.Seq[WorkItem] {
	if len(groups) == 0 {
		return maps.Keys(t.records)
	}
	size := func(a, b string) int { return cmp.Compare(len(t.groups[a]), len(t.groups[b])) }
	return maps.Keys(t.groups[slices.MinFunc(groups, size)])
}

// set replaces the record of an item. The caller holds the lock.
func (t *tracker) set(item WorkItem, n record) {
	if _, known := t.records[item]; !known {
		for _, group := range item.groups() {
			if t.groups[group] == nil {
				t.groups[group] = map[WorkItem]bool{}
			}
			t.groups[group][item] = true
		}
	}
	t.records[item] = n
}

// asking clears the stale mark before a call, so that events during the call set it again.
func (t *tracker) asking(item WorkItem) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.records[item]
	n.stale = false
	t.set(item, n)
}

// answered records the driver's answer, or marks the item as stale if ok is false because the call failed.
func (t *tracker) answered(item WorkItem, a Capacity, at time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.records[item]
	if ok {
		n.capacity, n.at = a, at
	} else {
		n.stale = true
	}
	t.set(item, n)
}

func (t *tracker) wrote(o Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.written[o.Item] = o
}

// deleting hides an object from decisions, although the cache still shows it, until forgetDeletion.
func (t *tracker) deleting(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deleted[uid] = true
}

func (t *tracker) forgetDeletion(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.deleted, uid)
}

func (t *tracker) forget(item WorkItem) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.records, item)
	delete(t.written, item)
	for _, group := range item.groups() {
		if delete(t.groups[group], item); len(t.groups[group]) == 0 {
			delete(t.groups, group)
		}
	}
}

// observe gathers the facts about an item from the caches and the tracker.
func (c *Controller) observe(item WorkItem) Facts {
	s := Facts{Class: c.classAt(item), PollInterval: c.cfg.PollInterval}
	t := c.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.segments == nil:
	case t.segments[item.Segment]:
		s.Segment = Present
	default:
		s.Segment = Absent
	}
	s.OwnerKnown = t.ownerKnown
	n := t.records[item]
	s.Capacity, s.Answered, s.Stale = n.capacity, n.at, n.stale
	s.Objects = t.objectsAt(item, c.objects, c.cfg.Namespace)
	for i := range s.Objects {
		s.Objects[i].Owned = s.Objects[i].ownedBy(t.owner)
	}
	return s
}

// objectsAt returns the item's objects in the cache of a namespace, and the one just written if the cache does not show
// it yet. The caller holds the lock.
func (t *tracker) objectsAt(item WorkItem, from cached[Object], namespace string) []Object {
	own, wrote := t.written[item]
	if t.deleted[own.UID] || from.Reached(own.ResourceVersion) {
		delete(t.written, item)
		wrote = false
	}
	var there []Object
	if wrote {
		there = append(there, own)
	}
	for _, name := range t.shown[item] {
		o, _ := from.Get(namespace + "/" + name) // an object that is gone has no item
		if o.Item == item && !t.deleted[o.UID] && (!wrote || o.UID != own.UID) {
			there = append(there, o)
		}
	}
	slices.SortFunc(there, func(a, b Object) int { return cmp.Compare(a.Name, b.Name) })
	return there
}

// ownedBy returns the owner of the objects, or nil for none.
func (t *tracker) ownedBy() *metav1.OwnerReference {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.owner
}

// classAt returns the state of an item's class, which is unknown until the caches are filled.
func (c *Controller) classAt(item WorkItem) Class {
	if !c.Synced() {
		return ClassUnknown
	}
	known, _ := c.classes.Get(item.Class)
	switch {
	case !known.ours:
		return ClassGone
	case known.immediate && !c.cfg.ForImmediate:
		return ClassImmediate
	}
	return ClassServed
}
