package memory

import "slices"

// Queue has the changes that a watch has not delivered yet. It is plain if they are.
type Queue[C comparable] struct {
	changes [4]C
	n       uint8
}

// All returns the changes, the next one first.
func (q *Queue[C]) All() []C { return q.changes[:q.n] }

// Len returns the number of changes.
func (q *Queue[C]) Len() int { return int(q.n) }

// Next returns the change that is delivered next.
func (q *Queue[C]) Next() C { return q.changes[0] }

// Add adds a change.
func (q *Queue[C]) Add(c C) {
	q.changes[q.n] = c
	q.n++
}

// Take delivers the next change.
func (q *Queue[C]) Take() C {
	var none C
	next := q.changes[0]
	copy(q.changes[:], q.changes[1:])
	q.n--
	q.changes[q.n] = none
	return next
}

// Has reports whether a change is in the queue.
func (q *Queue[C]) Has(is func(C) bool) bool { return slices.ContainsFunc(q.All(), is) }

// Once returns the value of a key, and makes it the first time.
func Once[K comparable, V any](known map[K]V, key K, make func() V) V {
	v, found := known[key]
	if !found {
		v = make()
		known[key] = v
	}
	return v
}
