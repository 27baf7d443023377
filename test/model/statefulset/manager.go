package statefulset

// The StatefulSet controller of kube-controller-manager 1.36 (pkg/controller/statefulset) decides from its watch
// caches. Events of sets and pods wake it, events of claims do not. A sync is one move.

// watchesOfManager calls do with each change that its watches have not shown yet.
func (c *transition) watchesOfManager(do func(show func())) {
	m := &c.manager
	for name := range c.names() {
		if !c.sameSets(&m.seen, name) {
			do(func() { c.managerSeesSet(name) })
		}
		for n := range c.Ordinals {
			if m.seen.pods[name][n] != c.pods[name][n] {
				do(func() { c.managerSeesPod(name, n) })
			}
		}
	}
	for n := range c.Ordinals {
		if m.seen.claims[n] != c.claims[n] {
			do(func() { m.seen.claims[n] = c.claims[n] })
		}
	}
}

// sameSets reports whether a watch is up to date for the sets of a name.
func (c *transition) sameSets(seen *objects, name int) bool {
	for slot := range c.sets {
		if c.name(slot) == name && seen.sets[slot] != c.sets[slot] {
			return false
		}
	}
	return true
}

// showSets delivers the sets of a name to a watch.
func (c *transition) showSets(seen *objects, name int) {
	for slot := range c.sets {
		if c.name(slot) == name {
			seen.sets[slot] = c.sets[slot]
		}
	}
}

func (c *transition) managerSeesSet(name int) {
	c.showSets(&c.manager.seen, name)
	c.manager.woken[name] = true
}

func (c *transition) managerSeesPod(name, n int) {
	c.manager.seen.pods[name][n] = c.pods[name][n]
	c.manager.woken[name] = true
}

// managerStarts starts the controller with a list of the objects in the API server.
func (c *transition) managerStarts() {
	c.manager = manager{seen: c.objects}
	for slot, s := range c.sets {
		c.manager.woken[c.name(slot)] = c.manager.woken[c.name(slot)] || s.exists
	}
}

// managing makes the moves of the controller.
func (k *worker) managing(s *state) {
	c := k.transition(s)
	for name := range k.names() {
		k.Can(!c.sameSets(&s.manager.seen, name), move{managerSeesSet, 0, name},
			func(c *transition) { c.managerSeesSet(name) })
		for n := range k.Ordinals {
			k.Can(s.manager.seen.pods[name][n] != s.pods[name][n], move{managerSeesPod, name, n},
				func(c *transition) { c.managerSeesPod(name, n) })
		}
		k.Can(s.manager.woken[name] || s.manager.retries[name] && k.helps(s, name), move{managerSyncs, 0, name},
			func(c *transition) { c.sync(name) })
		k.Breaks(!s.manager.woken[name], &s.left.Sync, move{managerSyncsAgain, 0, name}, func(c *transition) { c.sync(name) })
	}
	for n := range k.Ordinals {
		k.Can(s.manager.seen.claims[n] != s.claims[n], move{managerSeesClaim, 0, n},
			func(c *transition) { c.manager.seen.claims[n] = c.claims[n] })
	}
	k.Breaks(true, &s.left.Manager, move{managerRestarts, 0, 0}, func(c *transition) { c.managerStarts() })
}

// helps reports whether another try changes the state.
func (k *worker) helps(s *state, name int) bool {
	c := k.transition(s)
	c.sync(name)
	return c.state != *s
}

// sync is one sync of the set of a name.
func (c *transition) sync(name int) {
	m := &c.manager
	m.woken[name], m.retries[name] = false, false
	slot := c.named(&m.seen, name)
	if slot < 0 {
		return
	}
	y := syncing{transition: c, slot: slot, name: name, set: m.seen.sets[slot], says: none}
	if c.managerGate {
		y.says = y.set.field
	}
	y.adopt()
	if !y.set.terminating {
		m.retries[name] = !y.run()
	}
}

// syncing is a sync in progress.
type syncing struct {
	*transition
	slot, name int
	set        set
	says       policy
	pods       [maxOrdinals]pod
}

// adopt takes the pods of the set from the cache, and pods without a controller (PodControllerRefManager.ClaimPods,
// which reads the set before it adopts).
func (y *syncing) adopt() {
	for n, p := range y.manager.seen.pods[y.name] {
		live := &y.transition.pods[y.name][n]
		switch {
		case p.uid == 0:
		case int(p.owner) == y.slot+1:
			y.pods[n] = p
		case p.owner == 0 && !p.terminating && !y.set.terminating && y.sets[y.slot].exists && !y.sets[y.slot].terminating &&
			live.uid == p.uid:
			live.owner = uint8(y.slot + 1)
			y.pods[n] = p
		}
	}
}

// run is updateStatefulSet. ok is false for an error, after which the set is tried again.
func (y *syncing) run() (ok bool) {
	for n := range y.Ordinals {
		if !y.set.inRange(n) {
			continue
		}
		if next, ok := y.replica(n); !ok || !next {
			return ok
		}
	}
	for n := y.Ordinals - 1; n >= 0; n-- {
		if p := y.pods[n]; p.uid > 0 && !y.set.inRange(n) && !y.own(n, p) {
			return false
		}
	}
	y.endCondemned()
	return true
}

// endCondemned deletes the pods that were scaled away, in order and one at a time with OrderedReady.
func (y *syncing) endCondemned() {
	unhealthy := y.firstUnhealthy()
	for n := y.Ordinals - 1; n >= 0; n-- {
		p := y.pods[n]
		switch {
		case p.uid == 0 || y.set.inRange(n):
		case p.terminating:
			if !y.Parallel {
				return
			}
		case !p.ready && !y.Parallel && n != unhealthy:
			return
		default:
			y.deletePod(y.name, n) // by its name alone
			if !y.Parallel {
				return
			}
		}
	}
}

// firstUnhealthy returns the ordinal of the first pod that is not available, replicas first.
func (y *syncing) firstUnhealthy() int {
	for _, inRange := range []bool{true, false} {
		for n := range y.Ordinals {
			p := y.pods[n]
			if y.set.inRange(n) == inRange && (inRange || p.uid > 0) && (!p.ready || p.terminating) {
				return n
			}
		}
	}
	return -1
}

// replica is processReplica. next reports whether the sync continues with the next ordinal.
func (y *syncing) replica(n int) (next, ok bool) {
	p := y.pods[n]
	if p.uid == 0 {
		if y.stale(n) {
			return y.Parallel, true
		}
		if !y.claimsExist(n) || y.transition.pods[y.name][n].uid > 0 {
			return false, false // the claim is terminating, or one of them exists already
		}
		y.createPod(y.slot, n)
		return y.Parallel, y.own(n, pod{})
	}
	if !p.ready && (!y.claimsExist(n) || !y.own(n, p)) {
		return false, false
	}
	if !y.Parallel && (p.terminating || !p.ready) {
		return false, true
	}
	return true, y.own(n, p)
}

// stale is PodClaimIsStale.
func (y *syncing) stale(n int) bool {
	if !y.says.scaled() {
		return false
	}
	for _, r := range y.manager.seen.claims[n].pods {
		if r.kind != noRef && int(r.name) == y.name {
			return true
		}
	}
	return false
}

// claimsExist is createPersistentVolumeClaims.
func (y *syncing) claimsExist(n int) bool {
	seen := y.manager.seen.claims[n]
	switch {
	case seen.uid > 0:
		return !seen.terminating
	case y.claims[n].uid > 0:
		return false
	}
	y.createClaim(n)
	return true
}

// own updates the owner references of a claim (UpdatePodClaimForRetentionPolicy).
func (y *syncing) own(n int, p pod) bool {
	seen := y.manager.seen.claims[n]
	if !y.managerGate || seen.uid == 0 || y.upToDate(seen, n, p) {
		return true
	}
	if y.claims[n] != seen {
		return false // it conflicts, or the claim is gone
	}
	y.claims[n] = y.updated(seen, n, p)
	return true
}

// upToDate is isClaimOwnerUpToDate.
func (y *syncing) upToDate(c claim, n int, p pod) bool {
	owned, byOther := y.owned(c, p), y.unexpected(c, p)
	switch {
	case y.hasStale(c, p):
		return true
	case byOther:
		return owned == [2]ref{}
	case owned[0] == plain, owned[1] == plain:
		return false
	}
	set, pod := y.wanted(n)
	return set == (owned[0] != noRef) && pod == (owned[1] != noRef)
}

// wanted reports whether the set and the pod should own a claim.
func (y *syncing) wanted(n int) (set, pod bool) {
	pod = y.says.scaled() && !y.set.inRange(n)
	return y.says.deleted() && !pod, pod
}

// owned returns the references to the set and to the pod.
func (y *syncing) owned(c claim, p pod) (refs [2]ref) {
	refs[0] = c.sets[y.slot]
	for _, r := range c.pods {
		if r.kind != noRef && int(r.name) == y.name && r.uid == p.uid {
			refs[1] = r.kind
		}
	}
	return refs
}

// hasStale is hasStaleOwnerRef of the set or the pod.
func (y *syncing) hasStale(c claim, p pod) bool {
	for slot, kind := range c.sets {
		if kind != noRef && y.transition.name(slot) == y.name && slot != y.slot {
			return true
		}
	}
	for _, r := range c.pods {
		if r.kind != noRef && int(r.name) == y.name && r.uid != p.uid {
			return true
		}
	}
	return false
}

// unexpected is hasUnexpectedController of a claim without stale references.
func (y *syncing) unexpected(c claim, p pod) bool {
	if y.says.keeps() {
		return false
	}
	for slot, kind := range c.sets {
		if kind == controller && y.transition.name(slot) != y.name {
			return true
		}
	}
	for _, r := range c.pods {
		if r.kind == controller && int(r.name) != y.name {
			return true
		}
	}
	return c.foreign == controller || y.hasStale(c, p)
}

// updated is updateClaimOwnerRefForSetAndPod.
func (y *syncing) updated(c claim, n int, p pod) claim {
	byOther := y.unexpected(c, p)
	for slot := range c.sets {
		if y.transition.name(slot) == y.name {
			c.sets[slot] = noRef
		}
	}
	var others [2]podRef
	for _, r := range c.pods {
		if r.kind != noRef && int(r.name) != y.name {
			others = withPod(others, r)
		}
	}
	c.pods = others
	if byOther {
		return c
	}
	set, pod := y.wanted(n)
	if set {
		c.sets[y.slot] = controller
	}
	if pod {
		c.pods = withPod(c.pods, podRef{controller, uint8(y.name), p.uid})
	}
	return c
}
