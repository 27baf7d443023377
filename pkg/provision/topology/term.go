package topology

import (
	"cmp"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// segment is one label that says where something is, such as zone=a.
type segment struct {
	key, value string
}

// term is a place: all of its segments hold. Segments are sorted, each key is there once.
type term []segment

func (s segment) compare(other segment) int {
	return cmp.Or(cmp.Compare(s.key, other.key), cmp.Compare(s.value, other.value))
}

// compare puts terms with fewer segments first, as external-provisioner does: the order decides
// which place a claim prefers.
func (t term) compare(other term) int {
	return cmp.Or(cmp.Compare(len(t), len(other)), slices.CompareFunc(t, other, segment.compare))
}

// holds reports whether a place lies within the term: everything the term asks for is there.
func (t term) holds(place term) bool {
	return !slices.ContainsFunc(t, func(s segment) bool { return !slices.Contains(place, s) })
}

// with returns the term and one segment more. ok is false where the term has another value
// under the key: nothing is in two places at once.
func (t term) with(s segment) (longer term, ok bool) {
	for _, have := range t {
		if have.key == s.key {
			return t, have.value == s.value
		}
	}
	longer = append(slices.Clone(t), s)
	slices.SortFunc(longer, segment.compare)
	return longer, true
}

// sorted returns the terms in order, each once.
func sorted(terms []term) []term {
	slices.SortFunc(terms, term.compare)
	return slices.CompactFunc(terms, func(a, b term) bool { return slices.Equal(a, b) })
}

// from returns the terms as a ring that begins with the i-th.
func from(terms []term, i int) []term {
	return slices.Concat(terms[i:], terms[:i])
}

func toCSI(terms []term) []*csi.Topology {
	out := make([]*csi.Topology, 0, len(terms))
	for _, t := range terms {
		segments := make(map[string]string, len(t))
		for _, s := range t {
			segments[s.key] = s.value
		}
		out = append(out, &csi.Topology{Segments: segments})
	}
	return out
}
