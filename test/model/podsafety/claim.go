package podsafety

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
)

func (s *state) claimView() claimView { return claimView{s.claim, s.claimGoes, s.claimHeld} }

// showClaim delivers the state of the claim of a generic ephemeral volume to the watch of a replica.
func (c *transition) showClaim(i int) {
	if c.Ephemeral && c.lines[i].up {
		c.lines[i].claim = c.claimView()
	}
}

// claimFacts returns the facts about the claim, which the first pod controls, from the watches of a replica.
func (k *worker) claimFacts(s *state, i int) podsafety.ClaimFacts {
	l := &s.lines[i]
	f := podsafety.ClaimFacts{Mode: podsafety.ModeEnforce}
	if l.claim.exists {
		f.Claim = podsafety.Claim{Namespace: "ns", Name: "db-data", UID: "claim", Pod: "db", PodUID: uidOf(0),
			Held: l.claim.held, Terminating: l.claim.goes}
	}
	for slot := range k.Pods {
		if l.pods[slot].known {
			f.Pod = k.machine.pod(slot, l.pods[slot].pod, s.graceOver[slot])
		}
	}
	return f
}

// claimStep reports whether a replica has work about the claim. A write without an effect is none.
func (k *worker) claimStep(s *state, i int) bool {
	switch podsafety.DecideClaim(k.claimFacts(s, i), k.machine.now) {
	case podsafety.HoldClaim:
		return s.claim && !s.claimGoes && !s.claimHeld
	case podsafety.ReadClaimPod, podsafety.ReleaseClaim:
		return s.claimHeld
	default:
		return false
	}
}

// settleClaim carries out the next step about the claim, and the step after a read.
func (c *transition) settleClaim(i int) {
	k := worker{World: c.World, machine: c.machine}
	f := k.claimFacts(&c.state, i)
	action := podsafety.DecideClaim(f, c.machine.now)
	if action == podsafety.ReadClaimPod {
		at := c.named(0)
		f.Pod = objects.Pod{}
		if at >= 0 {
			f.Pod = c.machine.pod(at, c.pods[at], c.graceOver[at])
		}
		f.PodRead = clock.ReadAt(1)
		if action = podsafety.DecideClaim(f, c.machine.now); action == podsafety.AwaitPod {
			c.showPod(i, at)
		}
	}
	switch action {
	case podsafety.HoldClaim:
		c.writeClaim(func(s *state) { s.claimHeld = true })
	case podsafety.ReleaseClaim:
		c.writeClaim(func(s *state) { s.claimHeld = false })
	default:
	}
}
