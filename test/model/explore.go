//go:build model

package model

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// Result is what the exploration of a world found.
type Result struct {
	World      *World
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

// Finding is a promise that was broken, and the shortest way there.
type Finding struct {
	Promise string
	Moves   []move
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
	*World
	options Options
	seed    maphash.Seed
	known   [shards]shard
	states  atomic.Uint32
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

// found is a violation in a move from a state.
type found struct {
	from    uint32
	move    move
	promise string
}

// node is a state of the frontier.
type node struct {
	number uint32
	code   []byte
}

// Explore searches the world breadth first until its bounds are exhausted, ctx ends or
// something is found. It uses all cores.
func Explore(ctx context.Context, w *World, o Options) Result {
	start := time.Now()
	e := newExplorer(w, o)
	workers := make([]*worker, runtime.GOMAXPROCS(0))
	for i := range workers {
		workers[i] = newWorker(e)
	}
	root := w.first(workers[0].machine)
	code := root.encode(nil)
	e.number(e.hash(code))
	e.parents, e.codes = []uint32{0}, []uint32{0}
	frontier, depth := []node{{0, code}}, 0
	said := start
	for len(frontier) > 0 && ctx.Err() == nil && len(e.findings) < max(o.Findings, 1) && (o.MaxStates == 0 || len(e.parents) < o.MaxStates) {
		frontier = e.level(ctx, workers, frontier)
		depth++
		if now := time.Now(); o.Progress != nil && now.Sub(said) > time.Second {
			o.Progress(len(e.parents), depth)
			said = now
		}
	}
	r := Result{World: w, States: len(e.parents), Depth: depth, Exhausted: len(frontier) == 0}
	for _, f := range e.findings {
		r.Violations = append(r.Violations, Finding{f.promise, append(e.path(f.from), f.move)})
	}
	if r.Exhausted && len(e.findings) == 0 {
		e.findStuck(&r)
	}
	r.Took = time.Since(start)
	return r
}

func newExplorer(w *World, o Options) *explorer {
	e := &explorer{World: w, options: o, seed: maphash.MakeSeed()}
	for i := range e.known {
		e.known[i].number = map[uint64]uint32{}
	}
	return e
}

// level visits all states of the frontier and returns those that were found anew.
func (e *explorer) level(ctx context.Context, workers []*worker, frontier []node) (next []node) {
	var at atomic.Int64
	var all sync.WaitGroup
	const chunk = 64
	for _, k := range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				to := int(at.Add(chunk))
				if to-chunk >= len(frontier) {
					return
				}
				for _, n := range frontier[to-chunk : min(to, len(frontier))] {
					k.visit(n)
				}
			}
		})
	}
	all.Wait()
	total := int(e.states.Load())
	e.parents = append(e.parents, make([]uint32, total-len(e.parents))...)
	e.codes = append(e.codes, make([]uint32, total-len(e.codes))...)
	for _, k := range workers {
		for i, n := range k.fresh {
			e.parents[n.number], e.codes[n.number] = k.origin[i][0], k.origin[i][1]
		}
		next = append(next, k.fresh...)
		e.steps = append(e.steps, k.steps...)
		e.settled = append(e.settled, k.settled...)
		k.fresh, k.origin, k.steps, k.settled = nil, k.origin[:0], k.steps[:0], k.settled[:0]
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
func (e *explorer) path(to uint32) (moves []move) {
	for ; to != 0; to = e.parents[to] {
		moves = append(moves, moveOf(e.codes[to]))
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
			r.StuckHere = &Finding{"P5: no way leads to rest from here", e.path(uint32(s))}
		}
	}
}

// worker visits states. Each goroutine has its own.
type worker struct {
	*explorer
	machine *reclaim.Machine
	now     node
	s       *state
	looked  [maxReplicas]*reclaim.Replica
	buffer  []byte
	// clusterMoves: one of Kubernetes' controllers can do something.
	clusterMoves, inCluster bool
	fresh                   []node
	origin                  [][2]uint32
	steps, settled          []uint32
	// followed, if set, is the only move that is made; result is where it leads.
	followed *move
	result   *state
	broken   string
}

func newWorker(e *explorer) *worker {
	return &worker{explorer: e, machine: e.newMachine()}
}

func (w *World) newMachine() *reclaim.Machine {
	names := make([]string, 0, maxPVs)
	for _, def := range w.PVs {
		names = append(names, def.Name)
	}
	return reclaim.NewMachine(reclaim.Rules{Driver: driver, Role: w.Role, ReclaimUnprotected: true}, names, w.vocabulary())
}

// look returns what a replica knows, to look at only.
func (k *worker) look(s *state, i int) *reclaim.Replica {
	if k.looked[i] == nil {
		k.looked[i], _ = k.machine.Decode(s.knows[i])
	}
	return k.looked[i]
}

func (k *worker) visit(n node) {
	s := decode(n.code)
	k.now, k.s = n, &s
	k.moves(&s)
	if k.followed != nil || !k.rests(&s) {
		return
	}
	switch wrong := k.unsettled(&s); {
	case wrong == "":
		k.settled = append(k.settled, n.number)
	case !k.comesBack(&s):
		k.find(found{k.parents[n.number], moveOf(k.codes[n.number]), wrong})
	}
}

// moves makes every move that is possible in a state.
func (k *worker) moves(s *state) {
	for i, r := range k.looked {
		if r != nil {
			k.machine.Release(r)
			k.looked[i] = nil
		}
	}
	room := s.room(k.World)
	if room {
		k.users(s)
	}
	k.clusterMoves, k.inCluster = !room, true
	if room {
		k.cluster(s)
	}
	k.inCluster = false
	for i := range k.Replicas {
		k.sidecar(s, i)
	}
	k.arrivesLate(s)
}

func (k *worker) find(f found) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.findings = append(k.findings, f)
}

// can makes a move that needs neither a user nor a fault.
func (k *worker) can(possible bool, m move, do func(*scene)) {
	if possible {
		k.clusterMoves = k.clusterMoves || k.inCluster
		k.make(m, true, do)
	}
}

// if_ makes a user's move, if the budget has any left.
func (k *worker) if_(possible bool, left uint8, m move, do func(*scene)) {
	if possible && left > 0 {
		k.make(m, false, do)
	}
}

// breaks makes a move that is a fault.
func (k *worker) breaks(possible bool, left uint8, m move, do func(*scene)) {
	if possible && left > 0 {
		k.make(m, false, func(n *scene) {
			n.faulted = true
			do(n)
		})
	}
}

func (k *worker) make(m move, step bool, do func(*scene)) {
	if k.followed != nil && *k.followed != m {
		return
	}
	n := scene{World: k.World, machine: k.machine, state: *k.s}
	do(&n)
	n.close()
	if k.followed != nil {
		k.result, k.broken = &n.state, n.wrong
		return
	}
	if n.wrong != "" {
		k.find(found{k.now.number, m, n.wrong})
		return
	}
	k.buffer = n.encode(k.buffer[:0])
	number, isNew := k.number(k.hash(k.buffer))
	if isNew {
		k.fresh = append(k.fresh, node{number, slices.Clone(k.buffer)})
		k.origin = append(k.origin, [2]uint32{k.now.number, m.code()})
	}
	if step {
		k.steps = append(k.steps, k.now.number, number)
	}
}

// encode appends the state to b.
func (s *state) encode(b []byte) []byte {
	b = append(b, unsafe.Slice((*byte)(unsafe.Pointer(&s.world)), unsafe.Sizeof(s.world))...)
	for _, known := range s.knows {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(known)))
		b = append(b, known...)
	}
	return b
}

func decode(b []byte) (s state) {
	size := int(unsafe.Sizeof(s.world))
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&s.world)), size), b)
	b = b[size:]
	for i := range s.knows {
		n := int(binary.LittleEndian.Uint16(b))
		if n > 0 {
			s.knows[i] = b[2 : 2+n : 2+n]
		}
		b = b[2+n:]
	}
	return s
}
