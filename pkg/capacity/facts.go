package capacity

import (
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Facts holds everything that a decision about one item depends on. The zero value of a field means that the fact is
// unknown, or is the value that leaves the objects unchanged.
type Facts struct {
	Class   Class
	Segment Presence
	// OwnerKnown: the owner of the objects has been looked up, or none is configured.
	OwnerKnown bool
	// Objects are all objects of the item, including objects of other programs, sorted by name.
	Objects []Object

	// Capacity is the driver's last answer, and Answered the time of its call, which is zero before the first answer.
	Capacity Capacity
	Answered time.Time
	// Stale: an event since then may have changed the capacity.
	Stale bool
	// PollInterval is the lifetime of an answer if no event marks it as stale. Required.
	PollInterval time.Duration
}

// Class is the state of a StorageClass with regard to the driver.
type Class uint8

const (
	// ClassUnknown: the watch caches are not filled yet, so the class may exist.
	ClassUnknown Class = iota
	// ClassServed: the driver provisions the class, and its capacity is to be published.
	ClassServed
	// ClassImmediate: the driver provisions the class, but its volumes bind before a pod is scheduled.
	ClassImmediate
	// ClassGone: the class does not exist, or belongs to another driver.
	ClassGone
)

// Presence tells whether the driver has nodes in a segment.
type Presence uint8

const (
	// PresenceUnknown: the driver's nodes have not been listed yet.
	PresenceUnknown Presence = iota
	// Present: the driver has at least one node in the segment.
	Present
	// Absent: the driver has no node in the segment.
	Absent
)

// Size is a number of bytes. Its zero value is an unknown size.
type Size struct {
	Bytes int64
	Known bool
}

// Capacity is a driver's free capacity in one segment.
type Capacity struct {
	// Available is the capacity for all further volumes together.
	Available Size
	// MaximumVolumeSize is the largest size of a single volume.
	MaximumVolumeSize Size
}

// Object is the record of a CSIStorageCapacity. The zero value counts as an object of another program, which is never
// changed.
type Object struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Item            WorkItem
	// Ours: its labels name this driver and this Controller's ManagedBy.
	Ours bool
	// Terminating: it has a deletionTimestamp, so it no longer counts.
	Terminating bool
	// Owners holds the UIDs of its owners, and Owned tells whether the configured owner is among them or none is
	// configured.
	Owners []types.UID
	Owned  bool
	// Controlled: one of its owners is its controller.
	Controlled bool
	Capacity   Capacity
}

// ours returns the Controller's own objects that are not terminating.
func (s Facts) ours() []Object {
	var ours []Object
	for _, o := range s.Objects {
		if o.Ours && !o.Terminating {
			ours = append(ours, o)
		}
	}
	return ours
}

// due reports whether GetCapacity is to be called, because the answer is stale or older than three quarters of the
// interval. The jitter of the work loop shortens delays by up to a fifth.
func (s Facts) due(now time.Time) bool {
	return s.Stale || now.Sub(s.Answered) >= s.PollInterval*3/4
}

// Segment is a topology segment in the form of its labels, sorted by key: "rack=1,zone=a". That is unambiguous,
// because labels contain neither "=" nor ",". The empty segment covers every node.
type Segment string

// nowhere is the segment of every object that no set of labels describes.
const nowhere Segment = "?"

// WorkItem identifies one CSIStorageCapacity, a term of external-provisioner.
type WorkItem struct {
	Class   string
	Segment Segment
}

// SegmentOf returns the segment with the given labels; without labels it is the empty segment.
func SegmentOf(segments map[string]string) Segment {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(segments)) {
		all = append(all, key+"="+segments[key])
	}
	return Segment(strings.Join(all, ","))
}

// segmentOf returns the segment of an object. It is nowhere for a nil selector, which matches no node (storage/v1,
// CSIStorageCapacity.nodeTopology), and for match expressions, which a segment cannot represent.
func segmentOf(selector *metav1.LabelSelector) Segment {
	if selector == nil || len(selector.MatchExpressions) > 0 {
		return nowhere
	}
	return SegmentOf(selector.MatchLabels)
}

// Labels returns the labels of the segment, the inverse of SegmentOf.
func (s Segment) Labels() map[string]string {
	segments := map[string]string{}
	for _, label := range s.labels() {
		if key, value, found := strings.Cut(label, "="); found {
			segments[key] = value
		}
	}
	return segments
}

// labels returns the labels of the segment in the form "zone=a".
func (s Segment) labels() []string {
	if s == "" {
		return nil
	}
	return strings.Split(string(s), ",")
}

// groups returns the groups of the item in tracker.groups. The names of classes contain no "=", which labels have.
func (i WorkItem) groups() []string { return append(i.Segment.labels(), i.Class) }
