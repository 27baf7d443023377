package search

import "slices"

// Visitor notes what a Player says of a state.
type Visitor struct {
	*explorer
	player         Player
	now            uint32
	fresh          []node
	origin         [][2]uint32
	steps, settled []uint32
}

// Reached says that a move leads to a state, which is copied. step: the move needs neither a user
// nor a fault.
func (v *Visitor) Reached(m Move, step bool, state []byte) {
	number, isNew := v.number(v.hash(state))
	if isNew {
		v.fresh = append(v.fresh, node{number, slices.Clone(state)})
		v.origin = append(v.origin, [2]uint32{v.now, m})
	}
	if step {
		v.steps = append(v.steps, v.now, number)
	}
}

// Broke says that a move breaks a promise.
func (v *Visitor) Broke(m Move, promise string) { v.find(found{v.now, []Move{m}, promise}) }

// Settled says that the state is at rest, and all is as it should be.
func (v *Visitor) Settled() { v.settled = append(v.settled, v.now) }

// Unsettled says that the state is at rest for good, and breaks a promise.
func (v *Visitor) Unsettled(promise string) {
	v.find(found{v.now, nil, promise})
}

func (v *Visitor) find(f found) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.findings = append(v.findings, f)
}
