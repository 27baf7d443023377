// Package memory keeps what replicas know beside a world, as bytes: so states can be compared, copied
// and numbered, and a replica is a value again only while something is done with it.
package memory

import (
	"encoding/binary"
	"unsafe"
)

// Replicas is how many replicas a world has at most.
const Replicas = 2

// Knows is what each replica knows, as it has encoded it; empty for one that is not up.
type Knows [Replicas][]byte

// Encode appends a state to b: a world, which is plain and holds no pointers, and what its replicas
// know.
func Encode[W any](b []byte, world *W, knows *Knows) []byte {
	b = append(b, Bytes(world)...)
	for _, known := range knows {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(known)))
		b = append(b, known...)
	}
	return b
}

// Decode fills in a world from a state, and returns what its replicas know, which is part of b.
func Decode[W any](b []byte, world *W) (knows Knows) {
	b = b[copy(Bytes(world), b):]
	for i := range knows {
		n := int(binary.LittleEndian.Uint16(b))
		if n > 0 {
			knows[i] = b[2 : 2+n : 2+n]
		}
		b = b[2+n:]
	}
	return knows
}

// Bytes returns the bytes of a plain value, which are the value: a change of them changes it.
func Bytes[W any](world *W) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(world)), unsafe.Sizeof(*world))
}

// Replica is a process as a value.
type Replica interface {
	comparable
	// Encode appends all that is known to b.
	Encode(b []byte) []byte
}

// Machine makes replicas of what they know, and takes them back.
type Machine[R Replica] interface {
	Decode(b []byte) (replica R, rest []byte)
	Release(r R)
}

// Opened are the replicas of one state that were opened. The zero value has none open.
type Opened[R Replica] [Replicas]R

// Open returns a replica, the same one each time until it is closed or released.
func (o *Opened[R]) Open(m Machine[R], knows *Knows, i int) R {
	var none R
	if o[i] == none {
		o[i], _ = m.Decode(knows[i])
	}
	return o[i]
}

// Close puts what the replicas know now back. Encoding seldom takes more than room more bytes than
// before.
func (o *Opened[R]) Close(m Machine[R], knows *Knows, room int) {
	var none R
	for i, r := range o {
		if r != none {
			knows[i] = r.Encode(make([]byte, 0, len(knows[i])+room))
		}
	}
	o.Release(m)
}

// Release gives the replicas back, which were only read.
func (o *Opened[R]) Release(m Machine[R]) {
	var none R
	for i, r := range o {
		if r != none {
			m.Release(r)
			o[i] = none
		}
	}
}
