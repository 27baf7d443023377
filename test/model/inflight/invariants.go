package inflight

// allow lets an entry be stored as its callers want it, if the process is the leader.
func (c *transition) allow(i, n int) {
	if int(c.leader) == i+1 {
		c.wanted[n] |= 1 << c.processes[i].want[n]
	}
}

func (c *transition) allows(n int, value uint8) bool { return c.wanted[n]&(1<<value) != 0 }

// confirm tells the caller of a process that its entry is stored.
func (c *transition) confirm(i, n int) {
	if !c.processes[i].confirmed[n] {
		c.processes[i].confirmed[n], c.lost[n] = true, false
		c.settle(i, n)
	}
}

// settle is the moment from which an entry is stored as wanted, and not as it was before.
func (c *transition) settle(i, n int) {
	value := c.processes[i].want[n]
	switch found := c.processes[c.leader-1].inherited[n]; {
	case int(c.leader) == i+1:
		c.wanted[n] = 1 << value
	case found != value:
		c.Violates("L2: process %d confirms entry %s as %d, which process %d found as %d", i+1, keys[n], value,
			c.leader, found)
	}
}

// Settle returns the promise that the move broke.
func (c *transition) Settle() (to *state, wrong string) {
	for n, value := range whole(c.young, c.old) {
		if !c.lost[n] && !c.allows(n, value) {
			c.Violates("L1: entry %s is stored as %d", keys[n], value)
		}
	}
	return &c.state, c.Wrong
}

// unsettled returns the broken promise at rest, empty for none.
func unsettled(s *state) string {
	p := s.processes[s.leader-1]
	if p.does != idle {
		return ""
	}
	for n, value := range whole(s.young, s.old) {
		switch {
		case s.lost[n]:
		case value != p.want[n]:
			return "L3: entry " + keys[n] + " is not stored as wanted"
		case value != 0 && !p.confirmed[n], p.removing[n]:
			return "L3: entry " + keys[n] + " is not confirmed"
		}
	}
	return ""
}
