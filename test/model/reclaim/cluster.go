package reclaim

import (
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// cluster are the moves of Kubernetes' own controllers. Their writes carry the
// resourceVersion that they have read, so that a cache of PVs that lags only delays them; that
// of claims does more (pkg/controller/volume/persistentvolume/pv_controller.go, syncVolume).
func (k *worker) cluster(s *state) {
	for slot := range k.PVs {
		k.pvController(s, slot)
		p := s.pvs[slot]
		k.Can(p.is(protected) && p.is(terminating) && !p.bound(), move{protectionRemovesFinalizer, 0, slot},
			written(aController, slot, func(p *pv) { p.clear(protected) }))
		k.Can(s.attachments[slot] && p.exists() && !p.is(attached) && !p.is(terminating), move{attacherMarks, 0, slot},
			written(aController, slot, func(p *pv) { p.set(attached) }))
		inUse := s.claims[slot].bound && p.belongs(s.claims[slot].gen)
		k.Can(s.attachments[slot] && !inUse, move{podDetaches, 0, slot}, func(n *transition) {
			n.attach(slot, false)
		})
		k.Can(!s.attachments[slot] && p.is(attached) && p.is(terminating), move{attacherRemovesFinalizer, 0, slot},
			written(aController, slot, func(p *pv) { p.clear(attached) }))
		if k.Peer {
			k.peer(s, slot)
		}
	}
}

func (k *worker) pvController(s *state, slot int) {
	p, live, cached := s.pvs[slot], s.claims[slot], s.cached[slot]
	k.Can(live != cached, move{controllerSeesClaim, 0, slot}, func(n *transition) { n.cached[slot] = live })
	if !p.exists() {
		return
	}
	k.Can(!p.claimed() && p.phase != volume.PhaseAvailable, move{controllerMakesAvailable, 0, slot},
		written(aController, slot, func(p *pv) { p.phase = volume.PhaseAvailable }))
	// What the cache does not show is asked of the API server before a PV is released.
	k.Can(p.claimed() && !p.released() && !p.belongs(cached.gen) && !p.belongs(live.gen),
		move{controllerReleases, 0, slot},
		written(aController, slot, func(p *pv) { p.phase = volume.PhaseReleased }))
	k.User(p.bound() && p.belongs(live.gen), &s.left.Misjudge, move{controllerMisjudges, 0, slot},
		written(aController, slot, func(p *pv) { p.phase = volume.PhaseReleased }))
	k.bind(s, slot)
}

// bind has the PV controller bind a PV and its claim, the claim last. The controller trusts its cache, and finds
// no terminating PV for a claim that names none (FindMatchingVolume).
func (k *worker) bind(s *state, slot int) {
	p, live, cached := s.pvs[slot], s.claims[slot], s.cached[slot]
	fits := live.gen != 0 && !live.bound && p.belongs(live.gen) && !p.is(terminating)
	k.Can(!p.bound() && (fits || p.belongs(cached.gen) && cached.bound), move{controllerBinds, 0, slot},
		written(aController, slot, func(p *pv) { p.phase = volume.PhaseBound }))
	k.Can(p.phase == volume.PhaseAvailable && !p.claimed() && !p.is(terminating) && cached.gen != 0 && !cached.bound &&
		live.gen == cached.gen, move{controllerClaims, 0, slot},
		written(aController, slot, func(p *pv) { p.claim = claimRef(cached.gen) }))
	k.Can(fits && p.bound(), move{controllerCompletes, 0, slot}, func(n *transition) {
		n.setClaim(slot, claim{live.gen, true})
	})
}

// peer is a provisioner without KEP-2644: it removes the owner's finalizer, and deletes
// released volumes while their PV is there, its own cache up to date.
func (k *worker) peer(s *state, slot int) {
	p, volume := s.pvs[slot], k.volume(slot)
	due := p.deletable() && !p.is(terminating) && !s.attachments[slot]
	k.Can(p.is(ours), move{peerStrips, 0, slot}, written(thePeer, slot, func(p *pv) { p.clear(ours) }))
	k.Can(due && s.volumes[volume], move{peerDeletesVolume, 0, slot}, func(n *transition) { n.volumes[volume] = false })
	k.Can(due && !s.volumes[volume], move{peerDeletesPV, 0, slot}, func(n *transition) { n.remove(thePeer, slot) })
}
