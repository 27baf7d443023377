package joint

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
)

// collectGarbage makes the moves of the garbage collector with a claim that the first pod controls. It deletes the
// claim of a pod that is gone, or that is deleted in the foreground. The claim blocks that deletion (BlockOwnerDeletion
// in pkg/controller/volume/ephemeral).
func (k *worker) collectGarbage(s *state) {
	owner, at := s.pods[0], s.claim
	goes := !owner.exists || owner.foreground
	k.Can(at.exists && !at.terminating && goes, move{claimIsCollected, 0}, func(c *scene) { c.claim.terminating = true })
	k.Can(owner.foreground && !at.exists, move{podIsUnblocked, 0},
		func(c *scene) { c.writePod(0, func(p *pod) { p.foreground = false }) })
}

// unprotect makes the move of Kubernetes' own pvc-protection. Its user is a pod on a node, and for the claim of a
// generic ephemeral volume only as long as the pod has grace (podIsShutDown in pkg/controller/volume/pvcprotection).
func (k *worker) unprotect(s *state) {
	used := false
	for _, p := range s.pods {
		used = used || p.exists && p.node > 0 && (!k.Ephemeral || !p.terminating || !p.graceZero)
	}
	k.Can(s.claim.terminating && s.claim.protected && !used, move{claimIsUnprotected, 0},
		func(c *scene) { c.claim.protected = false })
}

// holdClaim is a session of the hold about the claim of a generic ephemeral volume.
func (c *scene) holdClaim() {
	m := c.machine
	f := podsafety.ClaimFacts{Claim: m.claim(c.claim).hold, Mode: podsafety.ModeEnforce, Pod: m.pod(0, c.pods[0])}
	action := podsafety.DecideClaim(f, m.now)
	if action == podsafety.ReadClaimPod {
		f.PodRead = session.Read{Sent: m.now, Order: 1}
		action = podsafety.DecideClaim(f, m.now)
	}
	switch action {
	case podsafety.HoldClaim:
		c.claim.held = true
	case podsafety.ReleaseClaim:
		c.claim.held = false
	default:
	}
}

// protect is a session of pvc-protection about the claim, in place of Kubernetes' own controller.
func (c *scene) protect() {
	if !c.claim.exists {
		return
	}
	var users []pvc.Pod
	for slot, p := range c.pods {
		if p.exists {
			users = append(users, c.machine.user(slot, p))
		}
	}
	f := pvc.Facts{Duty: inuse.Duty{Mode: inuse.ModeFull, Alone: true}, Ended: pvc.ReleaseTerminated,
		Claim: c.machine.claim(c.claim).protection}
	f.Seen = pvc.UsageOf(f.Claim, users)
	d := pvc.Decide(f)
	if d.Action == inuse.ReadUsers {
		f.Read = pvc.Reading{Made: true, Usage: f.Seen}
		d = pvc.Decide(f)
	}
	switch d.Action {
	case inuse.AddFinalizer:
		c.claim.protected = true
	case inuse.RemoveFinalizer:
		c.claim.protected = false
	default:
	}
}
