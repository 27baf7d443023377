package capacity

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Place is where volumes can be used from, as the labels that tell it: "rack=1,zone=a", in the order
// of their keys. The empty place is everywhere. (Neither "=" nor "," can be in a label.)
type Place string

// nowhere stands for every place of an object that no driver's nodes can be at.
const nowhere Place = "?"

// Spot is what one object is about.
type Spot struct {
	Class string
	Place Place
}

// PlaceOf returns the place that labels tell.
func PlaceOf(segments map[string]string) Place {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(segments)) {
		all = append(all, key+"="+segments[key])
	}
	return Place(strings.Join(all, ","))
}

// placeOf returns the place of an object. One without is at no node (storage/v1,
// CSIStorageCapacity.nodeTopology), and places are told by labels alone.
func placeOf(selector *metav1.LabelSelector) Place {
	if selector == nil || len(selector.MatchExpressions) > 0 {
		return nowhere
	}
	return PlaceOf(selector.MatchLabels)
}

// Segments returns the labels that tell the place.
func (p Place) Segments() map[string]string {
	segments := map[string]string{}
	for _, s := range strings.Split(string(p), ",") {
		if key, value, found := strings.Cut(s, "="); found {
			segments[key] = value
		}
	}
	return segments
}

// within tells whether all that is at the place is at those segments too.
func (p Place) within(segments map[string]string) bool {
	here := p.Segments()
	for key, value := range segments {
		if have, found := here[key]; !found || have != value {
			return false
		}
	}
	return true
}
