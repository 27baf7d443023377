package statefulset

import (
	"cmp"
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
)

// permitsBySet reports whether the set of a session permits the deletion of its claim because it was scaled away. It is
// called when the session reads the set, which has to be its last read.
func (c *transition) permitsBySet(n int, at *work) bool {
	if at.set == 0 {
		return false
	}
	slot := int(at.set - 1)
	return c.condemned(n, slot, &c.history[n].scaled) && !c.shared(&c.objects)
}

// condemned reports whether an existing set deletes a claim because it was scaled away, according to its policy now
// and, by the history, at a time when the claim had a pod.
func (c *transition) condemned(n, slot int, said *[maxSets]bool) bool {
	s := c.sets[slot]
	return s.exists && !s.terminating && s.says().scaled() && said[slot] && !s.inRange(n)
}

// permitsByPod reports the same for the pod of the session: it does not exist, or volume-guard does the work that
// kube-controller-manager does not.
func (c *transition) permitsByPod(n int, at *work) bool {
	p := c.pods[at.name][n]
	return p.uid == 0 || p.terminating && at.as.field == none
}

// checkDeletion checks the deletion of a claim by a session. The preconditions of the call make it exact for the claim.
// For set and pod, the reads of the session count.
func (c *transition) checkDeletion(n int, at *work) {
	live, h := c.claims[n], &c.history[n]
	switch {
	case live.uid != at.claim.uid:
		c.Violates("S2: claim %d is deleted, which is another than the one that was judged", n)
	case !at.setPermits:
		c.Violates("S1: claim %d is deleted, and the set that was read last keeps it", n)
	case !at.podPermits || at.setRead < at.podRead:
		c.Violates("S1: claim %d is deleted, and its pod remains, or was not read before the set", n)
	case live.hold:
		c.Violates("S1: claim %d is deleted although it has a hold", n)
	case live.foreign != noRef && !c.foreignGone:
		c.Violates("S1: claim %d is deleted, and another owner has it", n)
	case at.pod.uid == 0 && !h.grace:
		c.Violates("S1: claim %d is deleted without a grace period", n)
	}
}

// checkPatch checks the owner references that a session adds. The consequences for the claim are excused if the owner
// has gone since it was read.
func (c *transition) checkPatch(n int, at *work, patched claim) {
	live := c.claims[n]
	for slot, kind := range patched.sets {
		if kind != noRef && live.sets[slot] == noRef {
			c.checkSetOwner(n, slot, at)
		}
	}
	for _, r := range patched.pods {
		if r.kind != noRef && r != live.pods[0] && r != live.pods[1] {
			c.checkPodOwner(n, r, at)
		}
	}
}

func (c *transition) checkSetOwner(n, slot int, at *work) {
	h := &c.history[n]
	switch {
	case !h.had[slot]:
		c.Violates("S1: set %d is to own claim %d, which has not had a pod of it", slot, n)
	case int(at.set) != slot+1 || at.setRead == 0 || !at.as.says().deleted() || at.as.terminating:
		c.Violates("S1: set %d is to own claim %d, and the set as it was read does not say so", slot, n)
	}
	h.late = h.late || !c.sets[slot].exists || c.sets[slot].terminating
}

func (c *transition) checkPodOwner(n int, r podRef, at *work) {
	if !at.setPermits || at.podRead == 0 || at.podSeen != statefulset.Found || at.pod.uid != r.uid {
		c.Violates("S1: a pod is to own claim %d, and pod and set as they were read do not say so", n)
	}
	c.history[n].late = c.history[n].late || c.pods[r.name][n].uid != r.uid
}

// goesByPolicy reports whether a claim is being deleted because it was scaled away, or would be if a user had not
// deleted it before.
func (c *transition) goesByPolicy(n int) bool {
	at, h := c.claims[n], &c.history[n]
	ours := slices.ContainsFunc(at.pods[:], func(r podRef) bool { return r.kind == plain })
	return at.terminating && (h.byPolicy || h.late || ours && c.stalePod(n))
}

// checkPodDeletion checks the deletion of a pod by a session. The claim of its predecessor has to be in deletion by the
// policy, so that the pod does not run, or is about to lose its data.
func (c *transition) checkPodDeletion(n int, at *work) {
	p := c.pods[at.name][n]
	switch {
	case p.uid != at.pod.uid:
		c.Violates("S2: a pod of ordinal %d is deleted, which is another than the one that was read", n)
	case !at.claimPermits:
		c.Violates("S1: a pod of ordinal %d is deleted, and no policy has deleted its claim", n)
	case at.setRead == 0 || at.set == 0 || at.as.terminating || !at.as.inRange(n) || at.as.field != none ||
		!at.as.says().scaled():
		c.Violates("S1: a pod of ordinal %d is deleted, and the set as it was read does not say so", n)
	}
}

// checkCollection checks the deletion of a claim by the garbage collector, as far as it follows references of
// volume-guard, which lack controller=true.
func (c *transition) checkCollection(n int) {
	h := &c.history[n]
	held := h.held && c.claims[n].hold
	for _, r := range c.claims[n].pods {
		h.byPolicy = h.byPolicy || r.kind != noRef
		switch {
		case r.kind != plain || h.late:
		case held:
			c.Violates("S1: claim %d is collected after its pod although it has a hold", n)
		case !h.scaled[0] && !h.scaled[1]:
			c.Violates("S1: claim %d is collected after its pod, and its set keeps it", n)
		}
	}
	for slot, kind := range c.claims[n].sets {
		if kind == plain && !h.late {
			c.checkCollectionWith(n, slot)
		}
	}
}

func (c *transition) checkCollectionWith(n, slot int) {
	e := c.ends[slot]
	if c.sets[slot].exists {
		e.how, e.says = c.sets[slot].how, c.sets[slot].says()
	}
	switch {
	case e.how == orphan:
		c.Violates("S1: claim %d is collected, and its set was deleted without its dependents", n)
	case !c.history[n].deleted[slot]:
		c.Violates("S1: claim %d is collected, and its set has never said so since it had a pod", n)
	case e.atRest && !e.says.deleted():
		c.Violates("S1: claim %d is collected, and its set keeps it", n)
	case c.history[n].held && c.claims[n].hold:
		c.Violates("S1: claim %d is collected although it has a hold", n)
	}
}

// idle reports whether volume-guard has no work left.
func (k *worker) idle(s *state) bool {
	for i := range k.Replicas {
		l := &s.lines[i]
		if !l.up || l.seen != s.objects || l.setWoken != [maxSets]bool{} {
			return false
		}
		for n := range k.Ordinals {
			if l.sessions[n].on || l.woken[n] {
				return false
			}
		}
	}
	return true
}

// unsettled returns the broken promise at rest, empty for none.
func (k *worker) unsettled(s *state) string {
	c := k.transition(s)
	if c.shared(&s.objects) {
		return ""
	}
	for n := range k.Ordinals {
		if at := s.claims[n]; at.uid == 0 || at.terminating {
			continue
		}
		for slot := range s.sets {
			if wrong := cmp.Or(c.leftBehind(n, slot), c.needless(n, slot)); wrong != "" {
				return wrong
			}
		}
	}
	for slot := range s.sets {
		if wrong := k.incomplete(s, slot); wrong != "" {
			return wrong
		}
	}
	return ""
}

// incomplete returns the promise that a set breaks at rest, because it lacks a pod or has a needless annotation.
func (k *worker) incomplete(s *state, slot int) string {
	at, complete := s.sets[slot], k.transition(s).complete(slot)
	switch {
	case !at.exists || at.terminating:
	case !complete && !s.removing && !k.waitsForever(s, slot):
		return "L2: a set lacks a pod"
	case at.woken && (complete || s.removing):
		return "L3: a set that has its pods is still marked as woken"
	}
	return ""
}

// leftBehind returns the promise that requires the deletion of a claim, as far as a set is concerned.
func (c *transition) leftBehind(n, slot int) string {
	at, h, e := c.claims[n], &c.history[n], c.ends[slot]
	switch {
	case at.hold, at.foreign != noRef && !c.foreignGone, c.usedByOther(n, slot), c.removing, h.late:
	case c.Skew: // which is reported (ReasonContested)
	case c.pods[c.name(slot)][n].uid == 0 && c.condemned(n, slot, &h.mustScale):
		return "L1: a claim is left that was scaled away"
	case !c.sets[slot].exists && h.mustDelete[slot] && e.says.deleted() && (e.how == background || e.how == foreground):
		return "L1: a claim is left of a set that was deleted"
	}
	return ""
}

// needless returns the promise that a needless addition of volume-guard to a claim breaks, as far as a set is
// concerned.
func (c *transition) needless(n, slot int) string {
	at, s := c.claims[n], c.sets[slot]
	marked := int(at.mark.set) == slot+1
	switch {
	case c.Replicas == 0:
	case c.removing && (at.mark.set > 0 || at.sets[slot] == plain):
		return "L3: a claim has what was to be removed"
	case marked && at.mark.of != at.uid:
		return "L3: a claim has the mark of another one"
	case marked && c.needsNoMark(n, slot):
		return "L3: a claim has a mark that nothing needs"
	case !s.exists, s.terminating:
	case at.sets[slot] == plain && !s.says().deleted():
		return "L3: a claim has an owner that its set does not want"
	case s.inRange(n) && slices.Contains(at.pods[:], podRef{plain, uint8(c.name(slot)), c.pods[c.name(slot)][n].uid}):
		return "L3: a claim is owned by a pod that is in range"
	}
	return ""
}

// needsNoMark reports whether the mark of a set on a claim serves no purpose.
func (c *transition) needsNoMark(n, slot int) bool {
	s := c.sets[slot]
	return !s.exists && c.claims[n].sets[slot] == noRef || s.exists && s.says().keeps()
}

// usedByOther reports whether a pod of another name uses a claim.
func (c *transition) usedByOther(n, slot int) bool {
	return c.Collide && c.pods[1-c.name(slot)][n].uid > 0
}

// complete reports whether a set has its pods, each with its claim. If no claims are deleted, the scheduler reports a
// pod without a claim, which wakes the StatefulSet controller.
func (c *transition) complete(slot int) bool {
	s := c.sets[slot]
	for n := range c.Ordinals {
		p := c.pods[c.name(slot)][n]
		if s.inRange(n) && (int(p.owner) != slot+1 || c.claims[n].uid == 0 && s.says().scaled()) {
			return false
		}
	}
	return true
}

// waitsForever reports whether a set waits for a person: a pod is bound to a node, and does not start because its claim
// is being deleted (ReasonPodUsesTerminatingClaim), or a claim that is being deleted is used by a pod of another set
// (ReasonOldClaimRemains).
func (k *worker) waitsForever(s *state, slot int) bool {
	c := k.transition(s)
	for n := range k.Ordinals {
		p := s.pods[k.name(slot)][n]
		switch {
		case !s.claims[n].terminating:
		case c.usedByOther(n, slot):
			return true
		case p.uid > 0 && p.bound && !k.inOurHands(s, slot, n):
			return !k.Parallel
		}
	}
	return false
}

// inOurHands reports whether volume-guard deletes such a pod, as it does if it carries out the policy.
func (k *worker) inOurHands(s *state, slot, n int) bool {
	return s.sets[slot].field == none && s.sets[slot].says().scaled() && s.history[n].byPolicy && !s.removing
}
