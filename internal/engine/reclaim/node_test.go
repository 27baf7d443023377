package reclaim

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// onNode returns changed facts of a node's own process that permit the deletion of the volume at once.
func onNode(change func(*Facts)) Facts {
	return with(func(s *Facts) {
		s.Rules.Local, s.PV.Reach = true, volume.ReachHere
		s.NodesListed, s.OnlyNode = read(1, 2*time.Second), true
		s.Claim.Read, s.PVRead = read(2, time.Second), read(3, 0)
		change(s)
	})
}

func TestDecideOnNode(t *testing.T) {
	elsewhere := func(s *Facts) { s.PV.Reach = volume.ReachElsewhere }
	unclear := func(s *Facts) { s.PV.Reach = volume.ReachUnclear }
	bound := func(s *Facts) { s.PV.Phase = volume.PhaseBound }
	unprotected := func(s *Facts) { s.PV.HasFinalizer = false }
	all := func(changes ...func(*Facts)) Facts {
		return onNode(func(s *Facts) {
			for _, change := range changes {
				change(s)
			}
		})
	}
	check(t, decisions{
		"its own volume: deleted":       {all(), do(DeleteVolume, ReasonReclaim)},
		"its own volume: protected":     {all(bound, unprotected), do(AddFinalizer, ReasonProtect)},
		"another node's: not deleted":   {all(elsewhere), waiting(ReasonOtherNode)},
		"another node's: not protected": {all(elsewhere, bound, unprotected), waiting(ReasonOtherNode)},
		"another node's, to be kept: not let go": {all(elsewhere, func(s *Facts) { s.PV.Policy = volume.PolicyRetain }),
			waiting(ReasonOtherNode)},
		"not clear whose: not deleted, and told of": {all(unclear), waiting(ReasonNodeUnclear)},
		"not clear whose, PV first: told of": {all(unclear, bound, func(s *Facts) { s.PV.Terminating = true }),
			waiting(ReasonNodeUnclear)},
		"not clear whose, in use: left in peace": {all(unclear, bound, unprotected), waiting(ReasonOtherNode)},
		"not clear whose, gone: told of once": {all(unclear, unprotected, func(s *Facts) {
			s.End = End{Gone: true, Final: true}
		}), ended(ReasonNodeUnclear)},
		"release: the finalizers of its own PVs go": {all(func(s *Facts) { s.Rules.Mode = ModeRelease }),
			do(RemoveFinalizer, ReasonFinalizersRemoved)},
		"release: the finalizers of other PVs stay": {all(elsewhere, func(s *Facts) { s.Rules.Mode = ModeRelease }),
			waiting(ReasonOtherNode)},
		"the nodes were not looked at: looks": {all(func(s *Facts) { s.NodesListed = session.Read{} }),
			do(ListNodes, ReasonReclaim)},
		"looked at too long ago: looks again": {all(func(s *Facts) { s.NodesListed = read(1, session.LiveFor+1) }),
			do(ListNodes, ReasonReclaim)},
		"another node in its place: not deleted": {all(func(s *Facts) { s.OnlyNode = false }),
			looking(ReasonTopologyNotUnique)},
		"the nodes were looked at after the PV: again": {all(func(s *Facts) { s.NodesListed.Order = 4 }),
			do(ReadPV, ReasonReclaim)},
		"a volume that it deleted: despite its present answer": {all(unclear, func(s *Facts) {
			s.Done = done(s.PV, false,
				false)
		}), do(DeletePV, ReasonVolumeDeleted)},
		"gone before it was protected, another node in its place": {all(unprotected, func(s *Facts) {
			s.End, s.History.SeenAlive, s.AttachmentsCurrent, s.OnlyNode = End{Gone: true, Final: true}, true, true, false
		}), looking(ReasonTopologyNotUnique)},
	})
}
