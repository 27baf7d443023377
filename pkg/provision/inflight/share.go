package inflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/validation"
)

const (
	// room is the size in bytes of a shard's annotations: the API server's limit less a margin for the annotations of
	// others.
	room = validation.TotalAnnotationSizeLimitB - 16<<10
	// reserve is the part of the room that new entries leave to open ones. An open entry grows by a second request, or by
	// the note that the volume is discarded.
	reserve = room / 8
	// notes is the part of the reserve that second requests leave to notes, of some 30 bytes an entry. No open request is
	// repeated without its note.
	notes = 8 << 10
	// inflation is the number of bytes before compression for which an entry takes at least a byte of room. A StorageClass
	// and a VolumeAttributesClass may have 256 KiB of parameters each. These fit twice, once for each request.
	inflation = 8
	// maxContent limits what Locate decompresses of the entries of a Lease, in bytes. Anyone who may create a Lease may
	// forge one, and 256 KiB of DEFLATE can take 190 MiB of the reader's memory.
	maxContent = inflation * validation.TotalAnnotationSizeLimitB
	// maxValues limits the commas of an entry that Locate decodes, and thereby its values: an empty object in a list takes
	// 3 bytes of text, but 100 bytes of memory. Without compression, a Lease has hardly room for more.
	maxValues = validation.TotalAnnotationSizeLimitB / 4
	// namespaceShare and classShare limit the bytes that the entries of one namespace and of one StorageClass take, for
	// each byte that stays free. A single namespace can take half of the room for new entries, the next one half of the
	// rest, and so on, so that a further namespace always has room. A class can take seven eighths, so that namespaces
	// have shares even if all of them use one class.
	namespaceShare, classShare = 1, 7
)

// admit returns an error if a shard has no room for the entry it, which is among the wanted ones. before is the entry
// that it replaces, nil for none.
func (s *shard) admit(it, before *item, own meta) error {
	used := s.used(own)
	if before != nil {
		limit := room - notes
		if len(it.entry.Requests) <= len(before.entry.Requests) {
			used, limit = s.total(own), room // entries of an earlier version may weigh more than the room, and need notes too
		}
		if used > limit {
			return fmt.Errorf("%w: Lease %s has no room for a change of an entry", ErrFull, s.name)
		}
		return nil
	}
	free := room - reserve - used
	if free < 0 {
		if alone := s.alone(it, own); alone > room-reserve {
			return fmt.Errorf("%w: it takes %d bytes of the %d that a Lease has for entries (stored in %d, %d before "+
				"compression)", ErrTooLarge, alone, room-reserve, len(it.value), it.content)
		}
		return fmt.Errorf("%w: in Lease %s, %s", ErrFull, s.name, s.largest())
	}
	for _, by := range owners {
		if held, count := s.held(by, by.of(it.entry)); count > 1 && held > by.share*free {
			return fmt.Errorf("%w: %s %q has %d entries in Lease %s, all that it may have there", ErrShare, by.kind,
				by.of(it.entry), count-1, s.name)
		}
	}
	return nil
}

// owner is a kind of object that has a share of each shard.
type owner struct {
	kind  string
	share int
	of    func(*Entry) string
}

var (
	byNamespace = owner{"namespace", namespaceShare, func(e *Entry) string { return e.Claim.Namespace }}
	byClass     = owner{"StorageClass", classShare, classOf}
	owners      = []owner{byNamespace, byClass}
)

func classOf(e *Entry) string { return e.Requests[0].PV.Spec.StorageClassName }

// held returns the room in bytes that an owner's wanted entries take without their chunks, and their number.
func (s *shard) held(by owner, name string) (total, count int) {
	for key, it := range s.want {
		if by.of(it.entry) == name {
			total += len(key) + it.weight()
			count++
		}
	}
	return total, count
}

// alone returns the room that the annotations take with this entry as the only one. The bytes of unreadable entries may
// come free.
func (s *shard) alone(it *item, own meta) int {
	only := *s
	only.want, only.kept = map[string]*item{annotationKey(it.entry.Volume): it}, nil
	return only.used(own)
}

// largest describes the namespace and the class with the most entries.
func (s *shard) largest() string {
	most := func(by owner) string {
		counts := map[string]int{}
		for _, it := range s.want {
			counts[by.of(it.entry)]++
		}
		names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
			return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
		})
		return fmt.Sprintf("%s %q has %d", by.kind, names[0], counts[names[0]])
	}
	return fmt.Sprintf("%s and %s of %d entries", most(byNamespace), most(byClass), len(s.want))
}
