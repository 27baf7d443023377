package capacity

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Segment is where volumes can be used from, as the labels of its nodes: "rack=1,zone=a", in the order of
// their keys. The empty segment is everywhere. (Neither "=" nor "," can be in a label.)
type Segment string

// nowhere stands for every segment of an object that no driver's nodes can be at.
const nowhere Segment = "?"

// WorkItem is what one object is about: external-provisioner's word.
type WorkItem struct {
	Class   string
	Segment Segment
}

// SegmentOf returns the segment with these labels.
func SegmentOf(segments map[string]string) Segment {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(segments)) {
		all = append(all, key+"="+segments[key])
	}
	return Segment(strings.Join(all, ","))
}

// segmentOf returns the segment of an object. One without is at no node (storage/v1,
// CSIStorageCapacity.nodeTopology), and segments are known by labels alone.
func segmentOf(selector *metav1.LabelSelector) Segment {
	if selector == nil || len(selector.MatchExpressions) > 0 {
		return nowhere
	}
	return SegmentOf(selector.MatchLabels)
}

// Labels returns the labels of the segment.
func (s Segment) Labels() map[string]string {
	segments := map[string]string{}
	for _, label := range strings.Split(string(s), ",") {
		if key, value, found := strings.Cut(label, "="); found {
			segments[key] = value
		}
	}
	return segments
}

// within reports whether all that is in the segment has those labels too.
func (s Segment) within(segments map[string]string) bool {
	here := s.Labels()
	for key, value := range segments {
		if have, found := here[key]; !found || have != value {
			return false
		}
	}
	return true
}
