package joint

import "github.com/csi-reclaimer/csi-reclaimer/test/model/search"

// Player returns a Player of the world.
func (w *World) Player() search.Player { return newWorker(w) }

// worker visits states. Each goroutine has its own.
type worker struct {
	*World
	search.Plain[state, move, *transition]
	machine *machine
}

func newWorker(w *World) *worker {
	k := &worker{World: w, machine: newMachine(w)}
	k.Plain = search.Plain[state, move, *transition]{
		Begins: k.first, Copy: k.transition, Offer: k.moves, Rests: k.rests, Describe: w.describe,
	}
	return k
}

// transition returns a copy of a state for a change.
func (k *worker) transition(s *state) *transition {
	return &transition{World: k.World, machine: k.machine, state: *s}
}

// moves makes every possible move of a state.
func (k *worker) moves(s *state) {
	k.people(s)
	k.Cluster(func() {
		k.cluster(s)
		k.machines(s)
		k.guard(s)
	})
}

// transition is a copy of a state, under change by a move.
type transition struct {
	*World
	machine *machine
	state
	search.Verdict
}

// Settle makes the changes that follow a move at once, such as renewals of Leases by working kubelets, and returns the
// promise that the move broke.
func (c *transition) Settle() (to *state, wrong string) {
	n := &c.node
	n.lost = !n.there && (n.lost || !n.connected())
	if n.connected() && n.there {
		c.leaseChanges()
	}
	c.watchStorage()
	c.watchNode()
	c.showUse()
	c.check()
	return &c.state, c.Wrong
}

// watchStorage records whether the fence may keep node a from the volume, and whether the node is away (Storages.Saw
// and SawNode in the engine of the hold). Obstacles from before the end of the pod was seen do not matter.
func (c *transition) watchStorage() {
	shut, away := c.shut, c.away
	c.shut, c.away = c.machine.keepsVolume(c.fence), !c.nodeSeen(nodeA).Ready()
	switch {
	case c.sights[0].finished == never && c.completed[0] == never:
		c.opened = never
	case shut && !c.shut, away != c.away && c.Without != TheNode:
		c.opened = young
	}
}

// watchNode records the state of node a for the locks of completed pods.
func (c *transition) watchNode() {
	for slot, p := range c.pods {
		if p.exists && p.node == nodeA && p.ended && !p.terminating {
			c.machine.saw(c, slot)
		}
	}
}

// leaseChanges records a change of the Lease of node a.
func (c *transition) leaseChanges() {
	c.fence.renewed = c.fence.proven
	c.silent = never
	for slot := range c.sights {
		c.sights[slot].lease = never
	}
}

// writePod changes a pod at the API server. A terminating pod without grace goes with its last finalizer, which that of
// a deletion in the foreground can be.
func (c *transition) writePod(slot int, edit func(*pod)) {
	now := &c.pods[slot]
	edit(now)
	if now.terminating && now.graceZero && !now.held && !now.foreground {
		*now = pod{}
	}
	if !now.exists {
		c.sights[slot], c.completed[slot] = sight{}, never
		return
	}
	c.machine.saw(c, slot)
}

// editPod returns a change of a pod at the API server.
func editPod(slot int, edit func(*pod)) func(*transition) {
	return func(c *transition) { c.writePod(slot, edit) }
}

// first returns the initial state of a world: a pod runs on node a, and has the lock of its claim.
func (k *worker) first() state {
	s := state{left: k.Budget, node: node{boot: firstBoot, shown: firstBoot, there: true, ready: true},
		claim: claim{exists: true, lock: 1, kept: true, protected: true}}
	s.pods[0] = pod{exists: true, node: nodeA, held: true, statuses: running}
	s.processes[0] = process{node: nodeA, runs: true, mounted: true, known: true}
	if k.Unlocked || k.OptedIn || k.Attached {
		s.claim.lock, s.claim.kept = 0, false
	}
	s.claim.held = k.Ephemeral
	s.volume.onA, s.volume.inUse = k.Attached, k.Attached
	return s
}
