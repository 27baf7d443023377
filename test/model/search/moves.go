package search

// Moves distinguishes the moves of a state by what they need. M is a move, and C what it changes. It
// belongs to one Player.
type Moves[M any, C interface{ Break() }] struct {
	// Make makes a move that is possible. step: it needs neither a user nor a fault. left is the number of events in the
	// budget of the state that the move reduces by one, nil for none.
	Make func(m M, step bool, left *uint8, do func(C))
	// Busy means that the cluster can do something, so that the state is not at rest.
	Busy      bool
	inCluster bool
}

// Cluster lets the moves that do offers count as moves of the cluster.
func (o *Moves[M, C]) Cluster(do func()) {
	o.inCluster = true
	do()
	o.inCluster = false
}

// Can offers a move that needs neither a user nor a fault.
func (o *Moves[M, C]) Can(possible bool, m M, do func(C)) {
	if possible {
		o.Busy = o.Busy || o.inCluster
		o.Make(m, true, nil, do)
	}
}

// User offers a user's move, of which so many are left in the budget of the state, nil for any number.
func (o *Moves[M, C]) User(possible bool, left *uint8, m M, do func(C)) {
	if possible && (left == nil || *left > 0) {
		o.Make(m, false, left, do)
	}
}

// Breaks offers a move that is a fault, in the same way.
func (o *Moves[M, C]) Breaks(possible bool, left *uint8, m M, do func(C)) {
	if possible && (left == nil || *left > 0) {
		o.Make(m, false, left, func(c C) {
			c.Break()
			do(c)
		})
	}
}
