//go:build model

package claims

import (
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

// scene is a state that a move is changing.
type scene struct {
	*World
	machine *provision.Machine
	state
	// opened are the replicas that the move looked into or changed.
	opened memory.Opened[*provision.Replica]
	// wrong is the promise that the move broke, in words.
	wrong string
}

func (c *scene) violates(format string, args ...any) {
	if c.wrong == "" {
		c.wrong = fmt.Sprintf(format, args...)
	}
}

// Break marks that a fault has happened.
func (c *scene) Break() { c.faulted = true }

// replica opens what a replica knows.
func (c *scene) replica(i int) *provision.Replica { return c.opened.Open(c.machine, &c.knows, i) }

// close puts what the opened replicas know back into the state.
func (c *scene) close() { c.opened.Close(c.machine, &c.knows, 32) }

// room tells whether the watches can fall behind by one change more.
func (s *state) room(w *World) bool {
	for i := range w.Replicas {
		l := &s.lines[i]
		if w.Lag > 0 && l.up && int(max(l.nClaims, l.nPVs, l.nClasses)) >= w.Lag {
			return false
		}
	}
	return true
}

// write changes a claim at the API server. One that is terminating goes with its last finalizer.
func (c *scene) write(claim int, edit func(now *provision.ClaimView)) {
	now := c.claims[claim]
	edit(&now)
	now.Version++
	gone := now.Terminating && !now.Protected && !c.guarded[claim]
	if gone {
		c.claims[claim] = provision.ClaimView{}
	} else {
		c.claims[claim] = now
	}
	what := claimChange{uint8(claim), gone, now}
	for i := range c.Replicas {
		l := &c.lines[i]
		switch {
		case !l.up:
		case c.Lag == 0:
			c.showClaim(i, what)
		default:
			l.claims[l.nClaims] = what
			l.nClaims++
		}
	}
}

func (c *scene) showClaim(i int, what claimChange) {
	if what.gone {
		c.replica(i).LoseClaim(int(what.claim), what.now)
		return
	}
	c.replica(i).SeeClaim(int(what.claim), what.now)
}

// setPV changes a PV at the API server.
func (c *scene) setPV(name int, now pv) {
	c.pvs[name] = now
	for i := range c.Replicas {
		l := &c.lines[i]
		switch {
		case !l.up:
		case c.Lag == 0:
			c.replica(i).SeePV(name, now.view())
		default:
			l.pvs[l.nPVs] = pvChange{uint8(name), now}
			l.nPVs++
		}
	}
}

func (c *scene) setClass(there bool) {
	c.class = there
	for i := range c.Replicas {
		l := &c.lines[i]
		switch {
		case !l.up:
		case c.Lag == 0:
			c.replica(i).SeeClass(there)
		default:
			l.classes[l.nClasses] = there
			l.nClasses++
		}
	}
}

// start has a replica begin with lists of what the API server has. What was done before, it cannot
// know.
func (c *scene) start(i int) {
	c.lines[i] = line{up: true}
	r := c.machine.Fresh()
	c.opened[i] = r
	if c.class {
		r.SeeClass(true)
	}
	for name, p := range c.pvs {
		if p.exists() {
			r.SeePV(name, p.view())
		}
	}
	for claim, now := range c.claims {
		if now.Version != 0 {
			r.SeeClaim(claim, now)
		}
	}
}

// first is the state in which a world begins: with a class and the first claim.
func (w *World) first(m *provision.Machine) state {
	c := scene{World: w, machine: m}
	c.left = w.Budget
	c.class = true
	c.claims[0] = provision.ClaimView{Version: 1}
	c.born[0], c.guarded[0] = true, true
	for i := range w.Replicas {
		c.start(i)
	}
	c.replica(0).Lead()
	c.close()
	return c.state
}
