package pvc

import "slices"

// claimChanges handles the watch events of claims.
type claimChanges struct{ *Protector }

func (c claimChanges) Added(now *Claim) { c.Guard.Added(*now) }

func (c claimChanges) Updated(before, now *Claim) {
	if before.UID != now.UID {
		c.batches.forget(before.UID)
	}
	c.Guard.Updated(*before, *now)
}

func (c claimChanges) Deleted(last *Claim, final bool) {
	c.batches.forget(last.UID)
	c.Guard.Deleted(*last, final)
}

// podChanges handles the watch events of pods that may use claims. A pod that begins or ceases to use a claim matters:
// it is scheduled, has ended, is shut down, is gone, or is another pod of the same name.
type podChanges struct{ *Protector }

func (c podChanges) Added(now *Pod) {
	c.users.add(now)
	c.enqueueClaims(now)
}

func (c podChanges) Updated(before, now *Pod) {
	c.users.replace(before, now)
	if before.same(now) {
		return
	}
	c.enqueueClaims(before)
	c.enqueueClaims(now)
}

func (c podChanges) Deleted(last *Pod, _ bool) {
	c.users.remove(last)
	c.enqueueClaims(last)
}

// same reports whether two states of a pod use the same claims in the same way.
func (p *Pod) same(as *Pod) bool {
	return p.UID == as.UID && p.Scheduled == as.Scheduled && p.Ended == as.Ended && p.ShutDown == as.ShutDown &&
		slices.Equal(p.Claims, as.Claims) && slices.Equal(p.Ephemeral, as.Ephemeral)
}

// enqueueClaims enqueues the terminating claims of a pod, because its change does not affect the other claims.
func (c podChanges) enqueueClaims(p *Pod) {
	for _, key := range p.names() {
		if claim, found := c.claims.Get(key); found && claim.Terminating {
			c.Enqueue(key)
		}
	}
}
