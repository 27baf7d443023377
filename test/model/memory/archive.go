package memory

import (
	"cmp"
	"maps"
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
)

// Archive is the knowledge of a replica as bytes. A visit of a field writes it to the end of Bytes or, if the archive
// Reads, takes it from the front: so one function says what is kept, for both ways.
type Archive struct {
	Bytes []byte
	Reads bool
}

// Number visits a number below 256.
func Number[N ~int | ~uint8](a *Archive, n *N) {
	if a.Reads {
		*n = N(a.take())
	} else {
		a.put(byte(*n))
	}
}

func (a *Archive) put(b byte) { a.Bytes = append(a.Bytes, b) }

func (a *Archive) take() byte {
	b := a.Bytes[0]
	a.Bytes = a.Bytes[1:]
	return b
}

// Pair visits two numbers below 16.
func Pair[A, B ~int | ~uint8](a *Archive, first *A, second *B) {
	if !a.Reads {
		a.put(byte(*first)<<4 | byte(*second))
		return
	}
	both := a.take()
	*first, *second = A(both>>4), B(both&15)
}

// Flags visits at most eight flags.
func (a *Archive) Flags(flags ...*bool) {
	if a.Reads {
		set := a.take()
		for i, flag := range flags {
			*flag = set&(1<<i) != 0
		}
		return
	}
	var set byte
	for i, flag := range flags {
		if *flag {
			set |= 1 << i
		}
	}
	a.put(set)
}

// Read visits a live read, as its order and whether it is fresh.
func (a *Archive) Read(r *session.Read) {
	v := r.Order << 1
	if r.Fresh(clock.Now) {
		v |= 1
	}
	if Number(a, &v); !a.Reads || v == 0 {
		return
	}
	age := clock.Old
	if v&1 != 0 {
		age = clock.Young
	}
	r.Order, r.Sent = v>>1, age.Time()
}

// List visits a list by its elements.
func List[E any](a *Archive, list *[]E, visit func(*E)) {
	n := len(*list)
	if Number(a, &n); a.Reads && n > 0 {
		*list = make([]E, n)
	}
	for i := range *list {
		visit(&(*list)[i])
	}
}

// Map visits a map in the order of its keys.
func Map[K cmp.Ordered, V any](a *Archive, m map[K]V, visit func(*K, *V)) {
	keys := slices.AppendSeq(make([]K, 0, 4), maps.Keys(m))
	slices.Sort(keys)
	List(a, &keys, func(key *K) {
		value := m[*key]
		if visit(key, &value); a.Reads {
			m[*key] = value
		}
	})
}

// Made returns what a pointer points to, which is made if there is nothing.
func Made[T any](p **T) *T {
	if *p == nil {
		*p = new(T)
	}
	return *p
}
