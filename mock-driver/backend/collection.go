package backend

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// record is a volume or a snapshot. Its errors name it after its kind.
type record[T any] interface {
	key() (id, name string)
	clone() T
	notFound(id string) error
}

// collection caches the records of a store by id, by name, and in the order of listing, which is by id.
type collection[T record[T]] struct {
	store  Store[T]
	byID   map[string]T
	byName map[string]string
	order  []string
}

func load[T record[T]](store Store[T]) (*collection[T], error) {
	records, err := store.Load()
	if err != nil {
		return nil, err
	}
	c := &collection[T]{store: store, byID: make(map[string]T, len(records)),
		byName: make(map[string]string, len(records))}
	for _, r := range records {
		id, name := r.key()
		if other, taken := c.byName[name]; taken {
			return nil, fmt.Errorf("%q and %q have the same name: %w", other, id, ErrInvalid)
		}
		c.byID[id], c.byName[name] = r, id
		c.order = append(c.order, id)
	}
	slices.Sort(c.order)
	return c, nil
}

// get returns a copy of the record with this id, or the error that there is none.
func (c *collection[T]) get(id string) (T, error) {
	r, ok := c.byID[id]
	if !ok {
		return r, r.notFound(id)
	}
	return r.clone(), nil
}

func (c *collection[T]) named(name string) (T, bool) {
	id, ok := c.byName[name]
	return c.byID[id], ok
}

// put writes to the store first, so that a failed write leaves the collection unchanged.
func (c *collection[T]) put(r T) error {
	if err := c.store.Put(r); err != nil {
		return err
	}
	id, name := r.key()
	if _, known := c.byID[id]; !known {
		at, _ := slices.BinarySearch(c.order, id)
		c.order = slices.Insert(c.order, at, id)
	}
	c.byID[id], c.byName[name] = r, id
	return nil
}

func (c *collection[T]) remove(r T) error {
	id, name := r.key()
	if err := c.store.Remove(id); err != nil {
		return err
	}
	delete(c.byID, id)
	delete(c.byName, name)
	if at, found := slices.BinarySearch(c.order, id); found {
		c.order = slices.Delete(c.order, at, at+1)
	}
	return nil
}

// after returns copies of up to limit matching records (0: all) with ids above the given one, and whether more follow.
// Because it goes by id and not by position, it neither repeats nor skips a record that exists throughout, despite
// insertions and deletions between pages.
func (c *collection[T]) after(id string, limit int, match func(T) bool) (page []T, more bool) {
	at, found := slices.BinarySearch(c.order, id)
	if found {
		at++
	}
	for ; at < len(c.order); at++ {
		r := c.byID[c.order[at]]
		if !match(r) {
			continue
		}
		if limit > 0 && len(page) == limit {
			return page, true
		}
		page = append(page, r.clone())
	}
	return page, false
}

// maxReadable bounds the part of a name that an id repeats for people. With its suffix, an id stays well below the
// 128 bytes of the spec.
const maxReadable = 80

// newID returns an id that is never used again and is a safe directory name: the readable part of the name, and 48
// random bits.
func newID(name string) string {
	readable := strings.Map(func(r rune) rune {
		if idRune(r) {
			return r
		}
		return '-'
	}, name)
	readable = strings.Trim(readable[:min(len(readable), maxReadable)], "-._")
	if readable == "" {
		readable = "unnamed"
	}
	var random [6]byte
	_, _ = rand.Read(random[:]) // Never fails: crypto/rand ends the program rather than return an error.
	return readable + "-" + hex.EncodeToString(random[:])
}

// ValidID reports whether an id has the form of a backend's ids, and so is a safe directory name.
func ValidID(id string) bool {
	return len(id) > 0 && len(id) <= 128 && id[0] != '.' && id[0] != '-' &&
		!strings.ContainsFunc(id, func(r rune) bool { return !idRune(r) })
}

func idRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_'
}
