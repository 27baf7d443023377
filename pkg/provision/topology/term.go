package topology

import (
	"cmp"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// segment is one topology label, such as zone=a.
type segment struct {
	key, value string
}

// term is a topology in which all of its segments hold. Segments are sorted and their keys are unique.
type term []segment

func (s segment) compare(other segment) int {
	return cmp.Or(cmp.Compare(s.key, other.key), cmp.Compare(s.value, other.value))
}

// String formats a term like zone=a,rack=1.
func (t term) String() string {
	var parts []string
	for _, s := range t {
		parts = append(parts, s.key+"="+s.value)
	}
	return strings.Join(parts, ",")
}

// compare orders terms with fewer segments first, as external-provisioner does, because the order decides the term that
// a claim prefers.
func (t term) compare(other term) int {
	return cmp.Or(cmp.Compare(len(t), len(other)), slices.CompareFunc(t, other, segment.compare))
}

// holds reports whether place lies within the term, that is, has all of its segments.
func (t term) holds(place term) bool {
	return !slices.ContainsFunc(t, func(s segment) bool { return !slices.Contains(place, s) })
}

// has reports whether the term has all keys of another one, whatever their values.
func (t term) has(other term) bool {
	return !slices.ContainsFunc(other, func(o segment) bool {
		return !slices.ContainsFunc(t, func(s segment) bool { return s.key == o.key })
	})
}

// with returns the term with one more segment. ok is false if the term has another value for the key, because no node
// is in two places at once.
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

// sorted returns the terms in order and without duplicates.
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
