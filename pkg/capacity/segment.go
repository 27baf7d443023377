package capacity

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
