package intree

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// cluster are the moves of Kubernetes' own controllers, and of the sidecar that answers for PVs that
// are migrated.
func (k *worker) cluster(s *state) {
	k.Can(s.seen != s.claims, move{controllerLearns, 0, 0}, func(n *transition) { n.seen = n.claims })
	k.Breaks(s.operations != [maxSlots]operation{}, &s.left.Controller, move{controllerEnds, 0, 0},
		func(n *transition) { n.operations = [maxSlots]operation{} })
	k.Can(s.attached, move{nodeDetaches, 0, 0}, func(n *transition) { n.attached = false })
	for slot := range 2 * len(k.PVs) {
		p := s.pvs[slot]
		k.Can(p.exists() && p.Terminating && p.inUse && p.Phase != volume.PhaseBound,
			move{protectionRemovesFinalizer, 0, slot},
			written(slot, func(p *pv) { p.inUse = false }))
		k.operate(s, slot)
		if !p.exists() {
			continue
		}
		if v, stale, do := k.sync(s, slot); do != nil {
			m := move{v, 0, slot}
			if stale {
				k.Breaks(true, &s.left.Stale, m, do)
			} else {
				k.Can(true, m, do)
			}
		}
		k.bind(s, slot)
		k.sidecar(s, slot)
	}
}

// fate is what the PV controller finds of a PV's claim.
type fate uint8

const (
	gone fate = iota
	unbound
	boundHere
	boundElsewhere
)

// fateOf is what the PV controller finds, and whether its cache misleads it. It reads live what it does
// not find, or finds with another UID (syncVolume in pv_controller.go).
func (k *worker) fateOf(s *state, slot int) (f fate, stale bool) {
	p := s.pvs[slot]
	found, seen := k.named(&s.seen, k.claimName(slot, p)), s.seen
	if found != p.Claim {
		found, seen = k.named(&s.claims, k.claimName(slot, p)), s.claims
	}
	if found != p.Claim {
		return gone, false
	}
	stale = seen[found-1] != s.claims[found-1]
	switch volume := int(seen[found-1].volume); volume {
	case 0:
		return unbound, stale
	case slot + 1:
		return boundHere, stale
	}
	return boundElsewhere, stale
}

// sync is what the PV controller does when it works on a PV, one write at a time; do is nil for nothing.
func (k *worker) sync(s *state, slot int) (v verb, stale bool, do func(*transition)) {
	p := s.pvs[slot]
	if s.modern && k.provisioned(slot) {
		edit, refused := managed(p)
		switch {
		case edit != nil:
			return controllerManages, false, written(slot, edit)
		case refused:
			return "", false, nil
		}
	}
	if p.Claim == 0 {
		return controllerFrees, false, inPhase(slot, p, volume.PhaseAvailable)
	}
	return k.syncClaimed(s, slot)
}

// written returns a write of a PV that is not ours.
func written(slot int, edit func(*pv)) func(*transition) {
	return func(n *transition) { n.write(slot, others, edit) }
}

// inPhase returns the PV controller's write of a phase, nil if the PV has it.
func inPhase(slot int, p pv, phase volume.Phase) func(*transition) {
	if p.Phase == phase {
		return nil
	}
	return written(slot, func(p *pv) { p.Phase = phase })
}

// syncClaimed is sync for a PV with a claimRef.
func (k *worker) syncClaimed(s *state, slot int) (v verb, stale bool, do func(*transition)) {
	p := s.pvs[slot]
	f, stale := k.fateOf(s, slot)
	switch {
	case f == unbound:
		return "", false, nil
	case f == boundHere:
		return controllerBinds, stale, inPhase(slot, p, volume.PhaseBound)
	case f == boundElsewhere && (!k.provisioned(slot) || !p.deletes()):
		return controllerUnbinds, stale, written(slot, func(p *pv) { p.Claim = 0 })
	case !p.released():
		return controllerReleases, stale, inPhase(slot, p, volume.PhaseReleased)
	case !p.deletes() || p.Migrated || s.operations[slot] != noOperation || p.Terminating && !s.modern:
		return "", false, nil
	}
	return controllerBegins, stale, func(n *transition) { n.operations[slot] = begun }
}

// managed is what the PV controller changes of the finalizers from 1.31 on (modifyDeletionFinalizers).
// refused: the API server takes no new finalizer on a PV that is being deleted, and nothing else is
// done.
func managed(p pv) (edit func(*pv), refused bool) {
	switch {
	case p.Migrated && p.Writer != intree.WriterNone, !p.Migrated && !p.deletes() && p.Writer != intree.WriterNone:
		return func(p *pv) { p.Writer, p.External = intree.WriterNone, p.External && p.Migrated }, false
	case p.Migrated:
	case p.deletes() && p.Writer == intree.WriterNone && p.Terminating:
		return nil, true
	case p.deletes() && p.Writer == intree.WriterNone:
		return func(p *pv) { p.Writer, p.External = intree.WriterOther, false }, false
	case p.External:
		return func(p *pv) { p.External = false }, false
	}
	return nil, false
}

// operate is the deletion that the PV controller has begun (deleteVolumeOperation).
func (k *worker) operate(s *state, slot int) {
	p := s.pvs[slot]
	switch s.operations[slot] {
	case begun:
		if !p.exists() || p.Terminating && !s.modern || p.Claim == 0 || !k.releasedStill(s, slot) {
			k.Can(true, move{controllerRefrains, 0, slot}, func(n *transition) { n.operations[slot] = noOperation })
			return
		}
		k.Can(true, move{pluginDeletes, 0, slot}, func(n *transition) {
			n.checkDeletion(slot)
			n.disks[n.disk(slot)] = false
			n.operations[slot] = deleted
		})
		k.Breaks(true, &s.left.Plugin, move{pluginFails, 0, slot}, func(n *transition) {
			n.operations[slot] = noOperation
			n.write(slot, others, func(p *pv) { p.Phase = volume.PhaseFailed })
		})
	case deleted:
		k.Can(true, move{controllerDeletesPV, 0, slot}, func(n *transition) {
			n.operations[slot] = noOperation
			if !p.exists() {
				return
			}
			n.write(slot, others, func(p *pv) {
				p.Terminating = true
				if n.modern {
					p.Writer = intree.WriterNone
				}
			})
		})
	case noOperation:
	}
}

// releasedStill looks into the PV controller's cache once more (isVolumeReleased).
func (k *worker) releasedStill(s *state, slot int) bool {
	p := s.pvs[slot]
	if k.named(&s.seen, k.claimName(slot, p)) != p.Claim {
		return true
	}
	volume := int(s.seen[p.Claim-1].volume)
	return volume != 0 && volume != slot+1
}

// bind gives a PV without a claim to one of its name, in whatever phase it is unless it is terminating
// (FindMatchingVolume), one write at a time: the claim learns of it last (bind in pv_controller.go).
func (k *worker) bind(s *state, slot int) {
	p := s.pvs[slot]
	uid := k.named(&s.claims, k.claimName(slot, p))
	if uid == 0 || s.claims[uid-1].volume != 0 || p.Terminating {
		return
	}
	switch {
	case p.Claim == 0:
		k.Can(true, move{controllerGives, 0, slot}, written(slot, func(p *pv) { p.Claim = uid }))
	case p.Claim != uid:
	case p.Phase != volume.PhaseBound:
		k.Can(true, move{controllerBinds, 0, slot}, written(slot, func(p *pv) { p.Phase = volume.PhaseBound }))
	default:
		k.Can(true, move{controllerTellsClaim, 0, slot}, func(n *transition) {
			now := n.claims[uid-1]
			now.volume = uint8(slot + 1)
			n.setClaim(int(uid-1), now)
		})
	}
}

// sidecar is the one of a CSI driver, for PVs that are migrated: simple and faithful.
func (k *worker) sidecar(s *state, slot int) {
	p := s.pvs[slot]
	if !p.Migrated || isTwin(slot) {
		return
	}
	over := p.deletes() && p.released() && p.Claim > 0 && k.named(&s.claims, k.claimName(slot, p)) != p.Claim && !p.Held
	k.Can(p.deletes() && !p.External && !p.Terminating, move{sidecarProtects, 0, slot},
		written(slot, func(p *pv) { p.External = true }))
	k.Can(p.External && !p.deletes(), move{sidecarLetsGo, 0, slot}, written(slot, func(p *pv) { p.External = false }))
	k.Can(over && p.External && s.disks[k.disk(slot)], move{sidecarDeletes, 0, slot},
		func(n *transition) { n.disks[n.disk(slot)] = false })
	k.Can(over && p.External && !s.disks[k.disk(slot)], move{sidecarLetsGo, 0, slot},
		written(slot, func(p *pv) { p.Terminating, p.External = true, false }))
}
