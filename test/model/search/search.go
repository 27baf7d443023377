// Package search finds, breadth first, all states that a world can come to, the shortest way to one
// in which a promise is broken, and those from which no way leads to rest. What a world is like,
// and what is promised, is left to its Player.
package search

import (
	"context"
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Player plays one world. Each goroutine has its own.
type Player interface {
	// First returns the initial state of the world.
	First() []byte
	// Visit makes every possible move of a state, and tells v the result of each, and
	// whether the state is at rest. The state is not changed.
	Visit(state []byte, v *Visitor)
	// Trace returns a sentence for each move of a history.
	Trace(moves []Move) []string
}

// Move is one event: the number of a move among the possible moves of a state.
type Move = uint32

// Result is what was found.
type Result struct {
	States     int
	Depth      int
	Took       time.Duration
	Exhausted  bool
	Violations []Finding
	// Stuck counts the states from which, with no fault and no user any more, no rest can be
	// reached in which all is as it should be.
	Stuck     int
	StuckHere *Finding
}

// Findings returns the violations, and the first state that is stuck.
func (r Result) Findings() []Finding {
	if r.StuckHere == nil {
		return r.Violations
	}
	return append(slices.Clone(r.Violations), *r.StuckHere)
}

// Finding is a promise that was broken, and the shortest way there, with a sentence for each move.
type Finding struct {
	Promise string
	Moves   []Move
	Trace   []string
}

// Options bound an exploration.
type Options struct {
	// MaxStates ends it before the bounds of the world are exhausted. Default: no such end.
	MaxStates int
	// Findings is after how many violations it ends. Default 1.
	Findings int
	// Progress is called about once a second, from one goroutine.
	Progress func(states, depth int)
}

const shards = 256

// explorer searches one world.
type explorer struct {
	seed   maphash.Seed
	known  [shards]shard
	states atomic.Uint32
	// parents and moves tell how each state was reached first, steps are the moves that need
	// neither users nor faults, as pairs of states.
	parents, codes []uint32
	steps          []uint32
	settled        []uint32
	mu             sync.Mutex
	findings       []found
}

type shard struct {
	mu     sync.Mutex
	number map[uint64]uint32
}

// found is a violation in a state, or in a move from there.
type found struct {
	in      uint32
	moves   []Move
	promise string
}

// node is a state of the frontier.
type node struct {
	number uint32
	code   []byte
}

// Explore searches a world breadth first until its bounds are exhausted, ctx ends or something is
// found. It uses all cores, with a Player for each.
func Explore(ctx context.Context, w World, o Options) Result {
	start := time.Now()
	e := newExplorer()
	visitors := make([]*Visitor, runtime.GOMAXPROCS(0))
	for i := range visitors {
		visitors[i] = &Visitor{explorer: e, player: w.Player()}
	}
	code := visitors[0].player.First()
	e.number(e.hash(code))
	e.parents, e.codes = []uint32{0}, []uint32{0}
	frontier, depth := []node{{0, code}}, 0
	said := start
	for len(frontier) > 0 && ctx.Err() == nil && len(e.findings) < max(o.Findings, 1) &&
		(o.MaxStates == 0 || len(e.parents) < o.MaxStates) {
		frontier = e.level(ctx, visitors, frontier)
		depth++
		if now := time.Now(); o.Progress != nil && now.Sub(said) > time.Second {
			o.Progress(len(e.parents), depth)
			said = now
		}
	}
	r := Result{States: len(e.parents), Depth: depth, Exhausted: len(frontier) == 0}
	for _, f := range e.findings {
		r.Violations = append(r.Violations, Finding{Promise: f.promise, Moves: append(e.path(f.in), f.moves...)})
	}
	if r.Exhausted && len(e.findings) == 0 {
		e.findStuck(&r)
	}
	r.Took = time.Since(start)
	r.tell(visitors[0].player)
	return r
}

// tell adds the traces of what was found.
func (r *Result) tell(p Player) {
	for i := range r.Violations {
		r.Violations[i].Trace = p.Trace(r.Violations[i].Moves)
	}
	if r.StuckHere != nil {
		r.StuckHere.Trace = p.Trace(r.StuckHere.Moves)
	}
}

func newExplorer() *explorer {
	e := &explorer{seed: maphash.MakeSeed()}
	for i := range e.known {
		e.known[i].number = map[uint64]uint32{}
	}
	return e
}

// level visits all states of the frontier and returns those that were found anew.
func (e *explorer) level(ctx context.Context, visitors []*Visitor, frontier []node) (next []node) {
	var at atomic.Int64
	var all sync.WaitGroup
	const chunk = 64
	for _, v := range visitors {
		all.Go(func() {
			for ctx.Err() == nil {
				to := int(at.Add(chunk))
				if to-chunk >= len(frontier) {
					return
				}
				for _, n := range frontier[to-chunk : min(to, len(frontier))] {
					v.now = n.number
					v.player.Visit(n.code, v)
				}
			}
		})
	}
	all.Wait()
	total := int(e.states.Load())
	e.parents = append(e.parents, make([]uint32, total-len(e.parents))...)
	e.codes = append(e.codes, make([]uint32, total-len(e.codes))...)
	for _, v := range visitors {
		for i, n := range v.fresh {
			e.parents[n.number], e.codes[n.number] = v.origin[i][0], v.origin[i][1]
		}
		next = append(next, v.fresh...)
		e.steps = append(e.steps, v.steps...)
		e.settled = append(e.settled, v.settled...)
		v.fresh, v.origin, v.steps, v.settled = nil, v.origin[:0], v.steps[:0], v.settled[:0]
	}
	return next
}

func (e *explorer) hash(code []byte) uint64 { return maphash.Bytes(e.seed, code) }

// number returns the number of a state, and whether it is new.
func (e *explorer) number(hash uint64) (n uint32, isNew bool) {
	s := &e.known[hash%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, known := s.number[hash]; known {
		return n, false
	}
	n = e.states.Add(1) - 1
	s.number[hash] = n
	return n, true
}

// path returns the moves that lead to a state.
func (e *explorer) path(to uint32) (moves []Move) {
	for ; to != 0; to = e.parents[to] {
		moves = append(moves, e.codes[to])
	}
	slices.Reverse(moves)
	return moves
}

// findStuck goes backwards from the states at rest along moves that need neither users nor
// faults. What it does not reach is stuck. Under fair scheduling what it reaches comes to rest:
// no move that stays possible is put off for ever.
func (e *explorer) findStuck(r *Result) {
	n := len(e.parents)
	begin := make([]uint32, n+1)
	for i := 1; i < len(e.steps); i += 2 {
		begin[e.steps[i]+1]++
	}
	for i := range n {
		begin[i+1] += begin[i]
	}
	before := make([]uint32, len(e.steps)/2)
	fill := slices.Clone(begin)
	for i := 0; i < len(e.steps); i += 2 {
		to := e.steps[i+1]
		before[fill[to]] = e.steps[i]
		fill[to]++
	}
	good := make([]bool, n)
	todo := slices.Clone(e.settled)
	for _, s := range todo {
		good[s] = true
	}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, from := range before[begin[s]:begin[s+1]] {
			if !good[from] {
				good[from] = true
				todo = append(todo, from)
			}
		}
	}
	for s, fine := range good {
		if fine {
			continue
		}
		r.Stuck++
		if r.StuckHere == nil {
			r.StuckHere = &Finding{Promise: "P5: no way leads to rest from here", Moves: e.path(uint32(s))}
		}
	}
}
