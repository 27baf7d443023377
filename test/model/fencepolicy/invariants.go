package fencepolicy

// notice records for the invariants the conditions that held at any moment since the decision.
func (c *transition) notice() {
	s := &c.session
	if s.of == 0 {
		return
	}
	n := c.nodes[s.of-1]
	s.mayRun = s.mayRun || !c.halts()
	s.mayBegin = s.mayBegin || c.room(int(s.of)-1, false)
	s.wasAway = s.wasAway || n.unreachable && n.cut
}

// halts reports whether the policy must fence no node, according to the watches: too many nodes are unreachable, a
// whole zone is, or all nodes are.
func (c *transition) halts() bool {
	all, away := len(c.Zones), 0
	zones, gone := map[byte]int{}, map[byte]int{}
	reached := false
	for i := range c.Zones {
		zones[c.Zones[i]]++
		reached = reached || !c.nodes[i].cut
		if c.nodes[i].seen {
			away++
			gone[c.Zones[i]]++
		}
	}
	for zone, n := range zones {
		if n > 1 && gone[zone] == n {
			return true
		}
	}
	many := func(away, of int) bool { return away*100 > c.Halt*of }
	lost, of := 0, 0
	for i := range c.Zones {
		if c.selects(i) {
			of++
			if c.nodes[i].seen {
				lost++
			}
		}
	}
	return !reached || many(away, all) || lost > 1 && many(lost, of)
}

// room reports whether one more node may be fenced. With byPolicyOnly, fences from people do not count.
func (c *transition) room(of int, byPolicyOnly bool) bool {
	all, zone := 0, 0
	for i := range c.Zones {
		switch {
		case c.nodes[i].fenced == notFenced, byPolicyOnly && c.nodes[i].fenced == byHand:
			continue
		case c.Zones[i] == c.Zones[of]:
			zone++
		}
		all++
	}
	return all < c.Max && zone < c.PerZone
}

// check checks the fence of a node for the policy. A person who fences another node at the same time answers for it.
func (c *transition) check(i int) {
	switch s := c.session; {
	case !c.selects(i):
		c.Violates("F2: node %d is fenced, and the policy does not select it", i)
	case !c.room(i, true):
		c.Violates("F2: node %d is fenced beyond the limits of the policy", i)
	case !s.mayBegin:
		c.Violates("F2: node %d is fenced, and the limits were reached all the time", i)
	case !s.mayRun:
		c.Violates("F2: node %d is fenced, and the policy was to fence none", i)
	case !s.wasAway:
		c.Violates("F2: node %d is fenced, and it was reachable", i)
	}
}

// unsettled returns the broken promise at rest, empty for none.
func (k *worker) unsettled(s *state) string {
	c := transition{World: k.World, state: *s}
	for i := range k.Zones {
		n := s.nodes[i]
		if n.cut && n.fenced == notFenced && c.selects(i) && !c.halts() && c.room(i, false) {
			return "F4: a node waits that may be fenced"
		}
	}
	return ""
}
